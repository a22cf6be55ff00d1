package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/recovered"
)

// How a watch is paced, and what it sends at once.
const (
	watchPace  = 100 * time.Millisecond
	watchTick  = 2 * time.Second // for numbers that no line of the log tells of
	watchAlive = 15 * time.Second
	floodPace  = 250 * time.Millisecond // between two times at which lines go out, if there are too many of them
	// restFor is how many times as long as the last look at all tools took it rests before the next.
	restFor = 20
	// fewTools is up to how many tools that changed are looked at one by one.
	fewTools       = 16
	maxWatchLines  = 500
	maxWatchBytes  = 128 << 10
	usualPastLines = 500
)

// callerKey is the key of a request's Caller in its context.
type callerKey struct{}

// WithCaller returns the context of a request of the page, whose calls are those of a caller.
func WithCaller(ctx context.Context, by Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, by)
}

// PageAPI answers the requests that the page of the console may make, by Page or the caller of WithCaller. Who decides by the socket's
// other end is not known there, so what needs that does not exist.
func (s *Server) PageAPI() http.Handler {
	next := &requests{handler: s.handler(both), log: s.opts.Log}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(callerKey{}) == nil {
			r = r.WithContext(WithCaller(r.Context(), Caller{Name: Page}))
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) consoleLink(_ http.ResponseWriter, r *http.Request) (any, error) {
	by, err := PeerOf(r)
	if err != nil {
		return nil, err
	}
	return s.opts.Backend.ConsoleLink(r.Context(), by)
}

// ConsoleLink asks for a link that lets one browser into the console.
func (c *Client) ConsoleLink(ctx context.Context) (*ConsoleLink, error) {
	return ask[ConsoleLink](ctx, c, http.MethodPost, "/v1/console", nil)
}

// changing are the lines of the log after which the status may differ.
func changing() []string {
	few := slices.DeleteFunc(Events(), func(e string) bool { return e == "call" || e == "attempt" })
	return append(few, "about the tools folder", "a definition was accepted", "calls are not denied any more", "crashed; waiting for a change")
}

// watch streams what is new in the status, and lines of the log.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) (any, error) {
	q, wanted, err := parseWatch(r.URL.Query())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	watched := watcher{server: s, sent: map[string]uint64{}, dirty: map[string]bool{}, wake: make(chan struct{}, 1)}
	news, err := s.opts.Backend.Lines(ctx, Query{Events: changing(), Last: -1, Follow: true, Pace: watchPace})
	if err != nil {
		return nil, err
	}
	var lines iter.Seq2[json.RawMessage, int]
	if wanted {
		if lines, err = s.opts.Backend.Lines(ctx, q); err != nil {
			return nil, err
		}
	}
	var feeding sync.WaitGroup
	defer feeding.Wait()
	defer cancel()
	feed := func(lines iter.Seq2[json.RawMessage, int], put func(json.RawMessage, int)) {
		feeding.Go(func() {
			defer recovered.To(s.opts.Log, "follow the log for a stream", func(any) { cancel() })
			for line, dropped := range lines {
				put(line, dropped)
			}
		})
	}
	feed(news, watched.changed)
	if wanted {
		feed(lines, watched.log)
	}
	watched.run(ctx, w)
	return nil, nil
}

// parseWatch reads the parameters of a watch: those of logs, without follow. lines is how many of the past are wanted, and
// without it there are none at all.
func parseWatch(given url.Values) (q Query, wanted bool, err error) {
	if wanted = given.Has("lines"); !wanted {
		if len(given) > 0 {
			return q, false, &Error{Code: CodeBadRequest, Message: "lines is required where lines of the log are selected"}
		}
		return q, false, nil
	}
	given = maps.Clone(given)
	if given.Has("n") || given.Has("follow") {
		return q, false, &Error{Code: CodeBadRequest, Message: "use lines instead of n; a watch always follows"}
	}
	given["n"] = given["lines"]
	delete(given, "lines")
	q, err = parseQuery(given, Query{Follow: true, Last: usualPastLines, Pace: watchPace})
	q.Follow = true
	return q, true, err
}

