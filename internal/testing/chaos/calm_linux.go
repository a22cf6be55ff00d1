package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// calm mends all that a storm has broken and looks whether everything is whole
// again. It reports false if that is not worth another storm.
func (w *world) calm(ctx context.Context, version string) bool {
	w.mend(ctx, version)
	for _, s := range sorts() {
		if !w.live(ctx, s, version) {
			return false
		}
	}
	w.book.event("everything is whole")
	w.rotate(ctx)
	whole := w.settled()
	w.quiet(ctx)
	w.checkLists(ctx)
	w.readJournal()
	w.flat(ctx)
	return whole
}

// mend makes everything what it should be.
func (w *world) mend(ctx context.Context, version string) {
	for _, limit := range []string{maxWatches, maxInstances} {
		if err := os.WriteFile(limit, []byte(plenty), 0o644); err != nil {
			w.book.violated("harness", "%v", err)
		}
	}
	_ = os.Remove(filepath.Join(w.opts.dir, "state", "ballast")) // there may be none
	for _, p := range census() {
		_ = syscall.Kill(p.pid, syscall.SIGCONT) // it may be over
	}
	w.writeConfig(w.config())
	comes, _ := filepath.Glob(filepath.Join(w.folder.dir, "comes*")) // the pattern is good
	for _, path := range comes {
		_ = os.Remove(path) // it was there
	}
	if err := w.folder.whole(version); err != nil {
		w.book.violated("harness", "%v", err)
	}
	if code, text := w.life().command(ctx, w.opts, "start", "--all"); code > 1 {
		w.book.violated("command", "orla start --all ends with %d: %s", code, text)
	}
	w.book.event("mended")
}

// rotate does to a log what logrotate does, and has all of it judged that came.
func (w *world) rotate(ctx context.Context) {
	l := w.life()
	if l.file == nil {
		return
	}
	if !eventually(patience/4, l.file.caughtUp) {
		w.book.violated("harness", "%s is not read to its end", l.file.path)
	}
	wait(ctx, 300*time.Millisecond) // the other way may be slower
	l.judgeApart()
	if err := os.Rename(l.file.path, l.file.path+".1"); err != nil {
		w.book.violated("log", "rotation: %v", err)
	}
	l.signal(syscall.SIGHUP)
	if !eventually(patience/4, func() bool { _, err := os.Stat(l.file.path); return err == nil }) {
		w.book.violated("I1", "log_file is not opened anew on SIGHUP")
	}
	w.book.count(w.book.checks, "rotation", 1)
}

// live waits until a tool answers with what was saved last (SPEC E1, H3).
func (w *world) live(ctx context.Context, s sort, version string) bool {
	cl := &client{http: w.crowd.http, url: w.life().url}
	var last outcome
	restarted := false
	if eventually(patience, func() bool {
		last = w.plainly(ctx, cl, s)
		if strings.Contains(last.text, startsIt) { // it came back when all the others were started
			w.operate(ctx, "start", s.name)
		}
		if s.offers != nil && strings.Contains(last.text, "unknown tool") { // as before, and it was away when Orla started
			_, _ = w.life().command(ctx, w.opts, "start", s.name) // it may not be back yet
		}
		if !restarted && w.life().isUnwatched(s.name) { // the log says that it takes this
			restarted = true
			w.operate(ctx, "restart", s.name)
		}
		return last.String() == "ok" && strings.Fields(last.text)[1] == version
	}) {
		return true
	}
	w.book.violated("E1", "%s does not come back as %s within %s: %s %.300q", s.name, version, patience, last, last.text)
	for _, watched := range kernelWatches(w.life().pid()) {
		w.book.event("%s", watched)
	}
	return false
}

// kernelWatches returns the file watches that the kernel has for a process, as /proc shows
// them, and whatever says that they cannot be read.
func kernelWatches(pid int) (lines []string) {
	infos := fmt.Sprintf("/proc/%d/fdinfo", pid)
	open, err := os.ReadDir(infos)
	if err != nil {
		return []string{err.Error()}
	}
	for _, fd := range open {
		info, err := os.ReadFile(filepath.Join(infos, fd.Name()))
		if err != nil {
			continue // it was closed meanwhile
		}
		for line := range strings.Lines(string(info)) {
			if strings.HasPrefix(line, "inotify") {
				lines = append(lines, "descriptor "+fd.Name()+": "+strings.TrimSpace(line))
			}
		}
	}
	return lines
}

