// Package stdio serves a bridge to one client over a connection on which whole messages come: the
// lines of stdin, or the messages that a client POSTs to an SSE stream. The connection is also the
// client's session. A malformed message does not end it. When the input ends, all requests that were
// read are still answered (SPEC G1).
package stdio
