//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package unixsocket

import "fmt"

// addressable refuses a path that is too long for a socket's address.
func addressable(path string) (short string, done func(), err error) {
	if len(path) > maxAddress {
		return "", nil, fmt.Errorf("the path has %d bytes, more than the %d that a socket may have", len(path), maxAddress)
	}
	return path, func() {}, nil
}
