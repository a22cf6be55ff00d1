//go:build !linux

package cgroup

import "log/slog"

// Root is a cgroup that was delegated to Orla. There is none here.
type Root struct{}

// Open returns nil: there are no cgroups here.
func Open(*slog.Logger) (root *Root, reason string) { return nil, "there are no cgroups here" }

// Claim returns nil: there are no cgroups here.
func Claim(*slog.Logger) (root *Root, reason string) { return nil, "there are no cgroups here" }

// Sweep does nothing.
func Sweep(*slog.Logger) {}

// Lost reports false.
func (*Root) Lost() bool { return false }

// Dir is of no use here.
func (*Root) Dir() string { return "" }

// Controllers is of no use here.
func (*Root) Controllers() []string { return nil }

// Close does nothing.
func (*Root) Close() {}

// New makes none.
func (*Root) New(string, Limits) (*Group, error) { return nil, nil }

// Group is the cgroup of one tree of processes. There is none here.
type Group struct{}

// Applied returns none.
func (*Group) Applied() Limits { return Limits{} }

// Fd is of no use here.
func (*Group) Fd() int { return -1 }

// Add does nothing.
func (*Group) Add(int) error { return nil }

// Kill does nothing.
func (*Group) Kill() {}

// Pids lists none.
func (*Group) Pids() []int { return nil }

// OutOfMemory reports false.
func (*Group) OutOfMemory() bool { return false }

// Usage returns nothing.
func (*Group) Usage() Usage { return Usage{} }

// Remove does nothing.
func (*Group) Remove() error { return nil }
