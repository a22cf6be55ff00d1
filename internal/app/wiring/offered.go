package wiring

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/observe/brief"
	"github.com/orla-project/orla/mcpbridge/budget"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// offered serves a capsule to replicas while its process can be called. To a GET it says whether it
// can: 204, or 425 while it starts, or 503 and why not.
type offered struct {
	front   *httpfront.Front
	calling budget.Counter // requests that end by themselves

	mu   sync.Mutex      // guards the fields that follow
	open context.Context // ends when the process cannot be called any more
	shut context.CancelFunc
	why  string // it cannot be called
}

func newOffered(front *httpfront.Front) *offered {
	o := &offered{front: front, why: starts}
	o.open, o.shut = context.WithCancel(context.Background())
	o.shut()
	return o
}

const (
	// maxWhy bounds in bytes why a process cannot be called.
	maxWhy = 1000
	starts = "its process starts"
	// listTime is how long a READY process may take to say what it offers, until it is offered without.
	listTime = 5 * time.Second
)

// follow follows how the process is, until ctx ends. Streams of replicas end when it cannot be called any more, so that they
// ask why, and say that too.
func (o *offered) follow(ctx context.Context, process interface {
	Life() peer.Life
	Offers() *peer.Offers
},
) error {
	defer func() { o.shut() }()
	for {
		life, offers := process.Life(), process.Offers()
		wait := listTime - time.Since(life.Since)
		silent := offers.Silent && life.State == "READY" && wait > 0
		o.look(ctx, life, offers.Known && !silent)
		var enough <-chan time.Time
		if silent {
			enough = time.After(wait)
		}
		select {
		case <-life.Changed:
		case <-offers.Changed:
		case <-enough:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look notes whether the process can be called. listed says that it has said what it offers, or will not: replicas list it
// when they connect.
func (o *offered) look(ctx context.Context, life peer.Life, listed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	open := o.open.Err() == nil
	can, why := callable(life, open)
	if can && !open && !listed {
		can, why = false, starts
	}
	o.why = why
	switch {
	case can && !open:
		o.open, o.shut = context.WithCancel(ctx)
	case !can && open:
		o.shut()
	}
}

// callable reports whether the process of a capsule can be called, or will be by itself. If not, it returns why. One that could
// be called may fail once: it is started again at once.
func callable(life peer.Life, could bool) (can bool, why string) {
	few := 0
	if could {
		few = 1
	}
	switch {
	case life.Held, life.State != "READY" && life.Failures > few:
		return false, brief.Cut(cmp.Or(life.Reason, "its process is "+life.State), maxWhy)
	case could, life.State == "READY":
		return true, ""
	case life.Settled && (life.State == "CREATED" || life.State == "STOPPED"): // it waits for a call
		return true, ""
	}
	return false, starts
}

// ServeHTTP serves a request of a replica.
func (o *offered) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	open, why := o.open, o.why
	o.mu.Unlock()
	shut := open.Err() != nil
	switch {
	case r.Method == http.MethodGet && shut:
		status := http.StatusServiceUnavailable
		if why == starts {
			status = http.StatusTooEarly
		}
		http.Error(w, why, status)
		return
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusNoContent)
		return
	case shut:
		http.Error(w, why, http.StatusMisdirectedRequest)
		return
	}
	if r = passedOn(w, r); r != nil {
		o.answer(open, w, r) //nolint:contextcheck // r has its own
	}
}

// answer has the front answer a request. Streams end with open.
func (o *offered) answer(open context.Context, w http.ResponseWriter, r *http.Request) {
	if wire.FirstHeader(r.Header, wire.MethodHeader) != wire.MethodListen {
		o.calling.Add(1)
		defer o.calling.Add(-1)
	} else {
		ctx, end := context.WithCancel(r.Context())
		defer end()
		defer context.AfterFunc(open, end)()
		r = r.WithContext(ctx) //nolint:contextcheck // it ends with either
	}
	r.URL.Path = "/mcp"
	o.front.ServeHTTP(w, r)
}

// await waits, for grace at most, until nothing is being answered.
func (o *offered) await(grace time.Duration) {
	select {
	case <-o.calling.None():
	case <-time.After(grace):
	}
}
