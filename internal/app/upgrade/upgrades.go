package upgrade

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/version"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/carry"
)

// Upgrades are the upgrades of this process. Its methods may be called from any goroutine.
type Upgrades struct {
	Program Program
	// Asked holds a document whose binary is to be executed.
	Asked chan *Document
	// Next is what is executed when all has stopped; nil for nothing. It is the daemon's.
	Next *Document

	busy     sync.Mutex // held during a check
	mu       sync.Mutex // guards the fields that follow
	number   int        // that were made
	failed   string     // why the last one was not; "" if it was
	underWay bool       // one was asked for that has not ended
}

// Begin is called first, with the program that runs and what the program before has given. It logs how this program came
// to run.
func (u *Upgrades) Begin(program Program, before *Document, log *slog.Logger) {
	u.Program, u.Asked = program, make(chan *Document, 1)
	switch {
	case before == nil:
		return
	case before.Failed != "":
		u.fail(log, before.Executes.Path, errors.New(before.Failed))
	default:
		log.Info("upgraded", "from", before.From, "version", version.Version(), "number", before.Number)
	}
	u.number = before.Number
}

// Last returns how many upgrades were made, and why the last one was not; "" if it was.
func (u *Upgrades) Last() (number int, failed string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.number, u.failed
}

// Fail notes why a document is not executed.
func (u *Upgrades) Fail(d *Document, err error, log *slog.Logger) { u.fail(log, d.Executes.Path, err) }

func (u *Upgrades) fail(log *slog.Logger, binary string, err error) {
	u.mu.Lock()
	u.failed, u.underWay = err.Error(), false
	u.mu.Unlock()
	log.Error("not upgraded; this program keeps serving", "binary", binary, "err", err)
}

// Prepare checks a binary, and has it executed soon. "" is the file that this program was started from. cannot is why this
// Orla cannot be upgraded; nil if it can.
func (u *Upgrades) Prepare(ctx context.Context, l launch.Launcher, binary string, cannot error, log *slog.Logger) (control.Upgrade, error) {
	if !u.busy.TryLock() {
		return control.Upgrade{}, refused(errUnderWay)
	}
	defer u.busy.Unlock()
	u.mu.Lock()
	underWay := u.underWay
	u.mu.Unlock()
	if underWay { // it may wait for answers of clients
		return control.Upgrade{}, refused(errUnderWay)
	}
	next, said, err := u.check(ctx, l, binary, cannot)
	if err != nil {
		u.fail(log, cmp.Or(binary, u.Program.Path), err)
		return control.Upgrade{}, refused(err)
	}
	u.mu.Lock()
	u.failed, u.underWay = "", true
	u.mu.Unlock()
	u.Asked <- next // it has room
	return control.Upgrade{Version: said.Version, Number: next.Number}, nil
}

var errUnderWay = errors.New("an upgrade is under way already")

// refused is the error of an upgrade that changed nothing.
func refused(err error) error {
	return &control.Error{Code: control.CodeRefused, Message: err.Error(), Hint: "nothing was changed; this Orla keeps serving"}
}

// check asks a binary whether it can go on from here, and returns the begin of the document for it.
func (u *Upgrades) check(ctx context.Context, l launch.Launcher, binary string, cannot error) (*Document, Answer, error) {
	if err := carry.Possible(); err != nil {
		return nil, Answer{}, fmt.Errorf("this process cannot execute another binary: %w", err)
	}
	switch {
	case cannot != nil:
		return nil, Answer{}, cannot
	case binary != "" && !filepath.IsAbs(binary):
		return nil, Answer{}, fmt.Errorf("%s is not an absolute path", binary)
	case binary != "":
		info, err := os.Stat(binary)
		if err != nil {
			return nil, Answer{}, err
		}
		if info.Mode()&0o111 == 0 {
			return nil, Answer{}, fmt.Errorf("%s is not executable; chmod +x %s", binary, binary)
		}
	}
	number, _ := u.Last()
	next := New(number+1, u.Program, binary)
	said, err := next.Ask(ctx, l)
	return next, said, err
}
