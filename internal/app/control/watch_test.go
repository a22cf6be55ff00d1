package control_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/app/control"
)

// event is a server-sent event.
type event struct{ name, data string }

// readEvents yields the events of a stream.
func readEvents(t *testing.T, from *bufio.Reader) iter.Seq[event] {
	return func(yield func(event) bool) {
		var e event
		for {
			line, err := from.ReadString('\n')
			if err != nil {
				return
			}
			line = strings.TrimSuffix(line, "\n")
			switch {
			case line == "":
				if !yield(e) {
					return
				}
				e = event{}
			case strings.HasPrefix(line, "event: "):
				e.name = line[len("event: "):]
			case strings.HasPrefix(line, "data: "):
				e.data = line[len("data: "):]
			default:
				t.Errorf("%q is not a line of an event", line)
			}
		}
	}
}

// decode reads the data of an event.
func decode[T any](t *testing.T, e event) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(e.data), &v); err != nil {
		t.Fatalf("%s: %v", e.data, err)
	}
	return v
}

// O1: a stream tells of everything, then of what has changed, and of lines of the log.
func TestO1Watch(t *testing.T) {
	b := newBackend()
	s := serve(t, b)
	fits := fitting(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.socket)
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://orla/v1/watch?lines=2&tool=weather", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	next, stop := iter.Pull(readEvents(t, bufio.NewReader(resp.Body)))
	defer stop()
	first, _ := next()
	change := decode[control.Change](t, first)
	if first.name != "change" || change.Status.Version != "v1.0.0" || len(change.Status.Tools) > 0 || len(change.Tools) != 1 || change.Tools[0].Name != "weather" {
		t.Errorf("the first event: %v", first)
	}
	if err := fits("GET", "/v1/status", "200", "application/json", mustJSON(t, change.Status)); err != nil {
		t.Error(err)
	}
	lines := func() []string {
		for {
			e, ok := next()
			if !ok {
				t.Fatal("the stream ended")
			}
			if e.name == "lines" {
				var texts []string
				for _, line := range decode[control.LogLines](t, e).Lines {
					texts = append(texts, string(line))
				}
				return texts
			}
		}
	}
	if got := lines(); len(got) != 2 || !strings.Contains(got[1], `"call_id":"4"`) {
		t.Errorf("the past: %v", got)
	}
	b.add(`{"time":"2026-01-02T15:04:09Z","level":"info","msg":"state","tool":"weather","to":"CRASHED"}`)
	if got := lines(); len(got) != 1 || !strings.Contains(got[0], "CRASHED") {
		t.Errorf("what is new: %v", got)
	}
	_ = resp.Body.Close()
	eventually(t, "the stream is not followed any more", func() bool { return b.readersNow() == 0 })
}

