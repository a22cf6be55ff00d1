package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// world is what a run happens in.
type world struct {
	opts   options
	book   *book
	folder *folder

	now     atomic.Pointer[life]
	lives   int        // how many there were; of the one that begins them
	logFile string     // of the life that is now; changes while no configuration is written
	single  sync.Mutex // held by whoever ends one life and begins the next
	alone   map[string]*sync.Mutex
	crowd   *crowd
	tenant  *http.Client // of the hostile tenant
}

func newWorld(o options, b *book) (*world, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &world{opts: o, book: b, alone: map[string]*sync.Mutex{}, tenant: httpAs(hostileToken)}
	for _, token := range []string{honestToken, hostileToken} {
		if err := os.WriteFile(w.tokenFile(token), []byte(token), 0o600); err != nil {
			return nil, err
		}
	}
	w.folder = &folder{dir: filepath.Join(o.dir, "tools"), aside: filepath.Join(o.dir, "aside"), locks: filepath.Join(o.dir, "locks"), self: self, seed: o.seed, hostile: o.hostile}
	for _, h := range harms() {
		w.alone[h.name] = &sync.Mutex{}
	}
	w.writeConfig(w.config())
	return w, w.folder.whole("v0")
}

// config is the configuration, all of which a call may feel.
func (w *world) config() string {
	return fmt.Sprintf("tools_dir: %s\nlog_file: %q\nport: 0\ntimeout: %s\nqueue_timeout: 5s\nshutdown_grace: 3s\nmax_message: 1MiB\nmax_inline: 1MiB\nmax_concurrent_calls: 16\nstate_dir: %s\nauth: {tokens: [{name: honest, file: %s}, {name: hostile, file: %s}]}\n",
		w.folder.dir, w.logFile, callTimeout, filepath.Join(w.opts.dir, "state", "orla"), w.tokenFile(honestToken), w.tokenFile(hostileToken))
}

// The tokens of the two tenants.
const (
	honestToken  = "honest-0123456789abcdef0123456789abcdef"
	hostileToken = "hostile-0123456789abcdef0123456789abcdef"
)

func (w *world) tokenFile(token string) string {
	name, _, _ := strings.Cut(token, "-")
	return filepath.Join(w.opts.dir, name+".token")
}

// httpAs returns an HTTP client that shows a token.
func httpAs(token string) *http.Client {
	return &http.Client{Transport: bearer{&http.Transport{MaxIdleConnsPerHost: 64}, token}}
}

type bearer struct {
	*http.Transport
	token string
}

// RoundTrip makes a request with the token.
func (b bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+b.token)
	return b.Transport.RoundTrip(req)
}

// callTimeout is the longest that a call may take Orla.
const callTimeout = 8 * time.Second

func (w *world) writeConfig(text string) {
	if err := w.folder.save(filepath.Join(w.opts.dir, "orla.yaml"), text); err != nil {
		w.book.violated("harness", "%v", err)
	}
}

func (w *world) manifestPath(tool string) string {
	return filepath.Join(w.folder.dir, tool, "tool.yaml")
}

// save, saveManifest and saveAll write what a storm changes. A folder that is
// away is made anew by whoever took it.
func (w *world) save(tool string, c character) {
	if _, err := os.Stat(w.folder.dir); err == nil {
		_ = w.folder.save(w.folder.file(sortOf(tool)), w.folder.program(sortOf(tool), c)) // see above
	}
}

func (w *world) saveManifest(tool, more string) {
	if _, err := os.Stat(filepath.Dir(w.manifestPath(tool))); err == nil {
		_ = w.folder.save(w.manifestPath(tool), w.folder.manifest(sortOf(tool), more)) // see above
	}
}

func (w *world) saveAll() { _ = w.folder.whole(w.folder.version) } // see above

// life is the Orla that runs now, or the last one that did.
func (w *world) life() *life { return w.now.Load() }

// begin starts an Orla.
func (w *world) begin(ctx context.Context) error {
	// Every other life logs to a file, on the disk that is full at times.
	w.logFile = ""
	if w.lives%2 == 1 && !w.opts.jump { // what comes by two ways is put in order by its time
		w.logFile = filepath.Join(w.opts.dir, "state", "orla.log")
		_ = os.Remove(w.logFile) // of a life before
	}
	w.writeConfig(w.config())
	l, err := startLife(ctx, w.opts, w.book, w.lives, w.logFile)
	w.lives++
	if err != nil {
		return err
	}
	w.now.Store(l)
	return nil
}

// succeed waits for a life's end, looks at what it has left, and begins the next.
// The caller holds single.
func (w *world) succeed(ctx context.Context, l *life, by string) {
	if !eventually(patience, l.isOver) {
		w.book.violated("end", "Orla does not end on %s within %s", by, patience)
		return
	}
	var left []string
	if !eventually(leftovers, func() bool { left = leftBehind(); return len(left) == 0 }) {
		w.book.violated("D3", "%s after Orla's end by %s there is left: %s", leftovers, by, strings.Join(left, "; "))
	}
	w.book.count(w.book.checks, "nothing left after "+by, 1)
	for _, harm := range []string{brokenConfiguration, noFolder} {
		w.alone[harm].Lock()
		defer w.alone[harm].Unlock()
	}
	if err := w.begin(context.WithoutCancel(ctx)); err != nil {
		w.book.violated("start", "after %s: %v", by, err)
	}
}

// leftovers is how long what a dead Orla started may take to go.
const leftovers = 10 * time.Second

// leftBehind names all processes but those of the operator's commands.
func leftBehind() (left []string) {
	for _, p := range census() {
		byHand := slices.ContainsFunc([]string{" restart", " stop", " start", " reload", " status", " tools", " logs"}, func(c string) bool {
			return strings.Contains(p.command, "orla.yaml"+c)
		})
		if !byHand && !p.dead {
			left = append(left, fmt.Sprintf("%d %s (%s)", p.pid, p.command, p.tool))
		}
	}
	return left
}

// operate runs one of the operator's commands.
func (w *world) operate(ctx context.Context, args ...string) {
	code, text := w.life().command(context.WithoutCancel(ctx), w.opts, args...)
	switch {
	case code == 0 || code == 1: // what did not start is told of so
	case w.book.excusesAll():
	case code == 4: // the configuration is broken just now
	default:
		w.book.violated("command", "orla %s ends with %d: %.300s", strings.Join(args, " "), code, text)
	}
}

// eventually reports whether something becomes true in a time.
func eventually(long time.Duration, ok func() bool) bool {
	deadline := time.NewTimer(long)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return ok()
		}
	}
	return true
}
