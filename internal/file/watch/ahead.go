package watch

import (
	"context"
	"io/fs"
	"os"
	"path"
	"runtime"
	"sync"
	"sync/atomic"
)

// aheadOf is how many entries of a folder are looked at ahead of a walk at a time, and fewAhead how many are not
// worth that.
const (
	aheadOf  = 512
	fewAhead = 32
)

// ahead has what several goroutines have seen of the next entries of a folder, for a walk that hurries. The walk goes
// through them in order, and looks itself at what is missing.
type ahead struct {
	in      *tree
	folder  string
	entries []fs.DirEntry
	begin   int // of what was looked at, in entries
	looked  []looked
}

// looked is what was seen of one path.
type looked struct {
	done    bool
	stamp   stamp
	link    bool
	err     error
	listed  bool // it is a folder, of which the next two fields are known
	entries []fs.DirEntry
	listErr error
}

// of returns what was seen of an entry of the folder, the next ones being looked at before if that is their turn.
func (a *ahead) of(ctx context.Context, i int) *looked {
	if !a.in.hurries || len(a.entries) < fewAhead {
		return &looked{}
	}
	if i >= a.begin+len(a.looked) {
		a.begin, a.looked = i, make([]looked, min(aheadOf, len(a.entries)-i))
		a.lookAtAll(ctx)
	}
	return &a.looked[i-a.begin]
}

func (a *ahead) lookAtAll(ctx context.Context) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(a.looked)) {
		all.Go(func() {
			defer func() { _ = recover() }() // the walk looks itself, and meets the same
			for i := int(next.Add(1)) - 1; i < len(a.looked) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				a.lookAt(a.entries[a.begin+i], &a.looked[i])
			}
		})
	}
	all.Wait()
}

func (a *ahead) lookAt(e fs.DirEntry, l *looked) {
	rel := path.Join(a.folder, e.Name())
	s, link, err := a.in.look(rel)
	if s.mode.IsDir() && err == nil && !Ignored(rel, true) {
		l.entries, l.listErr = os.ReadDir(a.in.abs(rel))
		l.listed = true
	}
	l.stamp, l.link, l.err, l.done = s, link, err, true
}
