package upgrade

import (
	"fmt"
	"log/slog"

	"github.com/orla-project/orla/internal/launch/carry"
)

// What is kept over an upgrade only to be shown: each in a sealed document of its own, with a format of its own. It is
// not in the Document, since reading that takes longer while requests wait.
const (
	History  = "history"  // the last lines of the log
	Counters = "counters" // metrics, and the numbers of the last hour
)

const notKept = "the history or the counters are not kept"

// Keep has the next program take something. If that is not possible, the upgrade goes on without.
func (d *Document) Keep(what string, raw []byte, log *slog.Logger) {
	f, err := carry.Seal(raw)
	if err != nil {
		log.Warn(notKept, "err", fmt.Errorf("%s: %w", what, err))
		return
	}
	defer func() { _ = f.Close() }() // the next program has another one
	fd, err := carry.Dup(f)
	if err != nil {
		log.Warn(notKept, "err", fmt.Errorf("%s: %w", what, err))
		return
	}
	if d.Kept == nil {
		d.Kept = map[string]int{}
	}
	d.Kept[what] = fd
}

// TakeKept passes what the program before has kept to take. What take refuses, such as a format that it does not know, is
// left out.
func (d *Document) TakeKept(what string, take func([]byte) error, log *slog.Logger) {
	if d == nil {
		return
	}
	fd, ok := d.Kept[what]
	if !ok {
		return
	}
	delete(d.Kept, what)
	if err := takeFrom(fd, take); err != nil {
		log.Warn(notKept, "err", fmt.Errorf("%s: %w", what, err))
	}
}

// takeFrom passes what a descriptor of the program before has to take.
func takeFrom(fd int, take func([]byte) error) error {
	f, err := carry.File(fd, "kept")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	raw, err := carry.Read(f)
	if err != nil {
		return err
	}
	return take(raw)
}
