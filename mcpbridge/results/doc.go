// Package results turns the answers of tools into results for clients: a failure becomes a
// result that a model can act on, an answer that is too large is cut and its parts are kept as
// resources, and the results of peers are passed on without decoding them.
package results
