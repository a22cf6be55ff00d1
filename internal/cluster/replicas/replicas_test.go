package replicas

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/testing/leaks"
	"github.com/orla-project/orla/internal/testing/testkit"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// newReplica returns a replica that knows no API server.
func newReplica(t *testing.T, pod string) *Replicas {
	t.Helper()
	r, err := New(Options{Pod: pod, Client: unreachable(t), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.transport.CloseIdleConnections)
	return r
}

// unreachable is a client of an API server that is away.
func unreachable(t *testing.T) *kubeapi.Client { return clientOf(t, away{}) }

// clientOf is a client of an API server that answers so.
func clientOf(t *testing.T, api http.RoundTripper) *kubeapi.Client {
	t.Helper()
	config, err := kubeapi.Load(writeConfig(t), "")
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubeapi.New(config, "test", func(http.RoundTripper) http.RoundTripper { return api })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type away struct{}

func (away) RoundTrip(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

// meet makes replicas know each other, as if the API server had said so at a time.
func meet(at time.Time, to *Replicas, others ...*record) {
	to.mu.Lock()
	defer to.mu.Unlock()
	for _, l := range others {
		to.leases[l.Metadata.Name] = &seen{record: *l, at: at}
	}
	to.heardLocked(at)
}

// hear makes a replica hear from the API server for longer than a Lease lasts, and returns when that was over.
func hear(from time.Time, r *Replicas) time.Time {
	const step = silence - time.Second
	for until := from.Add(lasts + step); from.Before(until); {
		from = from.Add(step)
		meet(from, r)
	}
	return from
}

// there is the Lease of a replica that lives.
func there(name string, created time.Time) *record {
	l := &record{}
	l.Metadata.Name, l.Metadata.Created, l.Metadata.Version = leaseOf(name), created, "1"
	l.Metadata.Annotations = map[string]string{noteDigest: "of " + name, noteAddress: "127.0.0.1:1", noteServes: created.Format(time.RFC3339Nano)}
	l.Spec.Holder, l.Spec.Seconds, l.Spec.Renewed = name, int64(lasts.Seconds()), created
	return l
}

// SPEC P4: a replica is gone when the API server was heard for longer than its Lease lasts and the Lease did not change; not
// when the API server is away.
func TestP4WhoIsGone(t *testing.T) {
	r := newReplica(t, "a")
	now := time.Now()
	meet(now, r, there("b", now))
	if !r.Lives("b") || r.Lives("c") {
		t.Error("b is there, and c is not")
	}
	r.mu.Lock()
	r.leases[leaseOf("b")].at = now.Add(-time.Hour) // and nothing was heard since
	r.contact = now.Add(-time.Hour)
	r.mu.Unlock()
	if !r.Lives("b") {
		t.Error("without the API server nobody is gone")
	}
	meet(now, r)
	if !r.Lives("b") {
		t.Error("b is gone, though it could not renew its Lease while the API server was away")
	}
	now = hear(now, r)
	if r.Lives("b") {
		t.Error("b was not renewed for as long as its Lease lasts, and lives")
	}
	forever := there("e", now)
	forever.Spec.Seconds = 1<<31 - 1
	meet(now, r, forever)
	for until := now.Add(longest + lasts); now.Before(until); {
		now = hear(now, r)
	}
	if r.Lives("e") {
		t.Error("e was not renewed for long, and lives since its Lease says so")
	}
	left := there("d", now)
	left.Metadata.Annotations[noteLeaves] = now.UTC().Format(time.RFC3339)
	meet(now, r, left)
	if r.Lives("d") || !r.Reaches("d") {
		t.Error("d stops: it has no sessions any more, and still answers")
	}
	r.suspect("d")
	if r.Reaches("d") {
		t.Error("d could not be reached just now")
	}
}

// SPEC P4: the Lease of a replica that has been gone for a day is removed, unless a replica goes on with its sessions: that one
// renews what is known of it.
func TestP4WhoIsForgotten(t *testing.T) {
	r := newReplica(t, "a")
	now := time.Now()
	meet(now, r, there("used", now), there("unused", now))
	r.KeepUsed(func(name string) bool { return name == "used" })
	at := func(after time.Duration) (old, used string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.contact = now.Add(after)
		return r.outdatedLocked()
	}
	for after, want := range map[time.Duration][2]string{
		time.Second: {}, time.Hour: {},
		remembered - time.Hour: {"", leaseOf("used")},
		remembered + time.Hour: {leaseOf("unused"), leaseOf("used")},
	} {
		if old, used := at(after); old != want[0] || used != want[1] {
			t.Errorf("after %s: %q is removed, and %q renewed", after, old, used)
		}
	}
}

// SPEC P4: a replica that is not ready yet goes on with nothing of others. It has what it has begun itself.
func TestP4WhoIsNotReadyGoesOnWithNothing(t *testing.T) {
	r := newReplica(t, "a")
	now := time.Now()
	starts := there("b", now)
	delete(starts.Metadata.Annotations, noteServes)
	own := there(r.self, now)
	meet(now, r, starts, own)
	if !r.Lives("b") || !r.Reaches("b") {
		t.Error("b starts: it has the sessions that it has begun, and can be asked")
	}
	for n := range 50 {
		if heir := r.Heir("gone", strconv.Itoa(n)); heir != r.self {
			t.Fatalf("the heir is %q", heir)
		}
	}
	delete(own.Metadata.Annotations, noteServes)
	meet(now, r, own)
	if heir := r.Heir("gone", "x"); heir != "" {
		t.Errorf("no replica is ready, and the heir is %q", heir)
	}
}

// SPEC P4: the second port is for replicas: a certificate that is in no Lease, and none at all, get nothing; and a replica
// connects to the one that it means, and to no other program at its address.
func TestP4OnlyReplicasAtTheSecondPort(t *testing.T) {
	a, b := newReplica(t, "a"), newReplica(t, "b")
	on, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	end := b.Listen(on, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Header.Get("Orla-Caller")) }))
	defer end(context.Background())
	lease := func(r *Replicas) *record {
		l := there(r.self, time.Now())
		l.Metadata.Annotations[noteAddress], l.Metadata.Annotations[noteDigest] = on.Addr().String(), r.digest
		return l
	}
	get := func(from *Replicas) (int, string, error) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+b.self+"/x", nil)
		req.Header.Set("Orla-Caller", "me")
		resp, err := from.transport.RoundTrip(req)
		if err != nil {
			return 0, "", err
		}
		defer func() { _ = resp.Body.Close() }()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body), nil
	}
	meet(time.Now(), a, lease(b))
	if status, body, err := get(a); err != nil || status != http.StatusForbidden || strings.Contains(body, "me") {
		t.Errorf("an unknown replica: %d %s %v", status, body, err)
	}
	meet(time.Now(), b, lease(a))
	if status, body, err := get(a); err != nil || status != http.StatusOK || body != "me" {
		t.Errorf("a replica: %d %s %v", status, body, err)
	}
	plain := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // that is the test
	defer plain.CloseIdleConnections()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+on.Addr().String()+"/x", nil)
	if resp, err := plain.RoundTrip(req); err == nil {
		t.Errorf("without a certificate: %s", resp.Status)
		_ = resp.Body.Close()
	}
	a.transport.CloseIdleConnections()
	wrong := lease(b)
	wrong.Metadata.Annotations[noteDigest] = a.digest
	meet(time.Now(), a, wrong)
	if _, _, err := get(a); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("another program at the address: %v", err)
	}
}

