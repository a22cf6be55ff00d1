package objects_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/cluster/objects"
	"github.com/orla-project/orla/internal/testing/kubetest"
	"github.com/orla-project/orla/internal/testing/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// server is an API server in memory that has one resource.
type server struct {
	mu      sync.Mutex // guards the fields that follow
	objects map[string]map[string]any
	version int
	oldest  int              // a watch from before it is 410
	watches []*io.PipeWriter // the open ones
	away    bool
	lists   int
	refuse  int // a code for all lists; 0 for none
}

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(code int, v any) (*http.Response, error) {
		raw, err := json.Marshal(v)
		return &http.Response{StatusCode: code, Body: io.NopCloser(bytes.NewReader(raw)), Header: http.Header{}}, err
	}
	query := r.URL.Query()
	switch {
	case s.away:
		return nil, errors.New("no route to the API server")
	case query.Get("watch") == "true":
		if since, err := strconv.Atoi(query.Get("resourceVersion")); err != nil || since < s.oldest {
			return answer(http.StatusGone, map[string]any{"kind": "Status", "reason": "Expired", "message": "too old resource version"})
		}
		out, in := io.Pipe()
		s.watches = append(s.watches, in)
		return &http.Response{StatusCode: http.StatusOK, Body: out, Header: http.Header{}}, nil
	case s.refuse != 0:
		return answer(s.refuse, map[string]any{"kind": "Status", "reason": "Forbidden", "message": "no"})
	}
	s.lists++
	first, _ := strconv.Atoi(query.Get("continue"))
	size, _ := strconv.Atoi(query.Get("limit"))
	items := []any{}
	for i := first; i < min(first+size, len(s.objects)); i++ {
		items = append(items, s.objects[fmt.Sprint("o", i)])
	}
	more := ""
	if first+size < len(s.objects) {
		more = strconv.Itoa(first + size)
	}
	return answer(http.StatusOK, map[string]any{"kind": "ToolList", "items": items, "metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version), "continue": more}})
}

// set writes an object, and tells the watches.
func (s *server) set(name string, spec, status any) {
	s.mu.Lock()
	s.version++
	kind := "MODIFIED"
	if s.objects[name] == nil {
		kind = "ADDED"
	}
	object := map[string]any{
		"apiVersion": "orloj.dev/v1", "kind": "Tool", "spec": spec, "status": status,
		"metadata": map[string]any{"name": name, "namespace": "tools", "uid": "u-" + name, "generation": 1, "resourceVersion": strconv.Itoa(s.version), "managedFields": []any{"x"}},
	}
	s.objects[name] = object
	s.mu.Unlock()
	s.tell(map[string]any{"type": kind, "object": object})
}

func (s *server) tell(event any) {
	s.mu.Lock()
	open := s.watches
	s.mu.Unlock()
	raw, _ := json.Marshal(event)
	for _, w := range open {
		_, _ = w.Write(append(raw, '\n')) // one that is closed gets none
	}
}

// pages counts the pages of lists.
func (s *server) pages() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}

// cut ends all watches.
func (s *server) cut(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		_ = w.Close()
	}
	s.watches, s.away = nil, away
}

// run serves Objects until the test ends.
func (s *server) run(t *testing.T) (o *objects.Objects, changed chan struct{}, log *bytes.Buffer) {
	t.Helper()
	return s.runKeeping(t, nil)
}

