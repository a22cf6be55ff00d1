package linerpc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rpc"
	"github.com/orla-project/orla/internal/testing/needs"
)

// onPipes is a Conn over pipes of the system, and the process's ends of them.
func onPipes(t *testing.T) (c *Conn, stdin, stdout *os.File) {
	t.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c = New(inW, outR, Options{MaxMessage: 16 << 20, Stall: time.Hour, Options: rpc.Options{Handler: &heard{}}})
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = c.Serve() // that it ended is all that matters
	}()
	t.Cleanup(func() {
		_ = outW.Close()
		<-served
		c.Close(errors.New("the test is over"))
		for _, f := range []*os.File{inR, inW, outR} {
			_ = f.Close()
		}
	})
	return c, inR, outW
}

// A process that has closed its stdin has not got the request.
func TestNotSentWhenNobodyCanRead(t *testing.T) {
	c, stdin, _ := onPipes(t)
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := c.Call(t.Context(), rpc.Request{Method: "work", Params: sized(1 << 20)})
	if !errors.Is(err, rpc.ErrNotSent) || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the call gave %v", err)
	}
	<-c.Over()
	if !errors.Is(c.Err(), syscall.EPIPE) || c.InFlight() != 0 {
		t.Errorf("it is over by %v with %d in flight", c.Err(), c.InFlight())
	}
}

// A request of which a part was sent may have been begun: it is never told to
// be sent again.
func TestPartlySentIsSent(t *testing.T) {
	c, stdin, _ := onPipes(t)
	done := make(chan error, 1)
	go func() {
		_, err := c.Call(t.Context(), rpc.Request{Method: "work", Params: sized(1 << 20)})
		done <- err
	}()
	if _, err := io.ReadFull(stdin, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	<-c.Over()
	why := errors.New("it died")
	c.Close(why)
	if err := <-done; !errors.Is(err, why) || errors.Is(err, rpc.ErrNotSent) {
		t.Errorf("the call gave %v", err)
	}
}

// The caller's deadline holds while the process does not read, and the line
// that was begun is ended when it does, with the word that it is cancelled after it.
func TestDeadlineHoldsWhileNobodyReads(t *testing.T) {
	c, stdin, stdout := onPipes(t)
	ctx, late := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.Call(ctx, rpc.Request{Method: "large", Params: sized(1 << 20)})
		done <- err
	}()
	begun := make([]byte, 1)
	if _, err := io.ReadFull(stdin, begun); err != nil {
		t.Fatal(err)
	}
	late(context.DeadlineExceeded)
	if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the call gave %v", err)
	}
	// One that has not had its turn leaves nothing behind.
	if _, err := c.Call(ctx, rpc.Request{Method: "never"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the call behind it gave %v", err)
	}
	lines := bufio.NewReader(io.MultiReader(bytes.NewReader(begun), stdin))
	if line, err := lines.ReadString('\n'); err != nil || len(line) < 1<<20 || !strings.HasPrefix(line, `{"jsonrpc":"2.0","id":1,"method":"large","params":"xxx`) || !strings.HasSuffix(line, "xxx\"}\n") {
		t.Errorf("the process reads a line of %d bytes, %v", len(line), err)
	}
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, "notifications/cancelled") || !strings.Contains(line, `"requestId":1,`) {
		t.Errorf("the process reads %q, %v", line, err)
	}
	go func() {
		_, err := c.Call(t.Context(), rpc.Request{Method: "next"})
		done <- err
	}()
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, `"method":"next"`) {
		t.Errorf("the process reads %q, %v", line, err)
	}
	if _, err := stdout.WriteString(`{"jsonrpc":"2.0","id":3,"result":null}` + "\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("the next call gave %v", err)
	}
}

// A call that is over is not sent, however free the stream is.
func TestNothingIsSentForACallThatIsOver(t *testing.T) {
	c, stdin, _ := onPipes(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // of two ways that are open, select takes either
		if _, err := c.Call(ctx, rpc.Request{Method: "never"}); !errors.Is(err, rpc.ErrNotSent) || !errors.Is(err, context.Canceled) {
			t.Fatalf("the call gave %v", err)
		}
	}
	c.Post(turns.Owner{}, "first", nil)
	if line, err := bufio.NewReader(stdin).ReadString('\n'); err != nil || !strings.Contains(line, `"method":"first"`) {
		t.Errorf("the process reads %q, %v", line, err)
	}
}

