//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package guard

import (
	"os"
	"syscall"
)

// sharedFile returns memory that can be handed to another process.
func sharedFile() (*os.File, error) { return namelessFile() }

// guardProcAttr gives the guard a session of its own: Ctrl-C and a kill of Orla's
// group must not reach it, or nobody would be left to clean up.
func guardProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func guardEnviron() []string { return []string{} }

// Program returns a path to this process's program.
func Program() (string, error) { return os.Executable() }

func nameThisProcess(string) {} // there is no call for it here
