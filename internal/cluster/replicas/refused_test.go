package replicas

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// SPEC P3: if the API server refuses that a replica takes a capsule, the log says why, once: nobody runs it until somebody does
// something about that, such as with a Lease whose number of transitions is the last one.
func TestP3WhyACapsuleIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := newReplica(t, "a")
		r.opts.Log = slog.New(slog.NewTextHandler(&log, nil))
		asked := 0
		r.opts.Client = clientOf(t, whileAsked(func(context.Context) (*http.Response, error) {
			asked++
			text := `{"kind": "Status", "code": 422, "reason": "Invalid", "message": "the Lease is bad"}`
			return &http.Response{StatusCode: http.StatusUnprocessableEntity, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text))}, nil
		}))
		ctx, end := context.WithTimeout(t.Context(), 10*look)
		defer end()
		r.setAlive(ctx)
		r.Hold(ctx, "box", func(context.Context, int64) { t.Error("it is held") })
		if n := strings.Count(log.String(), "level=WARN"); asked < 2 || n != 1 || !strings.Contains(log.String(), "the Lease is bad") {
			t.Errorf("%d times in %d attempts:\n%s", n, asked, log.String())
		}
	})
}

// SPEC P3, S2: an API server that refuses each time in other words does not fill the log, however many capsules there are.
func TestS2RefusalsInOtherWordsShareARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := newReplica(t, "a")
		r.opts.Log = slog.New(slog.NewTextHandler(&log, nil))
		var asked atomic.Int64
		r.opts.Client = clientOf(t, whileAsked(func(context.Context) (*http.Response, error) {
			text := fmt.Sprintf(`{"kind": "Status", "code": 503, "reason": "ServiceUnavailable", "message": "reason %d"}`, asked.Add(1))
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text))}, nil
		}))
		ctx, end := context.WithTimeout(t.Context(), 30*look)
		defer end()
		r.setAlive(ctx)
		var holding sync.WaitGroup
		for _, capsule := range []string{"one", "two", "three"} {
			holding.Go(func() { r.Hold(ctx, capsule, func(context.Context, int64) { t.Error("it is held") }) })
		}
		holding.Wait()
		if n := strings.Count(log.String(), "level=WARN"); asked.Load() < 5*maxRefusals || n != maxRefusals {
			t.Errorf("%d times in %d attempts", n, asked.Load())
		}
	})
}