// runKeeping is run, with Options.Keep.
func (s *server) runKeeping(t *testing.T, keep func(*objects.Object) any) (o *objects.Objects, changed chan struct{}, log *bytes.Buffer) {
	t.Helper()
	if s.objects == nil {
		s.objects = map[string]map[string]any{}
	}
	s.version = max(s.version, 1)
	changed, log = make(chan struct{}, 1), &bytes.Buffer{}
	o = objects.New(objects.Options{
		Client: kubetest.Client(t, s), Of: kubeapi.Resource{Group: "orloj.dev", Version: "v1", Name: "tools"}, Namespace: "tools",
		Changed: changed, Note: true, Keep: keep, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { o.Serve(ctx) })
	t.Cleanup(func() { cancel(); s.cut(true); serving.Wait() })
	synctest.Wait()
	return o, changed, log
}

// names are those of all objects, or why they are not known.
func names(o *objects.Objects) string {
	all, err := o.All()
	if err != nil {
		return err.Error()
	}
	var list []string
	for _, one := range all {
		list = append(list, one.Name)
	}
	return strings.Join(list, " ")
}

func has(changed chan struct{}) bool {
	synctest.Wait()
	select {
	case <-changed:
		return true
	default:
		return false
	}
}

// SPEC P2, S2: what is kept in place of a document is asked for when the document is another one, and stays when the status
// changes or all is listed again.
func TestP2WhatIsKeptInPlaceOfADocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{objects: map[string]map[string]any{}}
		for i := range 150 {
			s.set(fmt.Sprint("o", i), map[string]any{"n": i}, nil)
		}
		asked := 0
		o, _, _ := s.runKeeping(t, func(one *objects.Object) any {
			asked++
			return string(one.Document)
		})
		want := func(asks int, n string) {
			t.Helper()
			synctest.Wait()
			one := o.Latest("o7")
			if kept, _ := one.Kept.(string); asked != asks || one.Document != nil || !strings.Contains(kept, `"n":`+n+"}") {
				t.Errorf("asked %d times, want %d; %q, %q", asked, asks, one.Document, one.Kept)
			}
		}
		want(150, "7")
		s.set("o7", map[string]any{"n": 7}, map[string]any{"conditions": []any{}})
		want(150, "7")
		if got := string(o.Latest("o7").Status); got != `{"conditions":[]}` {
			t.Errorf("status %s", got)
		}
		s.set("o7", map[string]any{"n": 8}, nil)
		want(151, "8")
		s.mu.Lock()
		s.oldest = s.version + 1 // so that the next watch is refused
		s.mu.Unlock()
		s.cut(false)
		time.Sleep(time.Minute)
		s.mu.Lock()
		s.oldest = 0
		s.mu.Unlock()
		time.Sleep(time.Minute)
		if s.pages() < 4 {
			t.Errorf("%d pages", s.pages())
		}
		want(151, "8")
	})
}

// SPEC P2: objects are listed in pages and then followed. A change of the status alone is none.
func TestP2ListedAndFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{objects: map[string]map[string]any{}}
		for i := range 250 {
			s.set(fmt.Sprint("o", i), map[string]any{"n": i}, nil)
		}
		o, changed, _ := s.run(t)
		if all, err := o.All(); err != nil || len(all) != 250 || s.pages() != 3 {
			t.Fatalf("%d objects, %v, from %d pages", len(all), err, s.pages())
		}
		if !has(changed) {
			t.Error("nobody was told of the first list")
		}
		s.set("o0", map[string]any{"n": 0}, map[string]any{"conditions": "x"})
		if has(changed) {
			t.Error("a change of the status counts")
		}
		s.set("o0", map[string]any{"n": "new"}, nil)
		if !has(changed) {
			t.Error("a change of the spec does not count")
		}
		all, _ := o.All()
		if got, want := string(all[0].Document), `{"apiVersion":"orloj.dev/v1","kind":"Tool","metadata":{"name":"o0","namespace":"tools"},"spec":{"n":"new"}}`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		s.mu.Lock()
		gone := s.objects["o1"]
		s.mu.Unlock()
		s.tell(map[string]any{"type": "DELETED", "object": gone})
		if !has(changed) || strings.Contains(names(o)+" ", "o1 ") {
			t.Errorf("after a deletion: %s", names(o))
		}
	})
}

