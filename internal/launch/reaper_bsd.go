//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package launch

import "time"

const strayPause = time.Duration(0)

// reaper does nothing here: its cases exist only on Linux.
type reaper struct{}

func newReaper(time.Duration, ...int) *reaper { return &reaper{} }

func (*reaper) Starting(start func() (pid int, err error)) (int, error) { return start() }

func (*reaper) Forget(int) {}

func (*reaper) close() {}
