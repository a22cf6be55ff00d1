//go:build !linux

package launch

// Usage knows of nothing here: there is no cheap way to ask for it.
func (*Local) Usage([]int) map[int]Usage { return nil }
