//go:build !linux

package slack

// Widen does nothing here.
func Widen() {}

// Usual only calls start.
func Usual(start func() (pid int, err error)) (int, error) { return start() }
