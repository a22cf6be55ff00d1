//go:build !linux

package program

import "errors"

// forks: elsewhere the kernel may have no sockets that keep messages apart, and each driver in Python is a process that loads the SDK.
const forks = false

func forkPythons([]string) error { return errors.ErrUnsupported }
