// Package capsule will hold one long-lived tool process and its life: started
// once, ready when it has said orla.hello, called many times over JSON-RPC on its
// stdin and stdout, restarted when its files change or when it crashes, stopped
// whole. It is not for tools that run once per call; those are package simple.
//
//	Created ─► Starting ─► Ready ─► Reloading | Crashed | Stopping ─► Stopped
//
// Its invariant will be: at most one process per capsule, and no request to one
// that is not Ready. RFC 2 describes it.
//
// This release has no capsules, and this package no code.
package capsule
