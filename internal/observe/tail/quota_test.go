package tail_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/observe/tail"
)

// SPEC S2: a quota has room again in each window, and tells at the end of one what was
// left out, once.
func TestS2AQuotaIsForEachWindow(t *testing.T) {
	for name, c := range map[string]struct{ size, allowed int }{
		"lines": {1, tail.QuotaLines},
		"bytes": {tail.QuotaBytes / 100, 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var q tail.Quota
				reports := 0
				for range 3 {
					allowed := 0
					for range 3 * tail.QuotaLines {
						if q.Allow(c.size, func() { reports++ }) {
							allowed++
						}
					}
					if allowed != c.allowed {
						t.Errorf("%d of a window are allowed; want %d", allowed, c.allowed)
					}
					time.Sleep(tail.QuotaWindow)
					synctest.Wait()
					if lines, bytes := q.Left(); lines != 3*tail.QuotaLines-c.allowed || bytes != lines*c.size {
						t.Errorf("%d lines and %d bytes are left", lines, bytes)
					}
				}
				if lines, _ := q.Left(); reports != 3 || lines != 0 {
					t.Errorf("%d reports, and then %d lines", reports, lines)
				}
			})
		})
	}
}
