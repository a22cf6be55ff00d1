package lease_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/cluster/lease"
	"github.com/orla-project/orla/internal/testing/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// server is an API server in memory that has one Lease.
type server struct {
	mu      sync.Mutex // guards the fields that follow
	object  map[string]any
	version int
	away    map[string]bool // User-Agents that do not reach it
	deaf    bool            // it does what it is asked, and its answers are lost
}

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away[r.UserAgent()] {
		return nil, errors.New("no route to the API server")
	}
	code, answer := s.do(r)
	if s.deaf {
		return nil, errors.New("the connection broke")
	}
	raw, err := json.Marshal(answer)
	return &http.Response{StatusCode: code, Body: io.NopCloser(bytes.NewReader(raw)), Header: http.Header{}}, err
}

func (s *server) do(r *http.Request) (code int, answer map[string]any) {
	failed := func(code int, reason string) (int, map[string]any) {
		return code, map[string]any{"kind": "Status", "reason": reason}
	}
	if s.object == nil && r.Method != http.MethodPost {
		return failed(http.StatusNotFound, "NotFound")
	}
	if r.Method == http.MethodGet {
		return http.StatusOK, s.object
	}
	var sent map[string]any
	if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
		return failed(http.StatusBadRequest, "BadRequest")
	}
	switch r.Method {
	case http.MethodPost:
		if s.object != nil {
			return failed(http.StatusConflict, "AlreadyExists")
		}
	default:
		if sent["metadata"].(map[string]any)["resourceVersion"] != strconv.Itoa(s.version) {
			return failed(http.StatusConflict, "Conflict")
		}
	}
	s.write(sent)
	return http.StatusOK, sent
}

func (s *server) write(object map[string]any) {
	s.version++
	object["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(s.version)
	s.object = object
}

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *server) holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.object == nil {
		return "no lease"
	}
	holder, _ := s.object["spec"].(map[string]any)["holderIdentity"].(string)
	return holder
}

// options are those of a process that reaches the server by its name.
func (s *server) options(t *testing.T, holder string) lease.Options {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte("current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: 'http://api'}}]\nusers: [{name: u, user: {}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := kubeapi.Load(path, "")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubeapi.New(config, holder, func(http.RoundTripper) http.RoundTripper { return s })
	if err != nil {
		t.Fatal(err)
	}
	return lease.Options{Client: client, Namespace: "tools", Name: "one", Holder: holder, Log: slog.New(slog.DiscardHandler)}
}

// works records who works under the Lease. Its invariant is what a Lease promises.
type works struct {
	t  *testing.T
	mu sync.Mutex // guards the fields that follow
	// working is the holder that works; "" for none.
	working string
	history []string // "NAME GENERATION"
}

func (w *works) work(name string) func(context.Context, int64) {
	return func(ctx context.Context, generation int64) {
		w.mu.Lock()
		if w.working != "" {
			w.t.Errorf("%s and %s work at once", w.working, name)
		}
		w.working = name
		w.history = append(w.history, fmt.Sprint(name, " ", generation))
		w.mu.Unlock()
		<-ctx.Done()
		w.mu.Lock()
		w.working = ""
		w.mu.Unlock()
	}
}

func (w *works) want(history string) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := strings.Join(w.history, ", "); got != history {
		w.t.Errorf("worked: %s; want %s", got, history)
	}
}

// run calls Hold in the background until the returned function is called, which waits for its end.
func (w *works) run(o lease.Options) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() { lease.Hold(ctx, o, w.work(o.Holder)) })
	return func() { cancel(); running.Wait() }
}

// Of two processes one works. The other follows at once if the first one stops, with a higher generation.
func TestOneOfTwoHoldsALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := &server{}, &works{t: t}
		stopA := w.run(s.options(t, "a"))
		synctest.Wait()
		stopB := w.run(s.options(t, "b"))
		time.Sleep(time.Hour)
		w.want("a 1")
		stopA()
		if got := s.holder(); got != "" {
			t.Errorf("held by %s after the stop", got)
		}
		time.Sleep(5 * time.Second)
		w.want("a 1, b 2")
		stopB()
	})
}

// A holder that does not reach the API server stops before another process may take the Lease, and works
// again when that is over.
func TestAHolderThatIsCutOffStopsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := &server{away: map[string]bool{}}, &works{t: t}
		defer w.run(s.options(t, "a"))()
		synctest.Wait()
		stopB := w.run(s.options(t, "b"))
		time.Sleep(time.Minute)
		s.set(func() { s.away["a"] = true })
		time.Sleep(time.Minute)
		w.want("a 1, b 2")
		s.set(func() { s.away["a"] = false })
		stopB()
		time.Sleep(time.Minute)
		w.want("a 1, b 2, a 3")
	})
}

// Without an API server nobody works. A pause that is shorter than the Lease costs nothing.
func TestAnAPIServerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := &server{away: map[string]bool{}}, &works{t: t}
		defer w.run(s.options(t, "a"))()
		time.Sleep(time.Minute)
		s.set(func() { s.away["a"] = true })
		time.Sleep(6 * time.Second) // 3 s after a renewal it ends 2.25 s before the holder gives up, which tries again within 1.5 s
		s.set(func() { s.away["a"] = false })
		time.Sleep(time.Minute)
		w.want("a 1")
		s.set(func() { s.deaf = true })
		time.Sleep(6 * time.Second)
		s.set(func() { s.deaf = false })
		time.Sleep(time.Minute)
		w.want("a 1")
		s.set(func() { s.away["a"] = true })
		time.Sleep(time.Hour)
		w.mu.Lock()
		if w.working != "" {
			t.Error("it still works")
		}
		w.mu.Unlock()
		s.set(func() { s.away["a"] = false })
		time.Sleep(time.Minute)
		w.want("a 1, a 2")
	})
}

// Who edits the Lease's labels does not take it away; who deletes it or gives it to another does.
func TestOthersWriteTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := &server{}, &works{t: t}
		o := s.options(t, "a")
		o.About = &kubeapi.Object{"labels": map[string]any{"a": "b"}}
		stop := w.run(o)
		time.Sleep(time.Minute)
		s.set(func() {
			meta := s.object["metadata"].(map[string]any)
			if fmt.Sprint(meta["labels"]) != "map[a:b]" {
				t.Errorf("labels: %v", meta["labels"])
			}
			meta["labels"].(map[string]any)["edited"] = "yes"
			s.write(s.object)
		})
		time.Sleep(time.Minute)
		w.want("a 1")
		s.set(func() {
			if fmt.Sprint(s.object["metadata"].(map[string]any)["labels"]) != "map[a:b edited:yes]" {
				t.Error("the edited label is gone")
			}
			s.object["spec"].(map[string]any)["holderIdentity"] = "c"
			s.write(s.object)
		})
		time.Sleep(time.Minute)
		w.want("a 1, a 2") // c never renewed it
		s.set(func() { s.object = nil })
		time.Sleep(time.Minute)
		w.want("a 1, a 2, a 1")
		stop()
	})
}

// Work that ends by itself, even in a panic, releases the Lease.
func TestTheEndOfALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		lease.Hold(t.Context(), s.options(t, "a"), func(context.Context, int64) { panic("a bug") })
		if got := s.holder(); got != "" {
			t.Errorf("held by %s", got)
		}
	})
}
