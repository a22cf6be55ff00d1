package mcpbridge_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// listener is the connection of a client that takes a while for each notification of a change.
type listener struct {
	*httptest.ResponseRecorder
	takes time.Duration
	now   *atomic.Int32 // how many are taking a message
	most  *atomic.Int32
	heard atomic.Int32
	begun chan struct{} // receives once when it listens
}

func (l *listener) Write(p []byte) (int, error) {
	switch {
	case bytes.Contains(p, []byte("subscriptions/acknowledged")):
		l.begun <- struct{}{}
	case bytes.Contains(p, []byte("list_changed")):
		l.most.Store(max(l.most.Load(), l.now.Add(1)))
		time.Sleep(l.takes) // of the bubble
		l.now.Add(-1)
		l.heard.Add(1)
	}
	return len(p), nil
}

// SPEC N2: the streams of one caller are told of a change one after another, whatever the
// change is, and each once; those of another caller do not wait for them, and one that does
// not read delays the others by a moment.
func TestN2StreamsAreToldInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, each = 100, 2 * time.Millisecond
		w := newWorld(t)
		h := httpfront.New(w.bridge, httpfront.Settings{Verify: tokens})
		setLimits(h, time.Hour, time.Hour, 24*time.Hour)
		ctx, hangUp := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer hangUp()
		open := func(caller string, takes time.Duration, now, most *atomic.Int32) *listener {
			l := &listener{ResponseRecorder: httptest.NewRecorder(), takes: takes, now: now, most: most, begun: make(chan struct{}, 1)}
			body, headers := newEra("subscriptions/listen", "", `"notifications":{"toolsListChanged":true}`)
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			headers = append(headers, bearer(caller)...)
			for i := 0; i < len(headers); i += 2 {
				r.Header.Set(headers[i], headers[i+1])
			}
			all.Go(func() { h.ServeHTTP(l, r) })
			<-l.begun
			return l
		}
		var now, most, others, ofBob atomic.Int32
		var ann []*listener
		for range many {
			ann = append(ann, open("ann", each, &now, &most))
		}
		bob := open("bob", 0, &others, &ofBob)
		heard := func() (sum int) {
			for _, l := range ann {
				sum += int(l.heard.Load())
			}
			return sum
		}
		for n := range 3 { // the first two are one change to most of them
			w.set(tool(fmt.Sprint("tool-", n)))
			time.Sleep(each * many / 4)
			synctest.Wait()
			if got := bob.heard.Load(); int(got) != n+1 {
				t.Errorf("change %d: another caller has heard of %d", n, got)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if most.Load() != 1 {
			t.Errorf("%d streams of a caller are told at once, want 1", most.Load())
		}
		if got := heard(); got < many || got >= 2*many {
			t.Errorf("%d streams were told of 3 changes %d times", many, got)
		}

		open("ann", time.Minute, &others, &ofBob)
		before := heard()
		w.set(tool("last"))
		time.Sleep(4 * each * many)
		synctest.Wait()
		if got := heard() - before; got != many {
			t.Errorf("beside one that does not read %d of %d streams are told", got, many)
		}
		time.Sleep(time.Minute)
	})
}