func mustJSON(t *testing.T, v any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// O4: of many lines the newest are sent, with the number of the others, and what states tell is not lost among them.
func TestO4AWatchBoundsItsLines(t *testing.T) {
	w := control.NewWatcher()
	w.Log(`{"time":"t","level":"info","msg":"state","tool":"a"}`)
	for i := range 2000 {
		w.Log(fmt.Sprintf(`{"time":"t","level":"info","msg":"stderr","tool":"a","text":"%d"}`, i))
	}
	batch := w.Taken()
	if len(batch.Lines) != 500 || batch.Dropped != 1501 {
		t.Errorf("%d lines, %d dropped", len(batch.Lines), batch.Dropped)
	}
	if !strings.Contains(string(batch.Lines[0]), "state") || !strings.Contains(string(batch.Lines[499]), "1999") {
		t.Errorf("from %s to %s", batch.Lines[0], batch.Lines[499])
	}
	long := strings.Repeat("x", 20<<10)
	for range 20 {
		w.Log(`{"time":"t","level":"info","msg":"stderr","text":"` + long + `"}`)
	}
	if batch = w.Taken(); len(batch.Lines) != 6 || batch.Dropped != 14 {
		t.Errorf("%d long lines, %d dropped", len(batch.Lines), batch.Dropped)
	}
}

// O1: what may decide by who is at the other end of the socket does not exist for the page, and its calls have a caller
// of their own.
func TestO1ThePageHasNoPeer(t *testing.T) {
	b := newBackend()
	page := control.New(control.Options{Backend: b, MaxRequest: 1 << 10, Log: slog.New(slog.DiscardHandler)}).PageAPI()
	ask := func(method, path, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
		return w
	}
	var reached []string
	for _, route := range control.Routes() {
		method, path, _ := strings.Cut(route, " ")
		path = strings.NewReplacer("{name}", "weather", "{id}", "ap-1").Replace(path)
		if path == "/v1/watch" {
			continue
		}
		if w := ask(method, path, `{"digest":"d1","ttl":"1h","reason":"x"}`); w.Code != http.StatusNotFound && w.Code != http.StatusMethodNotAllowed {
			reached = append(reached, route)
		}
	}
	want := []string{
		"GET /v1/approvals", "GET /v1/approvals/{id}", "GET /v1/audit", "GET /v1/logs", "GET /v1/manifests/{name}", "GET /v1/numbers", "GET /v1/packages", "GET /v1/pins", "GET /v1/pins/{name}", "GET /v1/status", "GET /v1/status/{name}", "GET /v1/tools",
		"POST /v1/audit/verify", "POST /v1/capsules/{name}/restart", "POST /v1/capsules/{name}/start", "POST /v1/capsules/{name}/stop", "POST /v1/questions/{id}", "POST /v1/tools/{name}/call",
	}
	if slices.Sort(reached); !slices.Equal(reached, want) {
		t.Errorf("the page reaches\n%s\nwant\n%s", strings.Join(reached, "\n"), strings.Join(want, "\n"))
	}
	if w := ask("POST", "/v1/tools/weather/call", `{"arguments":"who"}`); !strings.Contains(w.Body.String(), `"console"`) {
		t.Errorf("the caller: %s", w.Body)
	}
	s := serve(t, b)
	if _, _, body := s.request("POST", "/v1/tools/weather/call", `{"arguments":"who"}`); !strings.Contains(body, `"cli"`) {
		t.Errorf("the caller on the socket: %s", body)
	}
}

// quiet is a backend whose tools change only when it is told.
type quiet struct {
	*backend
	looks int
	tools []control.ToolStatus
}

func (q *quiet) Status() control.Status {
	q.looks++
	return control.Status{Version: "v1", Tools: q.tools}
}

func (q *quiet) Tool(name string) (control.ToolStatus, error) {
	for _, t := range q.tools {
		if t.Name == name {
			return t, nil
		}
	}
	return q.backend.Tool("absent")
}

// O1: a change of a state is told within 250 ms, what is gone is told, and nothing is told twice.
func TestO1AChangeIsToldSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &quiet{backend: newBackend(), tools: []control.ToolStatus{{Name: "a", State: "READY"}, {Name: "b", State: "READY"}}}
		page := control.New(control.Options{Backend: q, MaxRequest: 1 << 10, Log: slog.New(slog.DiscardHandler)}).PageAPI()
		ctx, cancel := context.WithCancel(t.Context())
		w := httptest.NewRecorder()
		done := make(chan struct{})
		go func() {
			defer close(done)
			page.ServeHTTP(w, httptest.NewRequest("GET", "/v1/watch", nil).WithContext(ctx))
		}()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if n := strings.Count(w.Body.String(), "event: change"); n != 1 {
			t.Errorf("%d changes while nothing changes:\n%s", n, w.Body)
		}
		w.Body.Reset()
		q.tools = []control.ToolStatus{{Name: "a", State: "CRASHED"}, {Name: "b", State: "READY"}}
		q.add(`{"time":"t","level":"info","msg":"state","tool":"a"}`)
		looks := q.looks
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		if got := w.Body.String(); !strings.Contains(got, "CRASHED") || strings.Contains(got, `"b"`) || q.looks != looks {
			t.Errorf("after 250 ms, and %d looks at all tools:\n%s", q.looks-looks, got)
		}
		w.Body.Reset()
		q.tools = q.tools[1:]
		q.add(`{"time":"t","level":"info","msg":"reload"}`)
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		if got := w.Body.String(); !strings.Contains(got, `{"gone":["a"]}`) {
			t.Errorf("after a tool was removed:\n%s", got)
		}
		cancel()
		<-done
	})
}
