package client

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// counted is a client that leaves at the third message.
type counted int

func (c *counted) Tell(context.Context, json.RawMessage) error {
	if *c++; *c == 3 {
		return ErrHungUp
	}
	return nil
}

// SPEC S2: news of many resources under a long id takes no more memory than one message.
func TestS2NewsAreMadeOneByOne(t *testing.T) {
	in := NewInbox()
	in.Subscription = json.RawMessage(`"` + strings.Repeat("x", 100<<10) + `"`)
	in.ListChanged([Lists]bool{true})
	for n := range 1000 {
		in.ResourceUpdated(fmt.Sprint("mem://", n))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var to counted
	in.Pass(t.Context(), nil, &to)
	runtime.ReadMemStats(&after)
	if size := after.TotalAlloc - before.TotalAlloc; to != 3 || size > 5<<20 {
		t.Errorf("%d messages took %d bytes", to, size)
	}
}
