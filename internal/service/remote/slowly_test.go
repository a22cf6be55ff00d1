//go:build !race

package remote

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/testing/needs"
)

// SPEC S2: events that are not messages are read at a bounded rate, also on several
// consecutive streams, and their shares are released.
func TestS2EventsThatAreNotMessagesAreReadSlowly(t *testing.T) {
	needs.Time(t, "reads many megabytes")
	const streams = 3
	for name, of := range map[string]struct {
		before string
		size   int
	}{
		"no JSON":                {"", 60 << 10},
		"large, and no JSON":     {"", 15 << 20},
		"another name":           {"event: other\n", 60 << 10},
		"another name, and JSON": {"event: other\ndata: {}\n", 100},
		"large, another name":    {"event: other\n", 300 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &session{shares: newShares(16 << 20), max: 16 << 20, listener: listener{logged: func([]byte, int) {}}}
				ev := of.before + "data: " + strings.Repeat("x", of.size) + "\n\n"
				lines := strings.Count(ev, "\n") - 1 // the first of the data is free
				n := max(1, min(2*pace.MaxBytes/of.size, 2*pace.MaxLines/lines))
				began := time.Now()
				for range streams {
					flood := strings.NewReader(strings.Repeat(ev, n))
					st := s.stream(t.Context(), &http.Response{Body: io.NopCloser(flood)}, message{})
					if st.events != n || !errors.Is(st.err, io.EOF) {
						t.Errorf("%d of %d events were read, and then %v", st.events, n, st.err)
					}
				}
				least := max(streams*n*of.size/pace.MaxBytes, streams*n*lines/pace.MaxLines) - 1 // seconds; the first is free
				if took := time.Since(began); took < time.Duration(least)*time.Second || least < 3 {
					t.Errorf("%d events of %d bytes were read in %v, want %d s", streams*n, len(ev), took, least)
				}
				if m, l := s.medium.Taken(), s.large.Taken(); m != 0 || l != 0 {
					t.Errorf("%d and %d are not given back", m, l)
				}
			})
		})
	}
}
