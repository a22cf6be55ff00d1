package browser

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestO1HowMuchOfTheProgram measures what the console takes of the program: its files, and the code of the packages that
// are there for it alone.
func TestO1HowMuchOfTheProgram(t *testing.T) {
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "tool", "nm", "-size", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	code := map[string]int{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[2] == "b" || fields[2] == "B" { // not in the file
			continue
		}
		for _, of := range []string{"internal/console.", "internal/app/decisions.", "internal/app/arguments.", "internal/call/approvals/passkey."} {
			if size, err := strconv.Atoi(fields[1]); err == nil && strings.Contains(line, "/orla/"+of) {
				code[of] += size
			}
		}
	}
	files := 0
	pages, err := filepath.Glob(filepath.Join("..", "..", "internal", "console", "page", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		info, err := os.Stat(page)
		if err != nil {
			t.Fatal(err)
		}
		files += int(info.Size())
	}
	total := files
	for _, size := range code {
		total += size
	}
	t.Logf("the console takes %.3f MiB of the program: %d bytes of files, and code %v", float64(total)/(1<<20), files, code)
	if len(code) != 4 || total > 300<<10 {
		t.Errorf("it has %d bytes", total)
	}
}

// TestO4NobodyLooks prints what an Orla uses that does nothing: with the console, without it, and after a page was closed.
func TestO4NobodyLooks(t *testing.T) {
	b := newTab(t)
	files := map[string]string{"hello": "#!/bin/sh\necho hi\n"}
	n := 3
	if more() {
		n = 10
	}
	for i := range n {
		name := fmt.Sprintf("capsule-%d", i)
		files[name+"/main.py"], files[name+"/tool.yaml"] = faults(name, ""), toolFile(name, "")
	}
	tools := folder(t, files)
	with, without := newOrla(t, tools, "version: 1\n"), newOrla(t, tools, "version: 1\n", "console: off\n")
	for _, o := range []*orla{with, without} {
		o.eventually("all are ready", func() bool { return strings.Count(o.run("status", "--json"), `"READY"`) >= n })
	}
	look := func(when string) {
		t.Helper()
		pids := []int{with.cmd.Process.Pid, without.cmd.Process.Pid}
		before := [2][2]int{{int(cpu(pids[0])), switches(t, pids[0])}, {int(cpu(pids[1])), switches(t, pids[1])}}
		quiet := 2 * time.Second
		if more() {
			quiet = time.Minute
		}
		time.Sleep(quiet) // this is what is measured
		for i, name := range []string{"with the console", "with console: off"} {
			t.Logf("%s, %s: in %v %v of a processor and %d context switches; memory %d KiB", when, name, quiet,
				cpu(pids[i])-time.Duration(before[i][0]), switches(t, pids[i])-before[i][1], field(t, pids[i], "VmRSS:"))
		}
	}
	look("before a page")
	b.do(chromedp.Navigate(with.run("console", "--no-browser")))
	b.wait(fmt.Sprintf(`document.querySelectorAll('.tools .tr:not(.head)').length === %d`, n+1))
	look("with a page")
	b.do(chromedp.Navigate("about:blank"))
	look("after a page")
}

// switches is how often the threads of a process gave up a processor.
func switches(t *testing.T, pid int) (sum int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		id, _ := strconv.Atoi(filepath.Base(thread))
		sum += field(t, id, "voluntary_ctxt_switches:")
	}
	return sum
}

// field is a number of /proc/PID/status; 0 if the thread has ended.
func field(t *testing.T, pid int, name string) int {
	t.Helper()
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	return 0
}
