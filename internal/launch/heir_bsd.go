//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package launch

// heir is for the first process of a container, which is never one of these.
type heir struct{}

func newHeir() *heir { return nil }

func (*heir) starting(start func() (pid int, err error)) (int, error) { return start() }

func (*heir) forget(int) {}

func (*heir) close() {}