// SPEC N2: who only connects to the second port, or has a certificate that is in no Lease, takes a bounded number of descriptors, and
// none of a replica.
func TestN2StrangersAtTheSecondPort(t *testing.T) {
	a, b := newReplica(t, "a"), newReplica(t, "b")
	on, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	end := b.Listen(on, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RemoteAddr) }))
	defer end(context.Background())
	for _, r := range []*Replicas{a, b} {
		other := there(r.self, time.Now())
		other.Metadata.Annotations[noteAddress], other.Metadata.Annotations[noteDigest] = on.Addr().String(), r.digest
		meet(time.Now(), map[*Replicas]*Replicas{a: b, b: a}[r], other)
	}
	ask := func() string {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+b.self+"/x", nil)
		resp, err := a.transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, _ := io.ReadAll(resp.Body)
		return string(body)
	}
	from := ask()
	var all []net.Conn
	for range maxStrangers + 10 {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", on.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		all = append(all, c)
	}
	for i, c := range all {
		if i < 10 {
			_ = c.SetReadDeadline(time.Now().Add(headTime / 2)) // after all of it, each is closed
			if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("the oldest connection stays: %v", err)
			}
			continue
		}
		_ = c.SetReadDeadline(time.Unix(1, 0))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d is closed: %v", i, err)
		}
	}
	if again := ask(); again != from {
		t.Errorf("the connection of a replica was closed: %s and %s", from, again)
	}
}

