// Package results makes what tools answer into what clients can take: a tool's failure is a
// result that a model can act on, an answer that is too large is cut and its parts are kept
// as resources, and a peer's own bytes are passed on without decoding them.
package results
