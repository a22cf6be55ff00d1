// Package wire reads and writes what MCP clients and Orla send each other: JSON-RPC
// messages, batches, what a client declares of itself, and the HTTP headers that repeat a
// part of a message. A message is split and checked once, within limits; what is passed on
// is not decoded.
package wire
