package linerpc

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rpc"
)

// SPEC Q1: a Conn that is left has sent what waited and taken the lines that had come. The next one goes on with the begin
// of a line, and with new ids.
func TestQ1AnotherConnGoesOn(t *testing.T) {
	theirIn, in := pipe(t)
	out, theirOut := pipe(t)
	lines := bufio.NewReader(theirIn)
	opts := Options{MaxMessage: 1 << 20, Stall: time.Minute, Options: rpc.Options{Handler: &heard{}}}
	first := New(in, out, opts)
	served := make(chan error, 1)
	go func() { served <- first.Serve() }()
	call := func(c *Conn) <-chan string {
		answer := make(chan string, 1)
		go func() {
			result, err := c.Call(context.Background(), rpc.Request{Method: "m"})
			answer <- fmt.Sprintf("%s %v", result, err)
		}()
		return answer
	}
	sent := func(want string) {
		t.Helper()
		if line, err := lines.ReadString('\n'); err != nil || line != want+"\n" {
			t.Fatalf("the process is sent %q, %v; want %q", line, err, want)
		}
	}
	answered := call(first)
	sent(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
	write(t, theirOut, `{"jsonrpc":"2.0","id":1,"result":{"n":1}}`+"\n"+`{"jsonrpc":"2.0","id":`)
	if got := <-answered; got != `{"n":1} <nil>` {
		t.Errorf("the first call: %s", got)
	}
	for range 20 { // of these, some wait for their turn
		first.Post(turns.Owner{}, "note", nil)
	}
	unread, ok := first.Leave(time.Minute)
	if <-served; !ok || string(unread) != `{"jsonrpc":"2.0","id":` { //nolint:errcheck // only its end counts
		t.Fatalf("left with %q, %t", unread, ok)
	}
	if _, err := first.Call(t.Context(), rpc.Request{Method: "m"}); err == nil {
		t.Error("a Conn that was left makes a call")
	}
	for range 20 {
		sent(`{"jsonrpc":"2.0","method":"note"}`)
	}
	state := first.State()
	first.Close(errLeft)
	for _, f := range []*os.File{in, out} { // as new descriptors would be
		_ = f.SetDeadline(time.Time{})
	}
	opts.Unread, opts.Before = unread, &state
	second := New(in, out, opts)
	go func() { served <- second.Serve() }()
	answered = call(second)
	sent(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, state.LastID+1))
	write(t, theirOut, fmt.Sprintf(`%d,"result":{"n":2}}`+"\n", state.LastID+1))
	if got := <-answered; got != `{"n":2} <nil>` {
		t.Errorf("the second call: %s", got)
	}
	second.Close(errLeft)
	_ = theirOut.Close()
	<-served //nolint:errcheck // only its end counts
}

// SPEC Q1: a process that does not read what it is sent cannot be left.
func TestQ1AProcessThatDoesNotReadIsNotLeft(t *testing.T) {
	theirIn, in := pipe(t)
	out, theirOut := pipe(t)
	c := New(in, out, Options{MaxMessage: 1 << 20, Stall: time.Minute, Options: rpc.Options{Handler: &heard{}}})
	served := make(chan error, 1)
	go func() { served <- c.Serve() }()
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan error, 1)
	go func() {
		_, err := c.Call(ctx, rpc.Request{Method: "m", Params: func(int64) [][]byte { return [][]byte{make([]byte, 1<<20)} }})
		sent <- err
	}()
	if _, err := theirIn.Read(make([]byte, 1)); err != nil { // a part of the call is sent; the rest does not fit
		t.Fatal(err)
	}
	cancel()
	<-sent //nolint:errcheck // only its end counts
	if unread, ok := c.Leave(50 * time.Millisecond); ok {
		t.Errorf("it is left with %q", unread)
	}
	c.Close(errLeft)
	_ = theirOut.Close()
	<-served //nolint:errcheck // only its end counts
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}

func write(t *testing.T, f *os.File, text string) {
	t.Helper()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}
