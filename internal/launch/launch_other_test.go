//go:build !linux

package launch_test

// refuse is for Linux alone.
func refuse(string, []string) { panic("no system call can be refused here") }