// A process that reads nothing for the time of Stall is given up, and not sooner;
// what is pending waits for Close.
func TestStallGivesUp(t *testing.T) {
	inBubble(t, func(t *testing.T, p *process) {
		began := time.Now()
		done := p.calls(t.Context(), rpc.Request{Params: sized(1 << 20)})
		<-p.Over()
		if took := time.Since(began); took != stall || !errors.Is(p.Err(), errStalled) {
			t.Errorf("it is over after %s by %v", took, p.Err())
		}
		synctest.Wait()
		select {
		case o := <-done:
			t.Errorf("the call ended before Close with %v", o.err)
		default:
		}
		why := errors.New("it hangs")
		p.Close(why)
		if o := <-done; !errors.Is(o.err, why) || errors.Is(o.err, rpc.ErrNotSent) {
			t.Errorf("the call gave %v", o.err)
		}
	})
}

// Close lets go of a write that hangs; the bubble would not end otherwise.
func TestCloseEndsAWriteThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, p *process) {
		began := time.Now()
		done := p.calls(t.Context(), rpc.Request{Params: sized(1 << 20)})
		waiting := p.calls(t.Context(), rpc.Request{})
		p.Post(turns.Owner{}, "notifications/x", nil)
		synctest.Wait()
		p.Close(errors.New("enough"))
		<-done
		if o := <-waiting; o.err == nil {
			t.Error("the call behind it was answered")
		}
		if time.Since(began) != 0 {
			t.Errorf("it took %s", time.Since(began))
		}
	})
}

// A slow reader is none that hangs: each piece has its own time.
func TestSlowReaderIsNoStall(t *testing.T) {
	inBubble(t, func(t *testing.T, p *process) {
		done := p.calls(t.Context(), rpc.Request{Params: sized(1 << 20)})
		p.lines = bufio.NewReaderSize(slowly{p.lines}, 64<<10)
		if m := p.gets(); len(m.Params) != 1<<20 {
			t.Errorf("params of %d bytes", len(m.Params))
		}
		p.answers(1)
		if o := <-done; o.err != nil || p.Err() != nil {
			t.Errorf("the call gave %v; the Conn is over by %v", o.err, p.Err())
		}
	})
}

// slowly takes its time for each read.
type slowly struct{ r io.Reader }

func (s slowly) Read(b []byte) (int, error) {
	time.Sleep(stall / 4)
	return s.r.Read(b[:min(len(b), 32<<10)])
}

// deadlines is a Stream that remembers the last write deadline.
type deadlines struct {
	Stream
	last time.Time
	set  int
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.last = t
	d.set++
	return d.Stream.SetWriteDeadline(t)
}

// The time for one line is not the time for the next: a write that comes much
// later must not find it passed.
func TestWriteDeadlineIsCleared(t *testing.T) {
	inBubble(t, func(t *testing.T, p *process) {
		watched := &deadlines{Stream: p.w.in}
		p.w.in = watched
		done := p.calls(t.Context(), rpc.Request{Params: sized(1 << 20)})
		p.gets()
		synctest.Wait()
		if watched.set < 2 || !watched.last.IsZero() {
			t.Errorf("of %d deadlines the last is %s", watched.set, watched.last)
		}
		time.Sleep(time.Hour)
		next := p.calls(t.Context(), rpc.Request{})
		p.gets()
		p.answers(1)
		p.answers(2)
		<-done
		if o := <-next; o.err != nil {
			t.Error(o.err)
		}
	})
}

// What nobody waits for is bounded, in number and in bytes, while it cannot be sent.
func TestPostsAreBounded(t *testing.T) {
	needs.Time(t, "sends many megabytes")
	for _, test := range []struct {
		name        string
		sent, bytes int
		most        int // beside the line being sent and the one in its turn
	}{
		{"many", 5 * maxPosts / 4, 2, maxPosts},
		{"large", 5 * maxPostBytes / 4 >> 20, 1 << 20, maxPostBytes >> 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, p *process) {
				p.readsMuch()
				params := sized(test.bytes)(0)[0]
				for range test.sent {
					p.Post(turns.Owner{}, "notifications/x", params)
					synctest.Wait()
				}
				p.w.mu.Lock()
				if p.w.waitingBytes.Taken() > 2*maxPostBytes || len(p.w.posts) > 2*maxPosts {
					t.Errorf("%d posts of %d bytes wait", len(p.w.posts), p.w.waitingBytes.Taken())
				}
				p.w.mu.Unlock()
				var n atomic.Int64
				go func() {
					for {
						if _, err := p.lines.ReadString('\n'); err != nil {
							return
						}
						n.Add(1)
					}
				}()
				synctest.Wait()
				if n := int(n.Load()); n < test.most-1 || n > test.most+2 {
					t.Errorf("%d of %d came, want about %d", n, test.sent, test.most)
				}
			})
		})
	}
}

