package kubetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

type object = map[string]any

// Objects is an API server in memory that has one resource in one namespace. It refuses what is not of the last version,
// as the real one does. Its methods may be called from any goroutine.
type Objects struct {
	mu      sync.Mutex // guards the fields that follow
	all     map[string]object
	version int
	history []change // all changes, the oldest first
	watches map[*watching]bool
	away    bool
	lose    int
	writes  int
}

// change is one change of an object.
type change struct {
	version int
	object  object
	event   []byte // as a watch has it
}

// Away makes the server not answer, and ends all watches; or answer again.
func (o *Objects) Away(away bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.away = away
	for w := range o.watches {
		w.close()
	}
	o.watches = nil
}

// Lose makes the answers of the next n writes get lost, after they were done.
func (o *Objects) Lose(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lose = n
}

// Writes returns how many writes were done.
func (o *Objects) Writes() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writes
}

// All returns copies of the objects by name.
func (o *Objects) All() map[string]map[string]any {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[string]map[string]any{}
	for name, one := range o.all {
		all[name] = clone(one)
	}
	return all
}

// Set puts an object there, as somebody with the right to do that may. Its version and generation grow.
func (o *Objects) Set(name string, spec any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	one := clone(o.all[name])
	one["spec"] = spec
	meta := one["metadata"].(object)                      //nolint:forcetypeassert // put made it
	meta["generation"] = 1 + meta["generation"].(float64) //nolint:forcetypeassert // as above
	o.storeLocked("MODIFIED", name, one)
}

// Delete removes an object.
func (o *Objects) Delete(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.removeLocked(name)
}

func clone(one object) object {
	raw, _ := json.Marshal(one)
	var out object
	_ = json.Unmarshal(raw, &out) // it was made from one
	return out
}

func answer(code int, v any) (*http.Response, error) {
	raw, err := json.Marshal(v)
	return &http.Response{StatusCode: code, Body: io.NopCloser(bytes.NewReader(raw)), Header: http.Header{}}, err
}

func refuse(code int, reason string) (*http.Response, error) {
	return answer(code, object{"kind": "Status", "reason": reason, "message": "refused: " + reason})
}

