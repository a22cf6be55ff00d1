package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// more reports whether ORLA_TEST_ROUNDS asks for more than the usual run has.
func more() bool {
	n, err := strconv.Atoi(os.Getenv("ORLA_TEST_ROUNDS"))
	return err == nil && n > 1
}

// cpu is the time that processes have used a processor, without that of their children.
func cpu(pids ...int) (used time.Duration) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended
		}
		_, after, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(after)
		for _, field := range fields[11:13] { // utime and stime, in hundredths of a second
			n, _ := strconv.Atoi(field)
			used += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return used
}

// parents are the processes of this machine, with the parent of each.
func parents(t *testing.T) map[int]int {
	t.Helper()
	of := map[int]int{}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range all {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue
		}
		_, after, _ := strings.Cut(string(stat), ") ")
		of[pid], _ = strconv.Atoi(strings.Fields(after)[1])
	}
	return of
}

// renderers are the processes of this test's browser that draw pages.
func renderers(t *testing.T) (pids []int) {
	t.Helper()
	above := parents(t)
	for pid := range above {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || !strings.Contains(string(line), "--type=renderer") {
			continue
		}
		for up := pid; up > 1; up = above[up] {
			if up == os.Getpid() {
				pids = append(pids, pid)
			}
		}
	}
	if len(pids) == 0 {
		t.Fatal("the browser has no process that draws pages")
	}
	return pids
}

// load is what Orla and the browser use a processor for, and what happened meanwhile.
type load struct {
	orla, page time.Duration
	wall       time.Duration
	events     int
}

// measure returns what is used until as many events as wanted have come.
func (o *orla) measure(pages []int, wanted int, events func() int) load {
	o.t.Helper()
	began, first, orla, page := time.Now(), events(), cpu(o.cmd.Process.Pid), cpu(pages...)
	last := first
	for last < first+wanted {
		if time.Since(began) > 4*patience {
			o.t.Fatalf("%d of %d events in %v", last-first, wanted, time.Since(began))
		}
		time.Sleep(500 * time.Millisecond) // between two looks, which cost something
		last = events()
	}
	return load{cpu(o.cmd.Process.Pid) - orla, cpu(pages...) - page, time.Since(began), last - first}
}

// each is how much of a processor is used for one event.
func (l *load) each() time.Duration { return l.orla / time.Duration(l.events) }

// percent is a share of one processor.
func percent(part, of time.Duration) float64 { return 100 * float64(part) / float64(of) }

// flapping is a capsule that ends as soon as it is ready, until there is the file %[1]s; and then too, if %[2]s is false.
const flapping = `#!/bin/sh
echo '{"jsonrpc":"2.0","method":"orla.hello","params":{"name":"%[3]s","version":"1.0.0","capabilities":[]}}'
if [ -e %[1]s ] && %[2]s; then while read -r line; do :; done; fi
echo "the disk is full" >&2
exit 3
`

// O4: many capsules that crash and start all the time: the page stays usable, draws only what is seen, and shows each
// state as orla status has it in the end.
func TestO4ManyCapsulesFlap(t *testing.T) {
	n, pause := 40, 1500
	if more() {
		n, pause = 1000, 20_000
	}
	b := newTab(t)
	calm, files := filepath.Join(t.TempDir(), "calm"), map[string]string{}
	for i := range n {
		name, becomes, failures := fmt.Sprintf("capsule-%04d", i), "true", 0
		if i%5 == 4 { // these never stay, and are given up
			becomes, failures = "false", 3
		}
		files[name+"/main.py"] = fmt.Sprintf(flapping, calm, becomes, name)
		files[name+"/tool.yaml"] = toolFile(name, fmt.Sprintf(", restart: {initial_ms: %d, max_ms: %d, max_failures: %d}, hot_load: {watch: []}", pause/2, pause, failures))
	}
	o := newOrla(t, folder(t, files), "version: 1\n")
	all := func() (states map[string]known) {
		var status struct{ Tools []known }
		if err := json.Unmarshal([]byte(o.run("status", "--json")), &status); err != nil {
			t.Fatal(err)
		}
		states = map[string]known{}
		for _, k := range status.Tools {
			states[k.Name] = k
		}
		return states
	}
	crashes := func() (sum int) {
		for _, k := range all() {
			sum += k.Restarts
		}
		return sum
	}
	o.measure(nil, n, crashes) // until they have all begun
	without := o.measure(nil, n, crashes)

	b.do(chromedp.Navigate(o.run("console", "--no-browser")))
	b.wait(fmt.Sprintf(`document.querySelector('.totals')?.textContent.startsWith('%s tool')`, map[bool]string{true: "1,000", false: strconv.Itoa(n)}[more()]))
	b.js(`(window.last = performance.now(), window.gap = 0, window.ticks = 0, setInterval(() => { const now = performance.now(); gap = Math.max(gap, now - last); last = now; ticks++; }, 20), 1)`)
	with := o.measure(renderers(t), n, crashes)
	rows, fit := b.number(`document.querySelectorAll('.tools .tr:not(.head)').length`), b.number(`Math.ceil(document.querySelector('.tools .rows').clientHeight / document.querySelector('.tools .tr:not(.head)').offsetHeight)`)
	if rows < 1 || rows > fit+14 {
		t.Errorf("%d rows are drawn, and %d are seen", rows, fit)
	}
	if ticks := b.number("ticks"); ticks < int(with.wall/time.Second) {
		t.Errorf("the page's thread was free %d times in %v", ticks, with.wall)
	}
	t.Logf("%d capsules, %.0f crashes a second: Orla uses %v for a crash without a page, and %.2f times that with one; the page uses %.1f %% of a processor, and did not answer for %d ms at most",
		n, float64(with.events)/with.wall.Seconds(), without.each(), float64(with.each())/float64(without.each()), percent(with.page, with.wall), b.number("Math.round(gap)"))

	if err := os.WriteFile(calm, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var want map[string]known
	for end := time.Now().Add(4 * patience); ; time.Sleep(200 * time.Millisecond) {
		want = all()
		moving := map[string]int{}
		for i := range n {
			if k := want[fmt.Sprintf("capsule-%04d", i)]; k.State != map[bool]string{true: "STOPPED", false: "READY"}[i%5 == 4] {
				moving[k.State+": "+k.Reason]++
			}
		}
		if len(moving) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("these capsules are not where they were to end: %v", moving)
		}
	}
	var wrong []string
	for end := time.Now().Add(patience); ; {
		wrong = nil
		shown := b.rows()
		for name, k := range want {
			if says := shown[name]; says[0] != words[k.State] || says[1] != strconv.Itoa(k.Restarts) {
				wrong = append(wrong, fmt.Sprintf("%s is %s after %d restarts, and the page says %q", name, k.State, k.Restarts, says))
			}
		}
		if len(wrong)+len(shown)-len(want) == 0 {
			break
		}
		if time.Now().After(end) {
			slices.Sort(wrong)
			t.Fatalf("of %d rows %d are wrong: %s", len(shown), len(wrong), strings.Join(wrong[:min(len(wrong), 5)], "; "))
		}
	}
	b.fine()
}

