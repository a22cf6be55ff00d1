package stdio

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/orla-project/orla/internal/mcp/linerpc"
	"github.com/orla-project/orla/internal/mcp/rpc"
)

// somewhere is a Process that is at a place, and whose streams the test has.
type somewhere struct {
	Process
	place         string
	stdin, stdout *os.File
}

func (s somewhere) Place() string { return s.place }
func (s somewhere) Streams() (stdin, stdout, stderr linerpc.Stream) {
	return s.stdin, s.stdout, s.stdout
}

// SPEC P3: requests to a process elsewhere have ids that cannot be guessed. What such a process said may be read from a
// log that has its stderr too.
func TestP3RequestsToAProcessElsewhereHaveRandomIDs(t *testing.T) {
	for place, numbered := range map[string]bool{"": true, "Pod a on node b": false} {
		stdin, sent := pipe(t)
		_, stdout := pipe(t)
		c := New(somewhere{place: place, stdin: sent, stdout: stdout}, Options{MaxMessage: 1 << 20})
		conn := c.Open(rpc.Options{})
		go func() { _, _ = conn.Call(t.Context(), rpc.Request{Method: "work"}) }() // the test's end ends it
		line, err := bufio.NewReader(stdin).ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ ID int64 }
		if err := json.Unmarshal(line, &got); err != nil || (got.ID == 1) != numbered {
			t.Errorf("at %q the first request is %s (%v)", place, line, err)
		}
		conn.Close(errors.New("over"))
	}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.Close()
		_ = w.Close()
	})
	return r, w
}