// RoundTrip implements http.RoundTripper.
func (o *Objects) RoundTrip(r *http.Request) (*http.Response, error) {
	var body object
	if r.Body != nil {
		_ = json.NewDecoder(r.Body).Decode(&body) // there is none
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.away || r.Context().Err() != nil {
		return nil, errors.New("no route to the API server")
	}
	query := r.URL.Query()
	switch {
	case query.Get("watch") == "true":
		return o.watchLocked(r)
	case r.Method == http.MethodGet && query.Has("limit"):
		items := []any{}
		for _, name := range slices.Sorted(maps.Keys(o.all)) {
			if matches(o.all[name], query.Get("labelSelector")) {
				items = append(items, o.all[name])
			}
		}
		return answer(http.StatusOK, object{"items": items, "metadata": object{"resourceVersion": strconv.Itoa(o.version)}})
	}
	resp, err := o.oneLocked(r.Method, path.Base(r.URL.Path), body)
	if r.Method != http.MethodGet && o.lose > 0 {
		o.lose--
		return nil, errors.New("the connection was lost")
	}
	return resp, err
}

// oneLocked reads or writes one object.
func (o *Objects) oneLocked(method, name string, body object) (*http.Response, error) {
	now := o.all[name]
	meta, _ := body["metadata"].(object)
	version := func(one object, key string) any {
		of, _ := one["metadata"].(object)
		return of[key]
	}
	switch method {
	case http.MethodPost:
		name, _ = meta["name"].(string)
		if o.all[name] != nil {
			return refuse(http.StatusConflict, "AlreadyExists")
		}
		meta["uid"], meta["generation"] = fmt.Sprint("uid-", o.version+1), 1
		return answer(http.StatusCreated, o.storeLocked("ADDED", name, body))
	case http.MethodGet, http.MethodPut, http.MethodDelete:
		if now == nil {
			return refuse(http.StatusNotFound, "NotFound")
		}
	}
	switch method {
	case http.MethodPut:
		if meta["resourceVersion"] != version(now, "resourceVersion") || meta["uid"] != version(now, "uid") {
			return refuse(http.StatusConflict, "Conflict")
		}
		generation, _ := version(now, "generation").(float64)
		if !reflect.DeepEqual(body["spec"], now["spec"]) {
			generation++
		}
		meta["generation"] = generation
		return answer(http.StatusOK, o.storeLocked("MODIFIED", name, body))
	case http.MethodDelete:
		wanted, _ := body["preconditions"].(object)
		if wanted["resourceVersion"] != version(now, "resourceVersion") {
			return refuse(http.StatusConflict, "Conflict")
		}
		o.removeLocked(name)
	}
	return answer(http.StatusOK, now)
}

func (o *Objects) storeLocked(event, name string, one object) object {
	if o.all == nil {
		o.all = map[string]object{}
	}
	o.version++
	o.writes++
	one["metadata"].(object)["resourceVersion"] = strconv.Itoa(o.version) //nolint:forcetypeassert // all have it
	o.all[name] = clone(one)
	o.tellLocked(event, o.all[name])
	return o.all[name]
}

func (o *Objects) removeLocked(name string) {
	one := o.all[name]
	o.version++
	o.writes++
	one["metadata"].(object)["resourceVersion"] = strconv.Itoa(o.version) //nolint:forcetypeassert // all have it
	delete(o.all, name)
	o.tellLocked("DELETED", one)
}

func (o *Objects) tellLocked(event string, one object) {
	raw, _ := json.Marshal(object{"type": event, "object": one}) // it was JSON
	o.history = append(o.history, change{o.version, one, raw})
	for w := range o.watches {
		if matches(one, w.labels) {
			w.write(raw)
		}
	}
}

// matches reports whether an object has the labels of a selector: KEY=VALUE, with commas.
func matches(one object, selector string) bool {
	meta, _ := one["metadata"].(object)
	labels, _ := meta["labels"].(object)
	for pair := range strings.SplitSeq(selector, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok && labels[key] != value {
			return false
		}
	}
	return true
}

// watching is the answer to a watch.
type watching struct {
	labels string
	mu     sync.Mutex // guards the fields that follow
	more   chan struct{}
	text   []byte
	over   bool
}

// watchLocked begins a watch: it has what has changed since a version.
func (o *Objects) watchLocked(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	since, err := strconv.Atoi(query.Get("resourceVersion"))
	if err != nil {
		return refuse(http.StatusBadRequest, "BadRequest")
	}
	w := &watching{labels: query.Get("labelSelector"), more: make(chan struct{}, 1)}
	if o.watches == nil {
		o.watches = map[*watching]bool{}
	}
	o.watches[w] = true
	context.AfterFunc(r.Context(), w.close)
	next, _ := slices.BinarySearchFunc(o.history, since+1, func(c change, version int) int { return c.version - version })
	for _, c := range o.history[next:] {
		if matches(c.object, w.labels) {
			w.write(c.event)
		}
	}
	return &http.Response{StatusCode: http.StatusOK, Body: w, Header: http.Header{}}, nil
}

func (w *watching) write(raw []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(append(w.text, raw...), '\n')
	w.wake()
}

func (w *watching) wake() {
	select {
	case w.more <- struct{}{}:
	default:
	}
}

func (w *watching) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.wake()
}

// Close implements io.Closer.
func (w *watching) Close() error {
	w.close()
	return nil
}

// Read implements io.Reader.
func (w *watching) Read(p []byte) (int, error) {
	for {
		w.mu.Lock()
		n := copy(p, w.text)
		w.text = w.text[n:]
		over := w.over
		w.mu.Unlock()
		switch {
		case n > 0:
			return n, nil
		case over:
			return 0, io.EOF
		}
		<-w.more
	}
}
