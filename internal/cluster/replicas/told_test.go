package replicas

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// SPEC P4: the log says once which replicas come and go, also if the API server says something of others all the time.
func TestP4TheLogSaysWhoIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := newReplica(t, "a")
		r.opts.Log = slog.New(slog.NewTextHandler(&log, nil))
		ctx, end := context.WithCancel(t.Context())
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			r.watchTime(ctx)
		}()
		meet(time.Now(), r, there("b", time.Now()))
		for range 2 * int(lasts/look) {
			time.Sleep(look)
			synctest.Wait()
			meet(time.Now(), r)
		}
		end()
		<-watched
		for _, text := range []string{"a replica is there", "a replica is gone"} {
			if n := strings.Count(log.String(), text); n != 1 {
				t.Errorf("%q is %d times in the log:\n%s", text, n, log.String())
			}
		}
	})
}