// SPEC P4: requests of sessions whose replica is gone for good, and of strangers, cost the API server one request each, not
// one for each of them. While it does not answer, they do not wait for it one after the other.
func TestP4WhatIsUnknownIsLookedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &lister{}
		r := newReplica(t, "a")
		r.opts.Client = clientOf(t, api)
		for range 100 {
			if r.Known(t.Context(), "gone") || r.Known(t.Context(), "") || r.knows(t.Context(), "strange") {
				t.Fatal("it is known")
			}
		}
		if got := api.asked.Load(); got != 2 {
			t.Errorf("%d requests; want 2", got)
		}
		if !r.Forgotten("gone") || r.Forgotten("other") {
			t.Error("nobody remembers one that was looked for, and the other was not")
		}
		meet(time.Now(), r, there("gone", time.Now()))
		if !r.Known(t.Context(), "gone") || r.Forgotten("gone") {
			t.Error("one that comes later is not known")
		}
		api.away.Store(true)
		for n := range 100 {
			r.Known(t.Context(), strconv.Itoa(n))
		}
		if got := api.asked.Load(); got != 3 {
			t.Errorf("%d requests with an API server that does not answer; want 1", got-2)
		}
		api.away.Store(false)
		time.Sleep(lasts)
		r.Known(t.Context(), "1")
		if got := api.asked.Load(); got != 4 {
			t.Error("it is not asked again")
		}
	})
}

// SPEC P4, N2: certificates of strangers make one request in a second, and change nothing for replicas that nobody remembers.
func TestP4StrangersAreLookedForSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &lister{}
		r := newReplica(t, "a")
		r.opts.Client = clientOf(t, api)
		if r.Known(t.Context(), "gone") || !r.Forgotten("gone") {
			t.Fatal("somebody remembers it")
		}
		before := api.asked.Load()
		for n := range 2 * maxVain {
			if n%(maxVain/5) == 0 {
				time.Sleep(digestPause)
			}
			r.knows(t.Context(), strconv.Itoa(n))
		}
		if got := api.asked.Load() - before; got != 10 {
			t.Errorf("%d requests in 10 seconds, want 10", got)
		}
		r.held.digests.mu.Lock() // one is being looked for
		defer r.held.digests.mu.Unlock()
		if !r.Forgotten("gone") {
			t.Error("a replica that was forgotten is not, since strangers came")
		}
	})
}

// SPEC P4: several requests for a replica that is new here, at the same moment, all find it, also while it starts: one that does
// not would have another replica go on with a session that lives.
func TestP4ANewReplicaIsFoundByAllWhoAskAtOnce(t *testing.T) {
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	r := newReplica(t, "a")
	r.opts.Client = clientOf(t, listing(func() string {
		asked <- struct{}{}
		<-answer
		return `{"metadata":{"resourceVersion":"2"},"items":[{"metadata":{"name":"` + leaseOf("b") + `","resourceVersion":"1","annotations":{"` +
			noteAddress + `":"127.0.0.1:1","` + noteDigest + `":"of b"}},"spec":{"holderIdentity":"b","leaseDurationSeconds":10}}]}`
	}))
	var begun, ended sync.WaitGroup
	ask := func() {
		if !r.Known(t.Context(), "b") || !r.Lives("b") {
			t.Error("a replica that has a Lease is not known, or does not live")
		}
	}
	ended.Go(ask)
	<-asked
	for range 5 {
		begun.Add(1)
		ended.Go(func() {
			begun.Done()
			ask()
		})
	}
	begun.Wait()
	close(answer)
	ended.Wait()
}

