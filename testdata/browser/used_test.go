package browser

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// busy is a capsule whose child has 64 MiB, and uses half a processor until there is the file %s. The capsule uses next to nothing.
const busy = `#!/usr/bin/env python3
import json, os, subprocess, sys, time

if sys.argv[1:] == ["child"]:
    held = bytearray(b"x" * (64 << 20))
    while not os.path.exists(%q):
        began = time.process_time()
        while time.process_time() - began < 0.05:
            pass
        time.sleep(0.05)
    time.sleep(3600)
child = subprocess.Popen([sys.executable, __file__, "child"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
print(json.dumps({"jsonrpc": "2.0", "method": "orla.hello", "params": {"name": "busy", "version": "1.0.0", "capabilities": []}}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}), flush=True)
child.kill()
`

// How far what is shown may be from what /proc says: the page shows whole MiB and tenths of a second, and the kernel counts in pages
// and in hundredths of a second.
const (
	memoryOff    = 2 << 20
	processorOff = 100 * time.Millisecond
)

// O2, O4: the memory and the processor time that the page shows of a tool are those that /proc has of its processes.
func TestO4MemoryAndProcessor(t *testing.T) {
	b := newTab(t)
	calm := filepath.Join(t.TempDir(), "calm")
	o := newOrla(t, folder(t, map[string]string{"busy/main.py": fmt.Sprintf(busy, calm), "busy/tool.yaml": toolFile("busy", ", hot_load: {watch: []}")}), "version: 1\n")
	o.eventually("it is ready", func() bool { return o.known("busy").State == "READY" })
	pids := tree(t, o.known("busy").Pid)
	if len(pids) != 2 {
		t.Fatalf("the capsule has the processes %v", pids)
	}
	memory := func(pids ...int) (sum int) {
		for _, pid := range pids {
			sum += field(t, pid, "VmRSS:") << 10
		}
		return sum
	}
	b.do(chromedp.Navigate(o.run("console", "--no-browser")))
	b.wait(`document.querySelector('.tools .tr:not(.head)')`)
	b.visit("#/tool/busy")
	fact := func(name string) string {
		return fmt.Sprintf(`([...document.querySelectorAll('.facts div')].find((d) => d.firstChild.textContent === %q)?.lastChild.textContent || '')`, name)
	}
	processor := func() time.Duration {
		t.Helper()
		text := b.text(fact("Processor"))
		seconds, err := strconv.ParseFloat(strings.TrimSuffix(text, " s"), 64)
		if err != nil {
			t.Fatalf("the page shows %q of a processor", text)
		}
		return time.Duration(seconds * float64(time.Second))
	}
	b.wait(fact("Processor"))
	b.wait(fact("Process") + `.endsWith('and 1 more')`)

	// While it works, what is shown grows, and is never more than what was used.
	changes, last := 0, time.Duration(0)
	for end := time.Now().Add(patience); changes < 3; time.Sleep(20 * time.Millisecond) {
		shown := processor()
		if used := cpu(pids...); shown > used+processorOff {
			t.Fatalf("the page shows %v of a processor, and its processes have used %v", shown, used)
		}
		if shown != last {
			changes, last = changes+1, shown
		}
		if time.Now().After(end) {
			t.Fatalf("the page shows %v of a processor all the time; its processes have used %v", shown, cpu(pids...))
		}
	}

	// When it rests, the same is shown.
	if err := os.WriteFile(calm, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var why string
	o.eventually("the page shows the processor time of /proc", func() bool {
		shown, used := processor(), cpu(pids...)
		why = fmt.Sprintf("the page shows %v of a processor, and its processes have used %v", shown, used)
		return (shown - used).Abs() <= processorOff
	})
	t.Log(why)
	want := memory(pids...)
	if want < 64<<20 {
		t.Fatalf("the processes have %d bytes", want)
	}
	near := func(what, shown string, want, off int) {
		t.Helper()
		number, unit, _ := strings.Cut(strings.ReplaceAll(shown, "\u00a0", " "), " ")
		mib, err := strconv.ParseFloat(number, 64)
		t.Logf("%s: the page shows %q, /proc %d bytes", what, shown, want)
		if err != nil || unit != "MiB" || math.Abs(mib*(1<<20)-float64(want)) > float64(off) {
			t.Errorf("%s: the page shows %q, and /proc %.1f MiB", what, shown, float64(want)/(1<<20))
		}
	}
	near("a tool", b.text(fact("Memory")), want, memoryOff)
	b.visit("#/tools")
	b.wait(`document.querySelector('.tools .tr:not(.head) .c-memory_bytes')?.textContent`)
	near("the table of tools", b.text(`document.querySelector('.tools .tr:not(.head) .c-memory_bytes').textContent`), want, memoryOff)

	// The numbers of the last hour have a sample of the last 10 s.
	o.run("call", "busy")
	b.visit("#/numbers")
	note := `([...document.querySelectorAll('.panel')].find((e) => e.querySelector('h2').textContent === 'Memory')?.querySelector('figcaption .dim').textContent || '')`
	b.wait(note + `.startsWith('tools ') && document.querySelector('.plain tbody tr td:last-child')?.textContent`)
	near("the numbers of a tool", b.text(`document.querySelector('.plain tbody tr td:last-child').textContent`), want, memoryOff)
	all, own, _ := strings.Cut(b.text(note), ", Orla ")
	near("the numbers of all tools", strings.TrimPrefix(all, "tools "), want, memoryOff)
	near("the numbers of Orla", own, memory(o.cmd.Process.Pid), 8<<20) // it has worked since then
	b.fine()
}

// tree are a process and its descendants.
func tree(t *testing.T, root int) (pids []int) {
	t.Helper()
	above := parents(t)
	for pid := range above {
		for up := pid; up > 1; up = above[up] {
			if up == root {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
