package mcpbridge_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

const (
	mebi          = 1 << 20
	allOfRequests = 128 * mebi
	large         = 64 << 10
)

// largeCall is a call with an argument of so many bytes.
func largeCall(id any, size int, meta string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"method":"tools/call","params":{%s"name":"echo","arguments":{"text":%q}}}`, id, meta, strings.Repeat("x", size))
}

// claim begins a POST of so many bytes, and sends none of them.
func claim(t *testing.T, f *front, size int, headers string) io.Closer {
	t.Helper()
	conn := dial(t, f.addr())
	_, err := fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Accept: application/json, text/event-stream\r\n%sContent-Length: %d\r\n\r\n", headers, size)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// free waits until there is room for so many bytes of requests.
func (w *world) free(t *testing.T, want int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("room for %d bytes", want), func() bool { return w.bridge.FreeForRequests() == want })
}

// SPEC G7: however many bodies come at once, what they hold together is bounded, and
// a client that sends none of what it has announced takes no more than half of it.
func TestG7BodiesAreBoundedInSum(t *testing.T) {
	w := newWorld(t)
	f := w.front(t, httpfront.Settings{}, func(h *httpfront.Front) {
		setLimits(h, 20*time.Millisecond, time.Minute, time.Minute)
		h.Limits.Body = time.Minute
	})
	session := f.initialize(t)
	var slow []io.Closer
	for range 4 {
		slow = append(slow, claim(t, f, 16*mebi, ""))
	}
	w.free(t, allOfRequests-64*mebi)
	conn := claim(t, f, 16*mebi, "")
	res, err := http.ReadResponse(bufio.NewReader(conn.(io.Reader)), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" || !res.Close ||
		!strings.Contains(string(text), `"not_ready"`) || !strings.Contains(string(text), `"retryable":true`) {
		t.Errorf("beyond its half: %v, %d %v %s", err, res.StatusCode, res.Header, text)
	}
	if r := f.post(t, largeCall(1, large, ""), "Mcp-Session-Id", session); r.failed || len(r.raw) < large {
		t.Errorf("another client: %d %.300s", r.status, r.raw)
	}
	if r := f.post(t, call(2, "echo")); r.status == http.StatusServiceUnavailable {
		t.Errorf("a small request: %d %s", r.status, r.raw)
	}
	for _, conn := range slow {
		_ = conn.Close()
	}
	w.free(t, allOfRequests)
}

// Who finds no room waits for it, and nothing stays behind, whichever way a
// request came and however it ended.
func TestG7BodiesWaitForRoom(t *testing.T) {
	w := newWorld(t)
	g := newGate()
	f := w.front(t, httpfront.Settings{})
	session := f.initialize(t)
	giveBack := w.bridge.HoldForRequests("another", allOfRequests)
	got := make(chan reply, 3)
	plain, headers := newEra("tools/call", "echo", fmt.Sprintf(`"name":"echo","arguments":{"text":%q}`, strings.Repeat("x", large)))
	go func() { got <- f.post(t, plain, headers...) }()
	go func() {
		got <- f.post(t, largeCall(1, large, `"_meta":{"progressToken":1},`), "Mcp-Session-Id", session)
	}()
	go func() {
		res := f.open(t, http.MethodPost, "/mcp", io.MultiReader(strings.NewReader(largeCall(2, large, ""))), "Mcp-Session-Id", session)
		raw, _ := io.ReadAll(res.body)
		got <- reply{status: res.status, raw: string(raw)}
	}()
	select {
	case r := <-got:
		t.Errorf("without room: %d %.300s", r.status, r.raw)
	case <-time.After(50 * time.Millisecond): // they wait
	}
	giveBack()
	for range 3 {
		if r := within(t, got, "answer"); r.failed || r.status != http.StatusOK || len(r.raw) < large {
			t.Errorf("%d %.300s", r.status, r.raw)
		}
	}
	w.free(t, allOfRequests)

	w.answer("echo", g.answer)
	stream := f.openSSE(t)
	stream.post(t, initialize("2024-11-05"))
	stream.next(t)
	stream.post(t, largeCall(1, large, ""))
	stream.post(t, largeCall(2, large, `"_meta":{"progressToken":1},`))
	stream.post(t, "["+largeCall(3, large, "")+","+largeCall(4, 10, "")+"]")
	for range 4 {
		within(t, g.began, "call")
	}
	if free := w.bridge.FreeForRequests(); free > allOfRequests-3*large || free < allOfRequests-6*large { // each counts as a little more
		t.Errorf("%d bytes are free during calls over a stream", free)
	}
	f.CloseSessions()
	w.free(t, allOfRequests)
}

// A client on stdio waits, and is told when that takes too long; its answers to
// questions are let in.
func TestG7LinesWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.stdio(t, 4*mebi)
		p.open(t)
		giveBack := w.bridge.HoldForRequests("another", allOfRequests)
		began := time.Now()
		p.write(t, largeCall(1, large, "")+"\n")
		if r := p.next(t); string(r.id) != "1" || !r.failed || !strings.Contains(r.raw, "not_ready") || time.Since(began) < time.Second {
			t.Errorf("after %s: %.300s", time.Since(began), r.raw)
		}
		p.write(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":77,"result":{"text":%q}}`, strings.Repeat("x", large))+"\n"+call(2, "echo")+"\n")
		if r := p.next(t); string(r.id) != "2" || r.failed {
			t.Errorf("behind an answer: %.300s", r.raw)
		}
		giveBack()
		for i, message := range []string{largeCall(3, large, ""), largeCall(3, large, `"_meta":{"progressToken":1},`), "[" + largeCall(3, large, "") + "]"} {
			p.write(t, message+"\n")
			if r := p.next(t); len(r.raw) < large || r.failed {
				t.Errorf("message %d: %.300s", i, r.raw)
			}
		}
		synctest.Wait()
		if free := w.bridge.FreeForRequests(); free != allOfRequests {
			t.Errorf("%d bytes are free at the end", free)
		}
		p.stop()
		_ = within(t, p.ended, "end")
	})
}
