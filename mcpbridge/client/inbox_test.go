package client

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
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
	in.Pass(t.Context(), nil, &to, NewNotifier(), turns.Owner{})
	runtime.ReadMemStats(&after)
	if size := after.TotalAlloc - before.TotalAlloc; to != 3 || size > 5<<20 {
		t.Errorf("%d messages took %d bytes", to, size)
	}
}

// heard is a client that leaves after a message with a text in it.
type heard struct {
	all  []string
	last string
}

func (h *heard) Tell(_ context.Context, message json.RawMessage) error {
	h.all = append(h.all, string(message))
	if strings.Contains(string(message), h.last) {
		return ErrHungUp
	}
	return nil
}

// SPEC G3: news that come while nobody passes them on are told as soon as somebody does,
// each once and in their order. Nobody is told of what was dropped.
func TestG3NewsWaitForAStream(t *testing.T) {
	in, by := NewInbox(), NewNotifier()
	note := func(uris ...string) {
		for _, uri := range uris {
			in.ResourceUpdated(uri)
		}
	}
	pass := func(last string) string {
		to := &heard{last: last}
		in.Pass(t.Context(), nil, to, by, turns.Owner{})
		return strings.Join(to.all, "")
	}
	in.ListChanged([Lists]bool{ListPrompts: true})
	in.ListChanged([Lists]bool{ListPrompts: true})
	note("mem://c", "mem://b", "mem://a", "mem://b")
	in.Forget("mem://a")
	note("mem://d")
	order := regexp.MustCompile(`^[^\n]*prompts/list_changed.*mem://c.*mem://b`)
	if got := pass("mem://b"); !order.MatchString(got) || strings.Count(got, "jsonrpc") != 3 {
		t.Errorf("the first stream is told %s", got)
	}
	note("mem://e") // while mem://d waits
	if got := pass("mem://e"); strings.Count(got, "jsonrpc") != 2 || !strings.Contains(got, "mem://d") {
		t.Errorf("the second stream is told %s", got)
	}
}

// SPEC N2: a client that has left while it waited for its turn does not delay the others.
func TestN2NobodyWaitsForClientsThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		by := NewNotifier()
		gone := make([]*Inbox, 1000)
		for n := range gone {
			gone[n] = NewInbox()
			gone[n].open(by, turns.Owner{})
			gone[n].ResourceUpdated("mem://a")
			gone[n].close()
		}
		in, began := NewInbox(), time.Now()
		in.ResourceUpdated("mem://a")
		in.Pass(t.Context(), nil, &heard{last: "mem://a"}, by, turns.Owner{})
		synctest.Wait()
		if waited := time.Since(began); waited > slowTurn {
			t.Errorf("the client waited for %v", waited)
		}
		if len(by.queue) != 0 {
			t.Error("the caller is still known when nobody waits")
		}
	})
}

// slow is a client that takes a millisecond for a message.
type slow struct{ told *atomic.Int32 }

func (s slow) Tell(context.Context, json.RawMessage) error {
	time.Sleep(time.Millisecond) // of a bubble
	s.told.Add(1)
	return nil
}

// SPEC N2: however much news there is, telling it takes half of the time.
func TestN2TellingNewsRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		by, told := NewNotifier(), new(atomic.Int32)
		ctx, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 100 {
			in := NewInbox()
			in.ResourceUpdated("mem://a")
			all.Go(func() { in.Pass(ctx, nil, slow{told}, by, turns.Owner{}) })
		}
		time.Sleep(100 * time.Millisecond)
		if n := told.Load(); n < 40 || n > 60 {
			t.Errorf("%d clients were told in the time of 100 messages, want about 50", n)
		}
		time.Sleep(time.Second)
		if n := told.Load(); n != 100 {
			t.Errorf("%d of 100 clients were told", n)
		}
		end()
		all.Wait()
	})
}
