// Package systemd is what Orla and systemd tell each other: where Orla is in
// its life, that it lives, which sockets it was given, and where its log goes.
//
// It knows nothing of Orla, and needs no systemd: without one, each of its
// values is nil and does nothing (SPEC K1).
package systemd
