// Package stdio serves a bridge to one client over a connection made of whole messages: the
// lines of stdio, or the messages that a client POSTs to an SSE stream. The connection is the
// client's session too. It outlives a malformed message, and answers all that it has read
// when its input ends (SPEC G1).
package stdio
