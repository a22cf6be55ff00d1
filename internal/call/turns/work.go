package turns

import (
	"context"
	"runtime"
	"time"
)

// Heavy is the size of an answer, in bytes, from which work on it waits for its turn.
const Heavy = 256 << 10

// Workers returns how many turns of Work a caller has at a time: half of the processors are left to
// everybody else, so that nobody waits for another caller's turn, which may be long, while only one
// caller has large answers.
func Workers() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// Waiting returns how many wait for a turn of Work.
func (r *Room) Waiting() int { return r.working.Waiting() }

// slice is how long a turn is while somebody waits for one, if the work is done in parts.
const slice = 5 * time.Millisecond

// Work does work on n bytes of an answer. From Heavy bytes, it waits for a turn, and the callers of the room
// come in turn. work must not wait for anything, nor call Work. If ctx ends before, work is not done, and
// the error is ctx's cause.
func (a *Account) Work(ctx context.Context, n int, work func()) error {
	if a != nil && n >= Heavy {
		if err := a.BeginWork(ctx); err != nil {
			return err
		}
		defer a.EndWork()
	}
	work()
	return nil
}

// WorkInParts is Work that calls rest between its parts, which may be of any size: it lets other goroutines run,
// and callers that wait for a turn have theirs. If ctx ends meanwhile, the work goes on without a turn.
func (a *Account) WorkInParts(ctx context.Context, n int, work func(rest func())) error {
	if a == nil || n < Heavy {
		work(func() {})
		return nil
	}
	if err := a.BeginWork(ctx); err != nil {
		return err
	}
	in, since := true, time.Now()
	defer func() {
		if in {
			a.EndWork()
		}
	}()
	work(func() {
		runtime.Gosched()
		if !in || time.Since(since) < slice || a.room.working.Waiting() == 0 {
			return
		}
		a.EndWork()
		in = a.BeginWork(ctx) == nil
		since = time.Now()
	})
	return nil
}

// BeginWork waits for a turn as Work does, for who works on a large answer and then calls EndWork.
func (a *Account) BeginWork(ctx context.Context) error { return a.room.working.Take(ctx, a.owner) }

// EndWork ends what BeginWork has begun without an error.
func (a *Account) EndWork() { a.room.working.Give(a.owner) }
