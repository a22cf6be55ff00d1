//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package guard

import (
	"os"
	"syscall"
)

// sharedFile returns memory that another process can map.
func sharedFile() (*os.File, error) { return namelessFile() }

// guardProcAttr gives the guard its own session: Ctrl-C and a signal to Orla's group must not reach
// it, since it has to clean up.
func guardProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func guardEnviron() []string { return []string{} }

// Program returns a path to this process's program.
func Program() (string, error) { return os.Executable() }

func nameThisProcess(string) {} // this system has no call for it
