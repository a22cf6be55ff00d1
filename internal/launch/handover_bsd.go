//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package launch

import "errors"

// Give reports false: no process can be given here.
func (*LocalProcess) Give() (ProcessState, bool) { return ProcessState{}, false }

// Adopt fails.
func (*Local) Adopt(ProcessState) (*LocalProcess, error) {
	return nil, errors.New("no process can be taken over on this system")
}

// KillLeft does nothing.
func KillLeft(ProcessState) {}
