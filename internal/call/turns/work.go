package turns

import (
	"context"
	"runtime"
)

// Heavy is the size of an answer, in bytes, from which work on it waits for its turn.
const Heavy = 256 << 10

// Workers returns how many turns of Work a caller has at a time: half of the processors are left to
// everybody else, so that nobody waits for another caller's turn, which may be long, while only one
// caller has large answers.
func Workers() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// Waiting returns how many wait for a turn of Work.
func (r *Room) Waiting() int { return r.working.Waiting() }

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

// BeginWork waits for a turn as Work does, for who works on a large answer and then calls EndWork.
func (a *Account) BeginWork(ctx context.Context) error { return a.room.working.Take(ctx, a.owner) }

// EndWork ends what BeginWork has begun without an error.
func (a *Account) EndWork() { a.room.working.Give(a.owner) }