// plainly makes one call without any whims.
func (w *world) plainly(ctx context.Context, cl *client, s sort) outcome {
	own, cancel := context.WithTimeout(ctx, lostAfter)
	defer cancel()
	o := cl.call(own, s, request{Nonce: fmt.Sprintf("q%d", w.nonce())}, w.crowd.ids.Add(1))
	for _, f := range judgeAnswer(o) {
		w.book.violated("answer", "%s", f)
	}
	return o
}

func (w *world) nonce() int64 { return w.crowd.ids.Add(1) }

// settled waits until there are the processes that there should be, and no more:
// one of each capsule that does not sleep, and Orla's guard (SPEC D2, F3).
func (w *world) settled() bool {
	var odd []string
	whole := eventually(patience/2, func() bool {
		odd = nil
		counts, guards, orla := map[string]int{}, 0, w.life().pid()
		for _, p := range census() {
			switch {
			case p.pid == orla:
			case p.tool == hostileName && p.role == roleHostile: // it may be between two starts
			case p.role == roleCapsule:
				counts[p.tool]++
			case p.parent == orla && p.tool == "" && !p.dead:
				guards++
			default:
				odd = append(odd, fmt.Sprintf("%d %s (of %s, zombie: %t)", p.pid, p.command, p.tool, p.dead))
			}
		}
		for _, s := range sorts() {
			want := 1
			if s.kind == aSimpleTool || s.sleeps {
				want = 0
			}
			if counts[s.name] != want {
				odd = append(odd, fmt.Sprintf("%d processes of %s", counts[s.name], s.name))
			}
		}
		if guards != 1 {
			odd = append(odd, fmt.Sprintf("%d guards", guards))
		}
		return len(odd) == 0
	})
	if !whole {
		w.book.violated("F3", "in the calm there are: %s", strings.Join(odd, "; "))
	}
	w.book.count(w.book.checks, "processes in the calm", 1)
	return whole
}

// quiet calls everything without any harm: every call has to succeed, and nobody
// may be told of changes that there are not (SPEC G3, H2, E3).
func (w *world) quiet(ctx context.Context) {
	if !eventually(patience/2, func() bool {
		code, _, err := w.get(ctx, w.life(), "/readyz")
		return err == nil && code == http.StatusOK
	}) {
		w.book.violated("health", "/readyz is not 200 in the calm")
	}
	told := func() (n int) {
		for _, s := range w.crowd.sessions {
			n += s.told()
		}
		return n
	}
	// What was mended after the storm is read now, not in the middle of the calm,
	// and may be told a moment later.
	w.life().signal(syscall.SIGHUP)
	before, since := told(), time.Now()
	eventually(patience/4, func() bool {
		if n := told(); n != before {
			before, since = n, time.Now()
		}
		return time.Since(since) > 500*time.Millisecond
	})

	var all sync.WaitGroup
	for _, s := range sorts() {
		all.Go(func() {
			dice := rand.New(rand.NewPCG(w.opts.seed, uint64(w.book.number())))
			for i := range 12 {
				cl := &client{http: w.crowd.http, url: w.life().url}
				if held := w.crowd.sessions[i%len(w.crowd.sessions)].client(); held != nil && i%2 == 0 {
					cl = held
				}
				r := w.crowd.ask(dice, s, true)
				own, cancel := context.WithTimeout(ctx, lostAfter)
				o := cl.call(own, s, r, w.crowd.ids.Add(1))
				cancel()
				w.book.judge(o, true)
			}
		})
	}
	all.Go(func() {
		for range 20 {
			w.life().signal(syscall.SIGHUP)
			wait(ctx, 5*time.Millisecond)
		}
		w.saveAll() // the same as is there
	})
	all.Wait()
	wait(ctx, 300*time.Millisecond)
	if n := told(); n != before {
		w.book.violated("G3", "clients were told %d times of changes of the list that there were not", n-before)
	}
	w.book.count(w.book.checks, "quiet", 1)
}

