package supervisor

import (
	"errors"
	"hash/maphash"
	"strings"

	"github.com/orla-project/orla/internal/observe/brief"
)

const (
	// maxWarnings is how many lines are logged in a minute about what one provider offers.
	maxWarnings = 100
	// maxWhy and maxWhat bound what such a line says, in bytes.
	maxWhy  = 400
	maxWhat = 200
)

// warner logs why something that a provider offers is not served, once for each key.
type warner func(key, why, what string, l *living)

// warned is what publish has warned of, by the hash of its key and its provider.
type warned map[uint64]struct{}

var warnedSeed = maphash.MakeSeed()

// warner returns what logs of the next catalog, and what will have been warned of by then.
// What was warned of for the last one is not said again.
func (s *Supervisor) warner() (warner, warned) {
	now := warned{}
	return func(key, why, what string, l *living) {
		k := maphash.String(warnedSeed, key+"\x00"+l.tool.Source)
		_, before := s.warned[k]
		if _, is := now[k]; is || before {
			now[k] = struct{}{}
			return
		}
		now[k] = struct{}{}
		if shown, left := l.sparing.Allow(maxWarnings); shown {
			s.opts.Log.Warn("something that a capsule offers is not served",
				"what", brief.Cut(what, maxWhat), "source", l.tool.Source, "why", brief.Cut(why, maxWhy), "not_shown", left)
		}
	}, now
}

// shortened is an error of which no more is kept than is told.
func shortened(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.Clone(brief.Cut(err.Error(), maxWhy)))
}
