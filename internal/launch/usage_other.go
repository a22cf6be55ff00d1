//go:build !linux

package launch

// Usage returns nil: these systems have no cheap way to measure it.
func (*Local) Usage([]int) map[int]Usage { return nil }