// number evaluates an expression that is a number.
func (b *tab) number(expression string) int {
	b.t.Helper()
	n, err := strconv.Atoi(b.js(expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return n
}

// rows scrolls through the table of tools, and returns the state and the restarts that it shows of each.
func (b *tab) rows() (shown map[string][2]string) {
	b.t.Helper()
	b.js(`(window.seen = null, (async () => {
		const all = {}, rows = document.querySelector('.tools .rows'), frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
		for (let top = 0; ; top += rows.clientHeight) {
			rows.scrollTop = top;
			await frame();
			for (const tr of rows.querySelectorAll('.tr')) all[tr.querySelector('a').textContent] = [tr.querySelector('.badge').textContent, tr.querySelector('.c-restarts').textContent];
			if (top + rows.clientHeight >= rows.scrollHeight) break;
		}
		rows.scrollTop = 0;
		window.seen = JSON.stringify(all);
	})(), 1)`)
	b.wait("window.seen")
	if err := json.Unmarshal([]byte(b.js("window.seen")), &shown); err != nil {
		b.t.Fatal(err)
	}
	return shown
}

// printing is a capsule that prints 10 000 lines a second.
const printing = `#!/usr/bin/env python3
import json, sys, threading, time

print(json.dumps({"jsonrpc": "2.0", "method": "orla.hello", "params": {"name": "printing", "version": "1.0.0", "capabilities": []}}), flush=True)

def flood():
    began, n = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - began) * 10000)
        if due > n:
            sys.stderr.write("".join(f"{i}: the quick brown fox jumps over the lazy dog, and says so\n" for i in range(n, due)))
            sys.stderr.flush()
            n = due
        time.sleep(0.01)

threading.Thread(target=flood, daemon=True).start()
for line in sys.stdin:
    pass
`

// O4: a tool prints 10 000 lines a second while a page shows them. What it costs is printed; what is checked does not
// depend on the machine: the newest lines are there, only those that are seen are drawn, and the rest is counted.
func TestO4ManyLinesAreShown(t *testing.T) {
	wanted := 30_000
	if more() {
		wanted = 300_000
	}
	b := newTab(t)
	o := newOrla(t, folder(t, map[string]string{"printing/main.py": printing, "printing/tool.yaml": toolFile("printing", "")}), "version: 1\n", "log_file: "+os.DevNull+"\n")
	last := func() int {
		_, text, _ := strings.Cut(o.run("logs", "printing", "-n", "1"), "printing")
		for _, word := range strings.Fields(text) {
			if n, err := strconv.Atoi(strings.Trim(word, `:"`)); err == nil {
				return n
			}
		}
		return 0
	}
	o.measure(nil, wanted/10, last) // until it runs
	without := o.measure(nil, wanted, last)
	b.do(chromedp.Navigate(o.run("console", "--no-browser")))
	b.wait(`document.querySelector('.tools .tr:not(.head)')`)
	pages := renderers(t)
	table := o.measure(pages, wanted, last)
	b.visit("#/logs/printing")
	b.wait(`document.querySelectorAll('.line').length > 10`)
	shows := o.measure(pages, wanted, last)
	t.Logf("lines a second %.0f: Orla uses %.2f %% of a processor without a page, %.2f %% more with the table of tools, %.2f %% more with the log; the page uses %.1f %% and %.1f %%",
		float64(shows.events)/shows.wall.Seconds(), percent(without.orla, without.wall), percent(table.orla, table.wall)-percent(without.orla, without.wall),
		percent(shows.orla, shows.wall)-percent(without.orla, without.wall), percent(table.page, table.wall), percent(shows.page, shows.wall))
	b.wait(`document.querySelector('.line')`) // there is none for a moment when the page has asked again
	rows, fit := b.number(`document.querySelectorAll('.line').length`), b.number(`Math.ceil(document.querySelector('.rows.log').clientHeight / document.querySelector('.line').offsetHeight)`)
	if rows > fit+14 {
		t.Errorf("%d lines are drawn, and %d are seen", rows, fit)
	}
	now := last()
	b.wait(fmt.Sprintf(`parseInt([...document.querySelectorAll('.line')].at(-1)?.lastChild.textContent) >= %d`, now))
	b.wait(`/left out/.test(document.querySelector('.logs .info').textContent)`)
	b.fine()
}