// listing answers each request with a list.
type listing func() string

func (l listing) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(l()))}, nil
}

// lister answers each request with a list of nothing.
type lister struct {
	asked atomic.Int64
	away  atomic.Bool
}

func (l *lister) RoundTrip(*http.Request) (*http.Response, error) {
	l.asked.Add(1)
	if l.away.Load() {
		return nil, io.ErrUnexpectedEOF
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(`{"metadata":{"resourceVersion":"1"},"items":[]}`)),
	}, nil
}

// SPEC P4: what is sealed is opened by every replica with the key, and nothing else is.
func TestP4Box(t *testing.T) {
	key := make([]byte, keySize)
	one, err := NewBox(key)
	if err != nil {
		t.Fatal(err)
	}
	two, _ := NewBox(append([]byte{}, key...))
	sealed := one.Seal([]byte("text"))
	if text, ok := two.Open(sealed); !ok || string(text) != "text" {
		t.Errorf("%q %v", text, ok)
	}
	if one.Seal([]byte("text")) == sealed {
		t.Error("the same text gives the same id")
	}
	if one.Key("a") == one.Key("b") || one.Key("a") != two.Key("a") {
		t.Error("keys for other purposes")
	}
	key[0] = 1
	other, _ := NewBox(key)
	for _, bad := range []string{"", "x", sealed[1:], sealed + "A", strings.ToLower(sealed)} {
		if _, ok := one.Open(bad); ok {
			t.Errorf("%q is opened", bad)
		}
	}
	if _, ok := other.Open(sealed); ok {
		t.Error("another key opens it")
	}
}

// The watch may be behind what this replica has written itself: what is older does not count.
func TestP3AnOlderVersionDoesNotCount(t *testing.T) {
	r := newReplica(t, "a")
	newer := there("b", time.Now())
	newer.Metadata.Version = "10"
	older := *newer
	older.Metadata.Version, older.Spec.Holder = "9", ""
	r.note(false, *newer)
	r.note(false, older)
	r.note(true, older)
	if !r.Lives("b") {
		t.Error("an older version counts")
	}
}

// frozen is a replica that takes connections, and answers nothing.
func frozen(t *testing.T) (r *Replicas, at *record) {
	t.Helper()
	r = newReplica(t, "frozen")
	on, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	end := r.Listen(on, http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }))
	t.Cleanup(func() { end(context.Background()) })
	at = there(r.self, time.Now())
	at.Metadata.Annotations[noteAddress], at.Metadata.Annotations[noteDigest] = on.Addr().String(), r.digest
	return r, at
}

// outdated makes a replica know that a Lease was not renewed for as long as it lasts.
func outdated(r *Replicas, l *record) {
	from := time.Now().Add(-2 * lasts)
	meet(from, r, l)
	hear(from, r)
	meet(time.Now(), r)
}

// SPEC P4: a request that was passed on ends with the replica that answers it, also if that one is frozen and does not
// close the connection.
func TestP4ARequestEndsWithAFrozenReplica(t *testing.T) {
	a := newReplica(t, "a")
	other, l := frozen(t)
	meet(time.Now(), a, l)
	own := there(a.self, time.Now())
	own.Metadata.Annotations[noteDigest] = a.digest
	meet(time.Now(), other, own)
	answer := httptest.NewRecorder()
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/mcp", nil)
		a.Pass(answer, q, Passing{To: other.self, Sign: func(http.Header) {}, Again: http.NotFoundHandler()})
	}()
	select {
	case <-passed:
		t.Fatalf("it was answered with %d", answer.Code)
	case <-time.After(100 * time.Millisecond):
	}
	outdated(a, l)
	select {
	case <-passed:
	case <-time.After(testkit.Patience):
		t.Fatal("the request waits for a replica that is gone")
	}
	if answer.Code != http.StatusBadGateway || answer.Header().Get("Retry-After") == "" {
		t.Errorf("%d %v", answer.Code, answer.Header())
	}
}

