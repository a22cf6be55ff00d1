package rpc

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

// keeping is a Handler that keeps what it gets.
type keeping struct {
	parts []json.RawMessage
	noise []string // the reasons
}

func (k *keeping) Notified(_ string, params json.RawMessage) { k.parts = append(k.parts, params) }
func (k *keeping) Asked(id json.RawMessage, _ string, params json.RawMessage) {
	k.parts = append(k.parts, id, params)
}
func (*keeping) Unclaimed(json.RawMessage)    {}
func (k *keeping) Noise(_ []byte, why string) { k.noise = append(k.noise, why) }

// SPEC S2: who keeps a part of a message does not keep the rest, whose bytes nobody counts.
func TestS2APartOfAMessageIsKeptAlone(t *testing.T) {
	junk := `"junk":"` + strings.Repeat("x", 64<<10) + `"`
	for name, text := range map[string]string{
		"a question": `{"jsonrpc":"2.0","id":"a","method":"ask","params":"small",` + junk + `}`,
		"a notice":   `{"jsonrpc":"2.0","method":"tell","params":"small",` + junk + `}`,
		"a batch":    `[{"jsonrpc":"2.0","id":"a","method":"ask","params":"small"},{` + junk + `}]`,
	} {
		t.Run(name, func(t *testing.T) {
			l, k := &loop{}, &keeping{}
			l.conn = New(l, Options{Handler: k})
			line := []byte(text)
			l.conn.Receive(line)
			clear(line) // a part that lies in it is not the same any more
			for _, part := range k.parts {
				if !json.Valid(part) {
					t.Errorf("%q is kept as a part of the line", part)
				}
			}
			if len(k.parts) == 0 {
				t.Error("nothing is handed on")
			}
		})
	}
	t.Run("an answer", func(t *testing.T) {
		line := []byte(`{"jsonrpc":"2.0","id":1,"result":"small",` + junk + `}`)
		l := &answering{line: line}
		l.conn = New(l, Options{Handler: &keeping{}})
		result, err := l.conn.Call(t.Context(), Request{Method: "work", Owner: turns.Owner{Session: "1"}})
		clear(line)
		if err != nil || string(result) != `"small"` {
			t.Errorf("the answer is %q, %v", result, err)
		}
	})
}

// answering is a Transport that answers each request with a line.
type answering struct {
	loop
	line []byte
}

func (a *answering) Send(_ context.Context, call *Pending, _ [][]byte) error {
	err := a.conn.Sending(call)
	a.conn.Receive(a.line)
	return err
}

// SPEC S2: of a batch, the other side's own messages are taken up to a bound, and the rest costs one line of the log.
// Answers to calls do not count: the calls are bounded.
func TestS2ABatchIsBounded(t *testing.T) {
	for name, element := range map[string]string{
		"questions": `{"jsonrpc":"2.0","id":"a","method":"ask"}`,
		"notices":   `{"jsonrpc":"2.0","method":"tell","params":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			l, k := &loop{}, &keeping{}
			l.conn = New(l, Options{Handler: k})
			batch := func(n int) []byte { return []byte("[" + strings.Repeat(element+",", n-1) + element + "]") }
			l.conn.Receive(batch(maxBatch))
			perBatch := len(k.parts)
			if perBatch < maxBatch || len(k.noise) > 0 {
				t.Errorf("of %d messages, %d parts and the noise %q are handed on", maxBatch, perBatch, k.noise)
			}
			unasked := l.conn.Receive(batch(5 * maxBatch))
			if got := len(k.parts) - perBatch; got != perBatch || len(k.noise) != 1 || unasked > maxBatch+2 {
				t.Errorf("of %d messages, %d parts and the noise %q are handed on, and %d count; want %d parts", 5*maxBatch, got, k.noise, unasked, perBatch)
			}
		})
	}
	t.Run("answers", func(t *testing.T) {
		const calls = 2 * maxBatch
		k := &keeping{}
		a := &batching{ids: make(chan int64, calls)}
		a.conn = New(a, Options{Handler: k})
		errs := make(chan error, calls)
		for range calls {
			go func() { // returns at its answer
				_, err := a.conn.Call(t.Context(), Request{Method: "work", Owner: turns.Owner{Session: "1"}})
				errs <- err
			}()
		}
		var answers []string
		for range calls {
			answers = append(answers, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":1}`, <-a.ids))
		}
		if a.conn.Receive([]byte("[" + strings.Join(answers, ",") + "]")); len(k.noise) > 0 {
			t.Errorf("it is noise: %q", k.noise)
		}
		for range calls {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}

// batching is a Transport that tells the ids of the requests.
type batching struct {
	loop
	ids chan int64
}

func (b *batching) Send(_ context.Context, call *Pending, _ [][]byte) error {
	defer func() { b.ids <- call.ID }()
	return b.conn.Sending(call)
}

// slow is a Handler that works for a while on each notification.
type slow struct {
	keeping
	work func()
}

func (s *slow) Notified(string, json.RawMessage) { s.work() }

// SPEC N2: who receives a large batch gives its turn back between two messages when it has worked for some time.
func TestN2ABatchIsReceivedInSeveralTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 100
		room := turns.NewRoom(64 << 20)
		l, done := &loop{}, 0
		h := &slow{work: func() { time.Sleep(maxSlice / 2); done++ }}
		l.conn = New(l, Options{Handler: h})
		ctx, release := room.Open(t.Context(), turns.Owner{Caller: "ann", Session: "1"})
		defer release()
		ctx, cancel := context.WithCancel(ctx)
		var call sync.WaitGroup
		call.Go(func() {
			_, _ = l.conn.Call(ctx, Request{Method: "work", Owner: turns.Owner{Caller: "ann", Session: "1"}}) // it is cancelled
		})
		synctest.Wait()
		for range runtime.GOMAXPROCS(0) - 1 { // the other turns are taken
			busy, over := room.Open(t.Context(), turns.Owner{Caller: rand.Text()})
			defer over()
			if err := turns.AccountOf(busy).BeginWork(busy); err != nil {
				t.Fatal(err)
			}
			defer turns.AccountOf(busy).EndWork()
		}
		element := `{"jsonrpc":"2.0","method":"tell","params":"` + strings.Repeat("x", turns.Heavy/many) + `"}`
		var others sync.WaitGroup
		others.Go(func() {
			time.Sleep(maxSlice / 4) // the batch is being received
			other, over := room.Open(t.Context(), turns.Owner{Caller: "bob", Session: "2"})
			defer over()
			if err := turns.AccountOf(other).Work(other, turns.Heavy, func() {
				if done == 0 || done > 4 {
					t.Errorf("another caller's turn comes after %d of %d messages", done, many)
				}
			}); err != nil {
				t.Error(err)
			}
		})
		l.conn.Receive([]byte("[" + strings.Repeat(element+",", many-1) + element + "]"))
		others.Wait()
		cancel()
		call.Wait()
		if done != many {
			t.Errorf("%d of %d messages are received", done, many)
		}
	})
}
