package diskroom

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// SPEC M3, S2: layers that unpack to more than an image may have leave room on the disk.
func TestS2APullLeavesRoomOnTheDisk(t *testing.T) {
	const most = 10 << 20
	for name, c := range map[string]struct {
		free, each int64 // bytes, and how many are taken each second
		after      time.Duration
		want       string
	}{
		"as much as an image takes":  {1 << 30, most, 3 * time.Second, ""},
		"more":                       {1 << 30, most, 5 * time.Second, "takes 31 MiB of the disk"},
		"most of a disk":             {20 << 20, most, 3 * time.Second, "takes 19 MiB of the disk"},
		"a disk that cannot be seen": {-1, most, 5 * time.Second, ""},
		"an image of any size":       {20 << 20, most, 1500 * time.Millisecond, ""},
		"most of a disk, of any":     {20 << 20, most, 3 * time.Second, "takes 19 MiB of the disk while it is pulled, which leaves only 1 MiB free"},
	} {
		most := int64(most)
		if strings.HasSuffix(name, "any size") || strings.HasSuffix(name, "of any") {
			most = 0
		}
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			began := time.Now()
			go watch(ctx, cancel, most, func() int64 { return 0 }, func() (int64, bool) {
				return c.free - int64(time.Since(began)/looks)*c.each/10, c.free > 0
			})
			time.Sleep(c.after)
			synctest.Wait()
			switch err := context.Cause(ctx); {
			case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
		})
	}
}
