// Package httpfront serves a bridge to clients over HTTP: Streamable HTTP in every protocol
// era and the SSE transport of 2024-11-05, with /healthz, /readyz and /metrics. It checks
// who may call, bounds bodies, sessions and waits, and writes each message with a deadline.
package httpfront