// The room of posts that have been sent is free again, also while others wait.
func TestPostsGiveTheirRoomBack(t *testing.T) {
	needs.Time(t, "sends many megabytes")
	inBubble(t, func(t *testing.T, p *process) {
		p.readsMuch()
		params := sized(1 << 20)(0)[0]
		waiting := func() int {
			synctest.Wait()
			p.w.mu.Lock()
			defer p.w.mu.Unlock()
			return len(p.w.posts)
		}
		for range maxPostBytes >> 19 { // twice what is taken
			p.Post(turns.Owner{}, "notifications/x", params)
			synctest.Wait()
		}
		for range 10 {
			p.gets()
		}
		left := waiting()
		for range 5 {
			p.Post(turns.Owner{}, "notifications/x", params)
		}
		if now := waiting(); left == 0 || now != left+5 {
			t.Errorf("beside %d posts there are %d of 5 more", left, now-left)
		}
	})
}

// After its end nothing more is written, also not what nobody waits for: the
// line before may be half a one.
func TestNothingIsSentAfterTheEnd(t *testing.T) {
	c, stdin, _ := onPipes(t)
	c.Close(errors.New("it is over"))
	c.Post(turns.Owner{}, "notifications/late", nil)
	if err := c.w.in.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(stdin); err != nil || len(got) > 0 {
		t.Errorf("after the end the process is sent %q, %v", got, err)
	}
}

// SPEC N2: one caller's messages that a process does not take do not keep another's out.
func TestN2PostsAreSharedByCaller(t *testing.T) {
	needs.Time(t, "sends many megabytes")
	inBubble(t, func(t *testing.T, p *process) {
		p.readsMuch()
		large := sized(1 << 20)(0)[0]
		for range 5 * maxPostBytes / 4 >> 20 {
			p.Reply(turns.Owner{Caller: "ann", Session: "1"}, json.RawMessage(`"a"`), large, nil)
		}
		for range 5 * maxPosts / 4 {
			p.Reply(turns.Owner{Caller: "cid", Session: "3"}, json.RawMessage(`"c"`), json.RawMessage(`1`), nil)
		}
		p.Reply(turns.Owner{Caller: "bob", Session: "2"}, json.RawMessage(`"b"`), json.RawMessage(`"bob's"`), nil)
		var bobs atomic.Bool
		go func() {
			for {
				line, err := p.lines.ReadString('\n')
				if err != nil {
					return
				}
				if strings.Contains(line, "bob's") {
					bobs.Store(true)
				}
			}
		}()
		synctest.Wait()
		if !bobs.Load() {
			t.Error("another caller's answer is lost")
		}
		if n, bytes := p.w.waiting.Taken(), p.w.waitingBytes.Taken(); n != 0 || bytes != 0 {
			t.Errorf("%d messages of %d bytes count when all are sent", n, bytes)
		}
	})
}

// SPEC S2: large messages that wait are bounded for all processes together, and count until they are written.
func TestS2LargePostsAreBoundedForAllProcesses(t *testing.T) {
	needs.Time(t, "sends many megabytes")
	inBubble(t, func(t *testing.T, p *process) {
		const others = 3
		var conns []*Conn
		var theirs []net.Conn
		for range others {
			in, theirIn := net.Pipe()
			out, theirOut := net.Pipe()
			theirs = append(theirs, theirIn, theirOut)
			conns = append(conns, New(in, out, Options{MaxMessage: 16 << 20, Stall: stall, Options: rpc.Options{Handler: p.heard}}))
		}
		ann, large := turns.Owner{Caller: "ann"}, sized(1 << 20)(0)[0]
		before := largePosts.Taken()
		for _, c := range append(conns, p.Conn) {
			for range maxPostBytes >> 20 {
				c.Post(ann, "notifications/x", large)
				synctest.Wait()
			}
		}
		if got := largePosts.Taken() - before; got > maxPostBytes || got < maxPostBytes/2 {
			t.Errorf("%d MiB wait for %d processes; want at most %d", got>>20, others+1, maxPostBytes>>20)
		}
		for _, c := range conns {
			c.Close(errors.New("the test is over"))
		}
		for _, c := range theirs {
			_ = c.Close()
		}
		go func() { _, _ = io.Copy(io.Discard, p.lines) }()
		synctest.Wait()
		if got := largePosts.Taken() - before; got != 0 {
			t.Errorf("%d bytes count when all is written or over", got)
		}
	})
}
