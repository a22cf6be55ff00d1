//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package launch

import (
	"errors"
	"syscall"

	"github.com/orla-project/orla/internal/launch/trees"
)

func enterCgroup(*syscall.SysProcAttr, int) {}

func stayOutside(*syscall.SysProcAttr) {}

func cannotEnter(error) bool { return false }

func boundMemory(int, int64) error { return errors.New("not possible on this system") }

// fromCell returns strays unchanged: there are no cgroups here.
func (p *LocalProcess) fromCell(strays []trees.Process) []trees.Process { return strays }