// checkLists adds a tool and looks whether those who have a session are told,
// and what all are listed (SPEC G3, H3).
func (w *world) checkLists(ctx context.Context) {
	before := make([]int, len(w.crowd.sessions))
	for i, s := range w.crowd.sessions {
		if !eventually(patience/2, func() bool { return s.client() != nil }) {
			w.book.violated("session", "session %d has no stream in the calm", i)
			return
		}
		before[i] = s.told()
	}
	path := filepath.Join(w.folder.dir, "comes.sh")
	if err := w.folder.save(path, w.folder.program(sort{name: "comes", kind: aSimpleTool}, character{version: "c"})); err != nil {
		w.book.violated("harness", "%v", err)
	}
	for i, s := range w.crowd.sessions {
		if !eventually(patience/2, func() bool { return s.told() > before[i] }) {
			w.book.violated("G3", "session %d is not told of a tool that was added", i)
		}
	}
	_ = os.Remove(path) // it was just written
	want := []string{}
	for _, s := range sorts() {
		if s.offers == nil {
			want = append(want, s.name)
		}
		for _, name := range s.offers {
			want = append(want, s.name+"__"+name)
		}
	}
	slices.Sort(want)
	cl := &client{http: w.crowd.http, url: w.life().url}
	var names []string
	var err error
	if !eventually(patience/2, func() bool {
		names, err = cl.list(ctx)
		names = slices.DeleteFunc(names, func(name string) bool {
			return strings.HasPrefix(name, hostileName+"__") || name == hostileName || name == hostileTool
		})
		slices.Sort(names)
		return slices.Equal(names, want)
	}) {
		w.book.violated("G3", "tools/list has %v (%v); want %v", names, err, want)
	}
	w.book.count(w.book.checks, "lists", 1)
}

// readJournal looks through what tools have noted: a call reaches a tool once
// (SPEC D2, F3).
func (w *world) readJournal() {
	path := filepath.Join(w.opts.dir, "journal")
	text, err := os.ReadFile(path)
	if err != nil {
		w.book.violated("harness", "%v", err)
		return
	}
	for _, f := range judgeJournal(string(text)) {
		w.book.violated("journal", "%s", f)
	}
	w.book.count(w.book.checks, "calls that reached a tool", strings.Count(string(text), "\nran "))
	_ = os.Remove(path) // it was just read, and nobody calls
}

// level is how much Orla holds at one moment.
type level struct {
	descriptors int
	goroutines  int // beside those of sessions
	memory      int // bytes
}

// flat compares what Orla holds with what it held after its first storm
// (SPEC F3).
func (w *world) flat(ctx context.Context) {
	l := w.life()
	w.crowd.http.CloseIdleConnections()
	w.tenant.CloseIdleConnections()
	if l.base == nil {
		now, err := w.level(ctx, l)
		if err != nil {
			w.book.violated("harness", "metrics: %v", err)
			return
		}
		l.base = &now
		return
	}
	var now level
	var err error
	if !eventually(patience/2, func() bool {
		now, err = w.level(ctx, l)
		return err == nil && now.descriptors <= l.base.descriptors+10 && now.goroutines <= l.base.goroutines+12
	}) {
		w.book.violated("F3", "descriptors and goroutines were %d and %d after the first storm, and are %d and %d (%v)",
			l.base.descriptors, l.base.goroutines, now.descriptors, now.goroutines, err)
	}
	if now.memory > l.base.memory*3/2+32<<20 {
		w.book.violated("F3", "memory was %d MiB after the first storm and is %d MiB", l.base.memory>>20, now.memory>>20)
	}
	w.book.event("Orla holds %d descriptors, %d goroutines, %d MiB; after its first storm %d, %d, %d", now.descriptors, now.goroutines, now.memory>>20, l.base.descriptors, l.base.goroutines, l.base.memory>>20)
	w.book.count(w.book.checks, "flat", 1)
}

// level reads Orla's metrics.
func (w *world) level(ctx context.Context, l *life) (level, error) {
	code, text, err := w.get(ctx, l, "/metrics")
	if err != nil || code != http.StatusOK {
		return level{}, fmt.Errorf("HTTP %d, %w", code, err)
	}
	read := func(name string) int {
		for line := range strings.Lines(text) {
			if rest, ok := strings.CutPrefix(line, name+" "); ok {
				f, _ := strconv.ParseFloat(strings.TrimSpace(rest), 64) // 0 is seen to be wrong
				return int(f)
			}
		}
		return 0
	}
	now := level{read("process_open_fds"), read("go_goroutines"), read("process_resident_memory_bytes")}
	// Each session that a client left behind has one until it is over, for hours.
	now.goroutines -= read("orla_sessions")
	if now.descriptors == 0 || now.goroutines == 0 || now.memory == 0 {
		return now, fmt.Errorf("metrics are missing: %+v", now)
	}
	return now, nil
}

// get asks for one of Orla's own pages.
func (w *world) get(ctx context.Context, l *life, path string) (code int, text string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url+path, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := w.crowd.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw), err
}
