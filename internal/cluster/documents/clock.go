package documents

import (
	"net/http"
	"sync/atomic"
	"time"
)

// Tolerance is how much the clocks of replicas may differ. A clock that differs more from that of the API server is
// corrected.
const Tolerance = 2 * time.Second

// Clock tells the time of the API server, from the dates of its answers. Its methods may be called from any goroutine.
type Clock struct{ ahead atomic.Int64 }

// Now returns the time. Without any answer it is that of this machine.
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// Wrap returns a transport that reads the dates of answers.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper { return dated{c, next} }

type dated struct {
	clock *Clock
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (d dated) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := time.Now()
	resp, err := d.next.RoundTrip(r)
	took := time.Since(asked)
	if err != nil || took > Tolerance/2 {
		return resp, err
	}
	if said, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		ahead := said.Add(time.Second / 2).Sub(asked.Add(took / 2)) // it has whole seconds
		if ahead.Abs() <= Tolerance/2 {
			ahead = 0
		}
		d.clock.ahead.Store(int64(ahead))
	}
	return resp, nil
}
