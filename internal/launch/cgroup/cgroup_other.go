//go:build !linux

package cgroup

import "log/slog"

// Root is a cgroup that was delegated to Orla. This system has no cgroups.
type Root struct{}

// Open returns nil: this system has no cgroups.
func Open(*slog.Logger) (root *Root, reason string) { return nil, "there are no cgroups here" }

// Claim returns nil: this system has no cgroups.
func Claim(*slog.Logger) (root *Root, reason string) { return nil, "there are no cgroups here" }

// Sweep does nothing.
func Sweep(*slog.Logger) {}

// Lost reports false.
func (*Root) Lost() bool { return false }

// Dir returns "".
func (*Root) Dir() string { return "" }

// Controllers returns nil.
func (*Root) Controllers() []string { return nil }

// Close does nothing.
func (*Root) Close() {}

// New returns nil.
func (*Root) New(string, Limits) (*Group, error) { return nil, nil }

// Reopen returns nil: this system has no cgroups.
func Reopen(Kept, *slog.Logger) (root *Root, reason string) { return nil, "there are no cgroups here" }

// Kept returns nil.
func (*Root) Kept() *Kept { return nil }

// Adopt returns nil.
func (*Root) Adopt(State) *Group { return nil }

// Group is the cgroup of one tree of processes. This system has no cgroups.
type Group struct{}

// Give returns nil.
func (*Group) Give(*Root) (*State, bool) { return nil, true }

// Applied returns no limits.
func (*Group) Applied() Limits { return Limits{} }

// Fd returns -1.
func (*Group) Fd() int { return -1 }

// Add does nothing.
func (*Group) Add(int) error { return nil }

// Kill does nothing.
func (*Group) Kill() {}

// Pids returns nil.
func (*Group) Pids() []int { return nil }

// OutOfMemory reports false.
func (*Group) OutOfMemory() bool { return false }

// Usage returns zero.
func (*Group) Usage() Usage { return Usage{} }

// Remove does nothing.
func (*Group) Remove() error { return nil }