// SPEC H4, P4: a replica that stops waits for the calls that it has passed on, and sends their clients elsewhere for the next.
func TestH4CallsThatWerePassedOnAreAwaited(t *testing.T) {
	a, b := newReplica(t, "a"), newReplica(t, "b")
	on, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked, streams := make(chan chan<- struct{}), make(chan struct{})
	end := b.Listen(on, http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/call" {
			answered := make(chan struct{})
			asked <- answered
			<-answered
			return
		}
		streams <- struct{}{}
		<-q.Context().Done()
	}))
	t.Cleanup(func() { end(context.Background()) })
	at, own := there(b.self, time.Now()), there(a.self, time.Now())
	at.Metadata.Annotations[noteAddress], at.Metadata.Annotations[noteDigest] = on.Addr().String(), b.digest
	own.Metadata.Annotations[noteDigest] = a.digest
	meet(time.Now(), a, at)
	meet(time.Now(), b, own)
	pass := func(method, path string) <-chan http.Header {
		ended := make(chan http.Header, 1)
		go func() {
			answer := httptest.NewRecorder()
			a.Pass(answer, httptest.NewRequestWithContext(t.Context(), method, path, nil), Passing{To: b.self, Sign: func(http.Header) {}, Stream: path == "/stream", Again: http.NotFoundHandler()})
			ended <- answer.Header()
		}()
		return ended
	}
	for method, path := range map[string]string{http.MethodGet: "/", http.MethodPost: "/stream"} {
		pass(method, path) // nobody waits for it
		<-streams
	}
	ended := []<-chan http.Header{pass(http.MethodPost, "/call")}
	answer := []chan<- struct{}{<-asked}
	a.mu.Lock()
	a.leaving = true
	a.mu.Unlock()
	ended, answer = append(ended, pass(http.MethodPost, "/call")), append(answer, <-asked)
	over := make(chan struct{})
	go func() {
		defer close(over)
		a.AwaitPassed(t.Context())
	}()
	for i, connection := range []string{"", "close"} {
		select {
		case <-over:
			t.Fatalf("%d of 2 calls were awaited", i)
		case answer[i] <- struct{}{}:
		}
		if got := (<-ended[i]).Get("Connection"); got != connection {
			t.Errorf("Connection: %q", got)
		}
	}
	select {
	case <-over:
	case <-time.After(testkit.Patience):
		t.Fatal("the wait has no end")
	}
}

// SPEC P3: a capsule has moved when another replica has its Lease, or the holder is gone; not when the API server is away.
func TestP3WhenACapsuleHasMoved(t *testing.T) {
	r := newReplica(t, "a")
	holder := there("b", time.Now())
	l := &record{}
	l.Metadata.Name, l.Metadata.Version, l.Spec.Holder = r.leaseOfCapsule("box"), "1", "b"
	meet(time.Now(), r, holder, l)
	stays, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if r.Moved(stays, "box", "b") {
		t.Error("it has not moved")
	}
	bounded, end := context.WithTimeout(t.Context(), testkit.Patience)
	defer end()
	moved := make(chan bool)
	go func() { moved <- r.Moved(bounded, "box", "b") }()
	outdated(r, holder)
	if !<-moved {
		t.Error("the holder is gone")
	}
	next := *l
	next.Metadata.Version, next.Spec.Holder = "2", "c"
	meet(time.Now(), r, holder, there("c", time.Now()), &next)
	if !r.Moved(bounded, "box", "b") || r.Moved(stays, "box", "c") {
		t.Error("c holds it")
	}
}
