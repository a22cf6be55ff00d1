package replicas

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// ending is an API server behind a proxy that ends each watch at once.
type ending struct{ watches int }

func (e *ending) RoundTrip(q *http.Request) (*http.Response, error) {
	said := `{"metadata":{"resourceVersion":"1"}}`
	if q.URL.Query().Has("watch") {
		e.watches++
		said = ""
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(said)), Request: q}, nil
}

// SPEC P4, S2: watches of the Leases that end at once do not keep the API server and a processor busy.
func TestP4WatchesThatEndAtOnceAreMadeSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &ending{}
		r := newReplica(t, "a")
		r.opts.Client = clientOf(t, api)
		const whole = 10 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), whole)
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.follow(ctx)
		}()
		<-done
		if most := int(whole/(look/2)) + 1; api.watches < 2 || api.watches > most {
			t.Errorf("%d watches in %v; want %d at most", api.watches, whole, most)
		}
	})
}
