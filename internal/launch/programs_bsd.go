//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package launch

// areLocal reports false: local file systems are not told from others here.
func areLocal(programs, string) bool { return false }
