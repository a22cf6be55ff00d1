package wiring

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/cluster/replicas"
	"github.com/orla-project/orla/internal/kind/webhook"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
	"github.com/orla-project/orla/mcpbridge/transport/passed"
)

// waitsPath is where a replica says whether a call of its own waits for an answer that a service pushes.
const waitsPath = "/waits/"

// Open opens the port for other replicas, where front answers what they pass on. end closes it. Without replicas it does
// nothing.
func (s *Shared) Open(ctx context.Context, cfg *config.Loaded, front *httpfront.Front, pushed *webhook.Callbacks) (end func(context.Context), err error) {
	if s == nil {
		return func(context.Context) {}, nil
	}
	var listen net.ListenConfig
	on, err := listen.Listen(ctx, "tcp", cfg.ReplicaListen)
	if err != nil {
		return nil, err
	}
	front.Share(s.sessions)
	end = s.Listen(on, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, asks := strings.CutPrefix(r.URL.Path, waitsPath); asks {
			status := http.StatusNotFound
			if pushed.Waits(id) {
				status = http.StatusNoContent
			}
			w.WriteHeader(status)
			return
		}
		if r := passedOn(w, r); r != nil {
			front.ServeHTTP(w, r)
		}
	}))
	s.log.Info("serving other replicas", "replica", s.Self(), "address", cfg.ReplicaReached())
	return end, nil
}

// ServeWhen says that requests are answered from now on, and what tells whether this process is ready for those of others.
func (s *Shared) ServeWhen(ready func() bool) {
	if s != nil {
		s.Replicas.ServeWhen(ready)
	}
}

// passedOn returns a request that another replica has passed on; nil if it does not say whose it is, which it answers.
func passedOn(w http.ResponseWriter, r *http.Request) *http.Request {
	r, ok := passed.Of(r)
	if !ok {
		http.Error(w, "it is not said whose the request is", http.StatusBadRequest)
		return nil
	}
	return r
}

const (
	// maxFinding bounds the answers of services for which another replica is looked for at once, maxToFind those that wait for that,
	// and findPatience how long: anybody can send some.
	maxFinding   = 16
	maxToFind    = 512
	findPatience = 5 * time.Second
	// maxCallID is longer than the id of any call.
	maxCallID = 64
)

// Callbacks receives the answers that services push, and passes those on for which a call of another replica waits.
func (s *Shared) Callbacks(own *webhook.Callbacks) http.Handler {
	if s == nil {
		return own
	}
	finding := turns.NewDoor(maxFinding, maxToFind, findPatience)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("request_id")
		if passed.From(r.Context()) != nil || own.Waits(id) || len(id) > maxCallID {
			own.ServeHTTP(w, r)
			return
		}
		network := turns.NetworkOf(r.RemoteAddr)
		if !finding.Enter(r.Context(), network) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many answers come for calls of other replicas", http.StatusServiceUnavailable)
			return
		}
		to := func(ctx context.Context) string {
			defer finding.Leave(network)
			return s.Find(ctx, waitsPath+url.PathEscape(id))
		}(r.Context())
		if to == "" {
			own.ServeHTTP(w, r)
			return
		}
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			host = r.RemoteAddr
		}
		by := passed.Caller{Host: host}
		s.Pass(w, r, replicas.Passing{To: to, Sign: by.Sign, Again: own})
	})
}

// giveUpTime is how long the processes of capsules may take to end, after the calls in flight, before a replica stops all
// the same.
const giveUpTime = 20 * time.Second

// Leave gives up what this replica has for all, before it stops. Others go on with it. grace is how long calls in
// flight may go on.
func (s *Shared) Leave(ctx context.Context, grace time.Duration) {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace+giveUpTime)
	defer cancel()
	s.Replicas.Leave(ctx)
	s.AwaitReleased(ctx)
}

// AwaitPassed waits until the calls have ended that other replicas answer for this one, or ctx ends.
func (s *Shared) AwaitPassed(ctx context.Context) {
	if s != nil {
		s.Replicas.AwaitPassed(ctx)
	}
}
