package program

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC C5, G7: 64 MiB in either direction are refused or cut, and Orla goes on.
func TestFloodsAreBounded(t *testing.T) {
	t.Parallel()
	needs.Time(t, "prints a lot")
	flood := 256 << 20 // more than the peak of memory may be
	if needs.More() {
		flood = 1 << 30
	}
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "flood.sh", fmt.Sprintf("#!/bin/sh\n# /// tool\n# timeout: 5m\n# ///\nhead -c %d /dev/zero | tr '\\0' x\n", flood))
	testkit.WriteTool(t, tools, "bytes.sh", "#!/bin/sh\nprintf '\\377\\376'\n")
	testkit.WriteTool(t, tools, "closes.sh", "#!/bin/sh\nexec >&- 2>&-\nsleep 0.1\nexit 4\n")
	o := serveOrla(t, tools)
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":"` + strings.Repeat("x", 64<<20) + `"}}}`
	resp, err := http.Post(o.url, "application/json", strings.NewReader(body))
	if err == nil {
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("64 MiB body: HTTP %d", resp.StatusCode)
		}
		_ = resp.Body.Close()
	} // else: the connection was closed while we wrote, which is right too
	a, err := o.call("flood", "{}")
	if err != nil || a.Result == nil || a.Result.IsError || a.Result.Meta["stdout_dropped"] != float64(flood-8<<20) {
		t.Errorf("flood: %+v, %v", a, err)
	}
	if peak := peakMemory(t, o.cmd.Process.Pid); peak > 200<<20 {
		t.Errorf("peak memory is %d MiB after a tool printed %d MiB", peak>>20, flood>>20)
	}
	if a, err := o.call("bytes", "{}"); err != nil || a.Result.Content[0].Type != "resource" {
		t.Errorf("bytes: %+v, %v", a, err)
	}
	if a, err := o.call("closes", "{}"); err != nil || a.Result.Meta["exit_code"] != 4.0 {
		t.Errorf("closes: %+v, %v", a, err)
	}
}

// peakMemory is the largest resident size of a process so far, in bytes.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	return statusField(t, pid, "VmHWM:") << 10
}

func statusField(t *testing.T, pid int, name string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s in the status of %d", name, pid)
	return 0
}

// SPEC F3: after 10 000 calls, descriptors, goroutines and memory are where
// they were.
func TestF3NothingLeaksOver10000Calls(t *testing.T) {
	t.Parallel()
	needs.Time(t, "makes thousands of calls")
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "quick.sh", "#!/bin/sh\necho done\n")
	o := serveOrla(t, tools)
	run := func(n int) {
		var left atomic.Int64
		left.Store(int64(n))
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					a, err := o.call("quick", "{}")
					if err != nil || a.Result == nil || a.Result.IsError {
						t.Errorf("call: %+v, %v", a, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	run(300)      // what pools and caches need is there now
	calls := 1200 // a descriptor or a goroutine of each hundredth call would be found
	if needs.More() {
		run(1000)
		calls = 10_000
	}
	o.staysFlat(8, func() { run(calls) })
}

// staysFlat checks that what load does leaves no descriptor, goroutine or memory
// behind, but for a few descriptors.
func (o *running) staysFlat(few int, load func()) {
	o.t.Helper()
	pid := o.cmd.Process.Pid
	look := func() (fds, goroutines int) {
		before := o.count("summary", nil)
		o.signal(syscall.SIGUSR1)
		testkit.Eventually(o.t, "the state is logged", func() bool { return o.count("summary", nil) > before })
		log, line := o.follow(), map[string]any{}
		for range before + 1 {
			line = log.next("summary", nil)
		}
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			o.t.Fatal(err)
		}
		g, _ := line["goroutines"].(float64)
		return len(entries), int(g)
	}
	fds, goroutines := look()
	rss := statusField(o.t, pid, "VmRSS:")
	load()
	var fds2, goroutines2 int
	testkit.Eventually(o.t, "descriptors and goroutines are back", func() bool {
		fds2, goroutines2 = look()
		return fds2 <= fds+few && goroutines2 <= goroutines+8 // idle connections come and go
	})
	var rss2 int
	testkit.Eventually(o.t, "memory is given back", func() bool { // when it is quiet: nothing is asked for meanwhile
		rss2 = statusField(o.t, pid, "VmRSS:")
		return rss2 <= rss+rss/2+8<<10
	})
	o.t.Logf("fds %d → %d, goroutines %d → %d, RSS %d → %d KiB", fds, fds2, goroutines, goroutines2, rss, rss2)
}