// watcher is one stream of what is new. Its goroutine is that of the request; two others feed it.
type watcher struct {
	server *Server
	sent   map[string]uint64 // hashes of what was sent of each tool; "" is the rest of the status
	seed   maphash.Seed
	out    bytes.Buffer
	due    bool          // a look at all tools is due
	dry    time.Time     // no lines before it
	wake   chan struct{} // holds a value if there is something to send

	mu    sync.Mutex // guards the fields that follow
	dirty map[string]bool
	all   bool // something that is not about one tool has changed
	pile  pile
}

// changed notes a line of the log that tells of a change.
func (s *watcher) changed(line json.RawMessage, dropped int) {
	var about struct{ Msg, Tool string }
	_ = json.Unmarshal(line, &about) // then it is about no tool
	s.mu.Lock()
	defer s.mu.Unlock()
	if about.Tool == "" || dropped > 0 || about.Msg == "created" {
		s.all = true
	} else {
		s.dirty[about.Tool] = true
	}
	s.wakeLocked()
}

// log keeps a line to send.
func (s *watcher) log(line json.RawMessage, dropped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pile.add(line, dropped)
	s.wakeLocked()
}

// pile are lines that wait to be sent.
type pile struct {
	lines   []json.RawMessage
	bytes   int
	printed int // how many of them tools have printed
	dropped int
}

// add adds a line. Of too many the newest stay, and first of all what tools did not print.
func (p *pile) add(line json.RawMessage, dropped int) {
	p.dropped += dropped
	p.lines = append(p.lines, line)
	p.bytes += len(line)
	if isPrinted(line) {
		p.printed++
	}
	for len(p.lines) > maxWatchLines || p.bytes > maxWatchBytes && len(p.lines) > 1 {
		least := 0
		if p.printed > 0 {
			least = slices.IndexFunc(p.lines, isPrinted)
			p.printed--
		}
		p.bytes -= len(p.lines[least])
		copy(p.lines[1:least+1], p.lines[:least])
		p.lines[0] = nil
		p.lines = p.lines[1:]
		p.dropped++
	}
}

// isPrinted reports whether a line of the log is one that a tool printed.
func isPrinted(line json.RawMessage) bool {
	const head = len(`{"time":"2026-01-02T15:04:05.000000000+00:00","level":"info","msg":"stderr"`)
	return bytes.Contains(line[:min(len(line), head)], []byte(`"msg":"stderr"`))
}

func (s *watcher) wakeLocked() {
	select {
	case s.wake <- struct{}{}:
	default: // it holds one
	}
}

// run sends what is new until ctx ends, or the client is gone or does not read.
func (s *watcher) run(ctx context.Context, w http.ResponseWriter) {
	s.seed = maphash.MakeSeed()
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	looked, took := time.Now(), s.lookAtAll()
	said := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.takeLines()
		if time.Since(said) >= watchAlive {
			s.out.WriteString("event: alive\ndata: {}\n\n")
		}
		if s.out.Len() > 0 {
			_ = control.SetWriteDeadline(time.Now().Add(stallTimeout)) // what net/http gives us can
			if _, err := w.Write(s.out.Bytes()); err != nil || control.Flush() != nil {
				return
			}
			s.out.Reset()
			said = time.Now()
		}
		if !waitFor(ctx, timer, watchPace) {
			return
		}
		rest := restFor*took - time.Since(looked)
		if !s.due {
			rest = max(rest, time.Until(looked.Add(watchTick)))
		}
		if wet := time.Until(s.dry); wet > 0 {
			rest = min(rest, wet)
		}
		timer.Reset(max(rest, 0))
		select {
		case <-s.wake:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		names := s.takeChanged()
		if age := time.Since(looked); age >= restFor*took && (s.due || age >= watchTick) {
			looked, took = time.Now(), s.lookAtAll()
		} else if !s.due { // else it is looked at with all
			s.lookAt(names)
		}
	}
}