// SPEC S1, P2: of what has changed, only that is looked at: also of a list that is made again.
func TestS1OnlyWhatHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{objects: map[string]map[string]any{}}
		for i := range 250 {
			s.set(fmt.Sprint("o", i), map[string]any{"n": i}, nil)
		}
		o, _, _ := s.run(t)
		if first, gone, err := o.Changes(); len(first) != 250 || len(gone) != 0 || err != nil {
			t.Errorf("first: %d objects, %q, %v", len(first), gone, err)
		}
		changes := func() string {
			synctest.Wait()
			changed, gone, err := o.Changes()
			if err != nil {
				t.Error(err)
			}
			var list []string
			for _, one := range changed {
				list = append(list, one.Name)
			}
			return fmt.Sprint(list, gone)
		}
		if got := changes(); got != "[] []" {
			t.Errorf("nothing has changed: %s", got)
		}
		s.set("o7", map[string]any{"n": "new"}, nil)
		s.set("o300", nil, nil)
		s.set("o7", map[string]any{"n": "newer"}, nil)
		if got := changes(); got != "[o300 o7] []" {
			t.Errorf("after two changes: %s", got)
		}
		s.mu.Lock()
		gone := s.objects["o300"]
		delete(s.objects, "o300")
		s.mu.Unlock()
		s.tell(map[string]any{"type": "DELETED", "object": gone})
		if got := changes(); got != "[] [o300]" {
			t.Errorf("after a removal: %s", got)
		}
		s.cut(true)
		s.set("o8", map[string]any{"n": "new"}, nil)
		s.mu.Lock()
		delete(s.objects, "o249")
		s.version++
		s.away, s.oldest = false, s.version // what was between is forgotten
		s.mu.Unlock()
		time.Sleep(2 * time.Minute)
		if got := changes(); got != "[o8] [o249]" {
			t.Errorf("after another list: %s", got)
		}
	})
}

// SPEC P2: an API server that is away for an hour takes nothing away, and is in the log once. What was missed is listed.
func TestP2AnAPIServerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		o, changed, log := s.run(t)
		s.set("o0", nil, nil)
		has(changed)
		s.cut(true)
		time.Sleep(time.Hour)
		if got := names(o); got != "o0" {
			t.Errorf("known: %q", got)
		}
		s.set("o1", nil, nil)
		s.set("o2", nil, nil)
		s.mu.Lock()
		s.away, s.oldest = false, s.version // what was between is forgotten
		s.mu.Unlock()
		time.Sleep(2 * time.Minute)
		if got := names(o); got != "o0 o1 o2" || !has(changed) {
			t.Errorf("known: %q", got)
		}
		if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "can be asked for its resources again") {
			t.Errorf("the log:\n%s", log)
		}
	})
}

// SPEC P2: a watch goes on from a bookmark, and an expired version is listed again, also if a watch says so itself.
func TestP2BookmarksAndExpiredVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		o, changed, log := s.run(t)
		has(changed)
		s.tell(map[string]any{"type": "BOOKMARK", "object": map[string]any{"metadata": map[string]any{"resourceVersion": "70"}}})
		s.mu.Lock()
		s.version, s.oldest = 80, 70
		s.mu.Unlock()
		s.cut(false)
		time.Sleep(time.Minute)
		if s.pages() != 1 {
			t.Errorf("%d lists; want that the watch goes on from the bookmark", s.pages())
		}
		s.tell(map[string]any{"type": "ERROR", "object": map[string]any{"kind": "Status", "code": 410}})
		time.Sleep(time.Minute)
		if s.pages() != 2 || has(changed) {
			t.Errorf("%d lists after an expired version, or the same list is a change", s.pages())
		}
		s.set("o0", nil, nil)
		synctest.Wait()
		if got := names(o); got != "o0" || log.Len() > 0 {
			t.Errorf("known: %q; the log:\n%s", got, log)
		}
	})
}

// SPEC P2: objects that cannot be listed are not taken to be none, and the reason says what to do.
func TestP2RefusedLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{refuse: http.StatusForbidden}
		o, _, _ := s.run(t)
		if got := names(o); !strings.Contains(got, "list and watch tools in the namespace tools") {
			t.Errorf("said: %s", got)
		}
		select {
		case <-o.Ready():
			t.Error("they are ready")
		default:
		}
		s.mu.Lock()
		s.refuse = 0
		s.mu.Unlock()
		time.Sleep(time.Minute)
		if got := names(o); got != "" {
			t.Errorf("known: %q", got)
		}
	})
}

// SPEC P2: an object that is too large has a fault, and the next version may be read again.
func TestP2LargeObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		o, _, _ := s.run(t)
		s.set("o0", map[string]any{"description": strings.Repeat("x", 1<<20)}, nil)
		synctest.Wait()
		if all, _ := o.All(); all[0].Document != nil || !strings.Contains(all[0].Fault.Error(), "bytes") {
			t.Errorf("%+v", all[0].Fault)
		}
		s.set("o0", map[string]any{}, nil)
		synctest.Wait()
		if all, _ := o.All(); all[0].Document == nil || all[0].Fault != nil {
			t.Errorf("%+v", all[0])
		}
	})
}
