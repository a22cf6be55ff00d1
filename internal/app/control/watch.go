package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/app/control/looks"
	"github.com/orla-project/orla/internal/call/recovered"
)

// How a watch is paced, and what it sends at once.
const (
	watchPace  = 100 * time.Millisecond
	watchTick  = 2 * time.Second // for numbers that no line of the log tells of
	watchAlive = 15 * time.Second
	floodPace  = 250 * time.Millisecond // between two times at which lines go out, if there are too many of them
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
	watched := watcher{reader: s.looks.Read(), dirty: map[string]bool{}, wake: make(chan struct{}, 1)}
	defer watched.reader.Close()
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

// tools are the tools of a Backend, for all streams.
type tools struct{ Backend }

// All implements looks.Source.
func (t tools) All(each func(string, any)) (rest any) {
	status := t.Status()
	for i := range status.Tools {
		each(status.Tools[i].Name, &status.Tools[i])
	}
	status.Tools = []ToolStatus{}
	return &status
}

// One implements looks.Source.
func (t tools) One(name string) (any, bool) {
	tool, err := t.Tool(name)
	tool.Stderr = nil // it is in the log
	return &tool, err == nil
}

// watcher is one stream of what is new. Its goroutine is that of the request; two others feed it.
type watcher struct {
	reader *looks.Reader
	out    *looks.Stream
	due    time.Time     // a look at all tools is due that begins not before it; zero for none
	early  time.Time     // before it there is no such look
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
	s.out = looks.NewStream(w, stallTimeout)
	s.due = time.Now()
	s.lookAtAll(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.takeLines()
		if time.Since(s.out.Wrote()) >= watchAlive {
			s.out.WriteString("event: alive\ndata: {}\n\n")
		}
		if !s.out.Flush() || !waitFor(ctx, timer, watchPace) {
			return
		}
		timer.Reset(max(time.Until(s.next()), 0))
		select {
		case <-s.wake:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		names := s.takeChanged()
		if s.due.IsZero() {
			s.lookAt(names) // else they are looked at with all
		}
		if !time.Now().Before(s.nextLook()) {
			s.lookAtAll(ctx)
		}
	}
}

// next is when there is something to do, if nothing happens.
func (s *watcher) next() time.Time {
	at := s.nextLook()
	if s.dry.After(time.Now()) && s.dry.Before(at) {
		return s.dry
	}
	return at
}

// nextLook is when to look at all tools.
func (s *watcher) nextLook() time.Time {
	if tick := s.reader.Looked().Add(watchTick); s.due.IsZero() && tick.After(s.early) {
		return tick
	}
	return s.early
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
	if s.all || len(names) > fewTools || len(names) > 0 && !s.due.IsZero() {
		s.due = time.Now()
	}
	clear(s.dirty)
	s.all = false
	return names
}

// lookAtAll writes what is new of all. Another stream may have looked before something changed of which this one knows: then it
// looks again as soon as it may.
func (s *watcher) lookAtAll(ctx context.Context) {
	news, again := s.reader.All(ctx)
	s.early = again
	if again.IsZero() && !s.reader.Looked().Before(s.due) {
		s.due = time.Time{}
	}
	s.out.Change(news)
}

// lookAt writes what is new of some tools.
func (s *watcher) lookAt(names []string) {
	news, missing := s.reader.Single(names)
	if missing {
		s.due = time.Now()
	}
	s.out.Change(news)
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
	fmt.Fprintf(s.out, "event: lines\ndata: {\"dropped\":%d,\"lines\":[", batch.Dropped)
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
