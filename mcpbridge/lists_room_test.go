package mcpbridge_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// described is a tool with a description of so many bytes.
func described(name string, size int) *mcp.Tool {
	t := tool(name)
	t.Description = strings.Repeat("x", size)
	return t
}

// listOf is a request for a list behind an item.
func listOf(id int, after string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{"cursor":%q}}`, id, base64.RawURLEncoding.EncodeToString([]byte(after)))
}

// SPEC S2: a page of a list that a client does not take holds room like the answer of a call
// (each one could keep another state of the list, of 8 MB), also if most of it is left out.
// A request that waits for room gets the list as it is then. A small page needs no room.
func TestS2AListHoldsRoom(t *testing.T) {
	const all, size = 128 << 20, 12 << 20 // more than sockets take
	w := newWorld(t)
	f := w.front(t, httpfront.Settings{})
	lists := func(marker string) {
		t.Helper()
		eventually(t, "the list has "+marker, func() bool {
			return strings.Contains(f.post(t, listOf(1, "b")).raw, marker)
		})
	}
	w.set(described("a", size), described("b", size/2), described("c", 1<<10), tool("d1"))
	lists(`"d1"`)
	session := f.initialize(t)
	for _, after := range []string{"", "a"} {
		conn := dial(t, f.addr())
		body := listOf(1, after)
		if _, err := fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
			"Mcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s", session, len(body), body); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1024)); err != nil {
			t.Fatal(err)
		}
		if held := w.bridge.Held(); held < size+size/2-64<<10 {
			t.Errorf("behind %q: %d bytes are held while the list is on its way", after, held)
		}
		_ = conn.Close()
		eventually(t, "the room is whole", func() bool { return w.bridge.FreeForAnswers() == all })
	}

	release := w.bridge.HoldForAnswers(all)
	if r := f.post(t, listOf(1, "b")); r.failed || !strings.Contains(r.raw, `"d1"`) {
		t.Errorf("a small page without room: %d %.200s", r.status, r.raw)
	}
	w.bridge.SetReadPatience(time.Millisecond)
	if r := f.post(t, listOf(1, "")); !r.failed || !strings.Contains(r.raw, string(fault.RateLimited)) {
		t.Errorf("without room: %d %.200s", r.status, r.raw)
	}
	w.bridge.SetReadPatience(patience)
	later := make(chan reply, 1)
	go func() { later <- f.post(t, listOf(1, "")) }()
	eventually(t, "the request waits", func() bool { return w.bridge.WaitForRoom() == 1 })
	w.set(described("a", size+1<<20), described("b", size/2), described("c", 1<<10), tool("d2"))
	lists(`"d2"`)
	release()
	if r := within(t, later, "list"); r.failed || !strings.Contains(r.raw, `"d2"`) || len(r.raw) < size+1<<20 {
		t.Errorf("with room: %d, %d bytes, %.200s", r.status, len(r.raw), r.raw)
	}
	eventually(t, "the room is whole", func() bool { return w.bridge.FreeForAnswers() == all })
}

// SPEC S2, N2: one stream that is not read cannot keep every state of a list: those over the
// share of its caller are refused (55 of 8 MB took 1.2 GB).
func TestS2AStreamThatIsNotReadKeepsFewLists(t *testing.T) {
	needs.Time(t, "makes lists of many megabytes")
	const states, size = 40, 4 << 20
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.unreadStream(t)
		post := func(body string) {
			t.Helper()
			out := s.post(body)
			synctest.Wait()
			if out.Code != http.StatusAccepted {
				t.Fatalf("%d %s", out.Code, out.Body)
			}
		}
		kept := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		go func() { s.reads <- struct{}{} }() // one message
		post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
		before := kept()
		for id := range states {
			w.set(described(fmt.Sprint("state-", id), size))
			synctest.Wait()
			post(listOf(id+1, ""))
		}
		time.Sleep(time.Minute) // of the bubble: those that wait for room are refused
		synctest.Wait()
		if more := kept() - before; more > 96<<20 { // the last state twice, and half of the room
			t.Errorf("%d MiB are kept for %d lists of %d MiB", more>>20, states, size>>20)
		}
		close(s.reads)
		synctest.Wait()
		if held := w.bridge.Held(); held != 0 {
			t.Errorf("%d bytes are held when all is read", held)
		}
		s.hangUp()
	})
}