// waitFor waits for d. It reports false if ctx ends first.
func waitFor(ctx context.Context, timer *time.Timer, d time.Duration) bool {
	timer.Reset(d)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// takeChanged returns the tools that may have changed. If they are many, or what has changed is not about one tool, a
// look at all is due.
func (s *watcher) takeChanged() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names = slices.Collect(maps.Keys(s.dirty))
	s.due = s.due || s.all || len(names) > fewTools
	clear(s.dirty)
	s.all = false
	return names
}

// lookAtAll writes what is new of all, and returns how long that took.
func (s *watcher) lookAtAll() time.Duration {
	began := time.Now()
	s.due = false
	status := s.server.opts.Backend.Status()
	change := Change{Tools: s.differing(status.Tools)}
	gone := maps.Clone(s.sent)
	delete(gone, "")
	for i := range status.Tools {
		delete(gone, status.Tools[i].Name)
	}
	change.Gone = slices.Sorted(maps.Keys(gone))
	for _, name := range change.Gone {
		delete(s.sent, name)
	}
	status.Tools = []ToolStatus{}
	if s.isNew("", status) {
		change.Status = status
	}
	s.write(&change)
	return time.Since(began)
}

// lookAt writes what is new of some tools.
func (s *watcher) lookAt(names []string) {
	var tools []ToolStatus
	for _, name := range names {
		if t, err := s.server.opts.Backend.Tool(name); err == nil {
			t.Stderr = nil // it is in the log
			tools = append(tools, t)
		} else if _, had := s.sent[name]; had {
			s.due = true // it may be gone
		}
	}
	s.write(&Change{Tools: s.differing(tools)})
}

func (s *watcher) differing(tools []ToolStatus) (list []ToolStatus) {
	for i := range tools {
		if s.isNew(tools[i].Name, tools[i]) {
			list = append(list, tools[i])
		}
	}
	return list
}

// isNew reports whether something differs from what was sent by a name, and notes it.
func (s *watcher) isNew(name string, v any) bool {
	text, err := json.Marshal(v)
	if err != nil { // texts, numbers and times
		panic(err)
	}
	hash := maphash.Bytes(s.seed, text)
	if before, had := s.sent[name]; had && before == hash {
		return false
	}
	s.sent[name] = hash
	return true
}

func (s *watcher) write(change *Change) {
	if change.Status.Version != "" || len(change.Tools)+len(change.Gone) > 0 {
		s.event("change", change)
	}
}

// takeLines writes the lines that came. After too many it waits for floodPace.
func (s *watcher) takeLines() {
	if time.Now().Before(s.dry) {
		return
	}
	batch := s.taken()
	if len(batch.Lines) == 0 {
		return
	}
	if batch.Dropped > 0 {
		s.dry = time.Now().Add(floodPace)
	}
	fmt.Fprintf(&s.out, "event: lines\ndata: {\"dropped\":%d,\"lines\":[", batch.Dropped)
	for i, line := range batch.Lines { // they are JSON; encoding/json would read each of them again
		if i > 0 {
			s.out.WriteByte(',')
		}
		s.out.Write(line)
	}
	s.out.WriteString("]}\n\n")
}

func (s *watcher) taken() LogLines {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := LogLines{Dropped: s.pile.dropped, Lines: s.pile.lines}
	s.pile = pile{}
	return batch
}

func (s *watcher) event(name string, v any) {
	text, err := json.Marshal(v)
	if err != nil { // as in isNew; lines of the log are JSON
		panic(err)
	}
	fmt.Fprintf(&s.out, "event: %s\ndata: %s\n\n", name, text)
}
