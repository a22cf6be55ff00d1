package stdio

import (
	"context"
	"sync/atomic"
)

// maxIdle bounds the goroutines that wait for a job.
const maxIdle = 64

// workers run jobs in goroutines. They reuse a goroutine that has ended its job, whose stack has
// grown already.
type workers struct {
	jobs chan func()  // given to a goroutine that is idle
	idle atomic.Int32 // those goroutines
}

// run does a job. The goroutines wait for others until ctx ends.
func (w *workers) run(ctx context.Context, job func()) {
	select {
	case w.jobs <- job:
	default:
		go w.work(ctx, job)
	}
}

func (w *workers) work(ctx context.Context, job func()) {
	for {
		job()
		if w.idle.Add(1) > maxIdle {
			w.idle.Add(-1)
			return
		}
		select {
		case job = <-w.jobs:
			w.idle.Add(-1)
		case <-ctx.Done():
			return
		}
	}
}
