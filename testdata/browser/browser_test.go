// Package browser tests the console in a real browser.
package browser

import (
	"context"
	_ "embed" // for accessible
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// patience bounds every wait of these tests.
const patience = time.Minute

//go:embed accessible.js
var accessible string

// orla is a running Orla that serves a folder of tools.
type orla struct {
	t       *testing.T
	program string
	dir     string
	tools   string
	port    string
	cmd     *exec.Cmd
}

// built is the program, linked once for all tests, in a folder that TestMain removes.
var (
	built    = sync.OnceValues(build)
	builtDir string
)

func TestMain(m *testing.M) {
	var err error
	if builtDir, err = os.MkdirTemp("", "orla-browser-*"); err != nil {
		panic(err)
	}
	code := m.Run()
	endChromium()
	_ = os.RemoveAll(builtDir) // a temporary folder
	os.Exit(code)
}

// build compiles the program as make build does, but leaves in which symbols there are.
func build() (string, error) {
	program := filepath.Join(builtDir, "orla")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-w", "-o", program, "./cmd/orla")
	cmd.Dir, cmd.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return program, nil
}

// newOrla serves tools, with an orla.lock and more settings.
func newOrla(t *testing.T, tools, locked string, settings ...string) *orla {
	t.Helper()
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	o := &orla{t: t, tools: tools, dir: t.TempDir(), program: program, port: "0"}
	for name, text := range map[string]string{"orla.yaml": "audit_log: " + filepath.Join(o.dir, "audit.log") + "\n" + strings.Join(settings, ""), "orla.lock": locked} {
		if err := os.WriteFile(filepath.Join(o.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.start()
	t.Cleanup(o.stop)
	return o
}

// lock is an orla.lock of a package that is not there, and whose source tries to run code.
const lock = `version: 1
packages:
  - name: weather
    version: 1.2.0
    source: {kind: git, url: '<img src=x onerror="window.owned=1">'}
    tag: v1.2.0
    digest: h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
    permissions: ['filesystem:read:~/notes', 'network:api.example.com']
    unenforced: ['network:api.example.com']
  - name: weather
    version: 1.1.0
    source: {kind: local, url: /srv/weather}
    digest: h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
`

func (o *orla) command(args ...string) *exec.Cmd {
	cmd := exec.Command(o.program, args...)
	cmd.Env = append(os.Environ(), "HOME="+o.dir, "XDG_RUNTIME_DIR="+o.dir, "XDG_STATE_HOME="+o.dir)
	return cmd
}

func (o *orla) start() {
	o.t.Helper()
	o.cmd = o.command("--tools-dir", o.tools, "--port", o.port, "--config", filepath.Join(o.dir, "orla.yaml"))
	if err := o.cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
	o.eventually("Orla serves", func() bool {
		status, err := o.command("status", "--json", "--tools-dir", o.tools).Output()
		_, after, _ := strings.Cut(string(status), `"url":`)
		_, after, _ = strings.Cut(after, "127.0.0.1:")
		port, _, found := strings.Cut(after, "/")
		if err == nil && found {
			o.port = port
		}
		return err == nil && found
	})
}

func (o *orla) stop() {
	_ = o.cmd.Process.Signal(syscall.SIGTERM)
	_ = o.cmd.Wait()
}

func (o *orla) run(args ...string) string {
	o.t.Helper()
	out, err := o.command(append(args, "--tools-dir", o.tools)...).Output()
	if err != nil {
		o.t.Fatalf("orla %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

// status is what orla status says of the capsule evil.
func (o *orla) status() (pid int, state string) {
	o.t.Helper()
	var all struct {
		Tools []struct {
			Name, State string
			Pid         int
		}
	}
	if err := json.Unmarshal([]byte(o.run("status", "--json")), &all); err != nil {
		o.t.Fatal(err)
	}
	for _, t := range all.Tools {
		if t.Name == "evil" {
			return t.Pid, t.State
		}
	}
	return 0, ""
}

func (o *orla) eventually(what string, ok func() bool) {
	o.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(100 * time.Millisecond) { // most start a program to look
		if time.Now().After(end) {
			o.t.Fatalf("not in time: %s", what)
		}
	}
}

// tab is a page in a browser.
type tab struct {
	t   *testing.T
	ctx context.Context
	mu  sync.Mutex
	bad []string // exceptions, violations of the policy, and requests that failed
	// moved says that the browser has ended its requests, since this machine has other networks than before: another test of
	// this machine made or removed one.
	moved bool
}

// chromium is the browser of all tests, since each start takes a second of a processor.
var (
	chromium    = sync.OnceValues(startChromium)
	endChromium = func() {} // what ends it, once it runs
)

// chromiumPath is the program.
func chromiumPath() string {
	if program := os.Getenv("CHROMIUM"); program != "" {
		return program
	}
	return "chromium"
}

func startChromium() (context.Context, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.ExecPath(chromiumPath()))
	allocator, endAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, endBrowser := chromedp.NewContext(allocator)
	endChromium = func() { endBrowser(); endAllocator() }
	return ctx, chromedp.Do(ctx, chromedp.Navigate("about:blank"))
}

// newTab opens a page in a window that has cookies, storage and connections of its own.
func newTab(t *testing.T) *tab {
	t.Helper()
	if _, err := exec.LookPath(chromiumPath()); err != nil {
		if os.Getenv("ORLA_TEST_CLIENTS") == "require" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	browser, err := chromium()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, func(ev any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := ev.(type) {
		case *runtime.EventExceptionThrown:
			b.bad = append(b.bad, "exception: "+e.ExceptionDetails.Text)
		case *cdplog.EventEntryAdded:
			if strings.Contains(e.Entry.Text, "ERR_NETWORK_CHANGED") {
				b.moved = true
				return
			}
			b.bad = append(b.bad, e.Entry.Text)
		}
	}); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, cdplog.Enable, cdp.Empty{})
		return err
	}), chromedp.EmulateViewport(1440, 900))
	return b
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// js evaluates an expression, as text.
func (b *tab) js(expression string) string {
	b.t.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String("+expression+")"))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return text
}

// wait waits until an expression is true. While the tab goes to another page there is nothing to look at. A page that broke
// off when the networks of this machine changed is loaded again.
func (b *tab) wait(expression string) {
	b.t.Helper()
	holds := func() bool {
		text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String(Boolean("+expression+"))"))
		if err != nil && !strings.Contains(err.Error(), "navigated") {
			b.t.Fatalf("%s: %v", expression, err)
		}
		return err == nil && text == "true"
	}
	pause := 10 * time.Millisecond
	for end := time.Now().Add(patience); !holds(); time.Sleep(pause) {
		pause = min(pause*3/2, 100*time.Millisecond)
		b.mu.Lock()
		moved := b.moved
		b.moved = false
		b.mu.Unlock()
		if moved && b.js(`Boolean(document.querySelector('.late'))`) == "true" {
			b.js(`(location.reload(), 1)`)
		}
		if time.Now().After(end) {
			b.mu.Lock()
			bad := strings.Join(b.bad, "\n")
			b.mu.Unlock()
			b.t.Fatalf("not in time: %s\n%s\n%s", expression, b.js("document.body.innerText"), bad)
		}
	}
}

// click clicks on the element that an expression finds, as soon as there is one that takes clicks: between two looks, the page may
// have drawn another.
func (b *tab) click(element string) {
	b.t.Helper()
	b.wait(`((e) => e && !e.disabled && (e.click(), true))(` + element + `)`)
}

func (b *tab) visit(hash string) {
	b.t.Helper()
	b.js(fmt.Sprintf("(location.hash = %q, 1)", hash))
}

// fine fails if code of a tool ran, or something else was wrong.
func (b *tab) fine() {
	b.t.Helper()
	if b.js("window.owned") != "undefined" {
		b.t.Error("code of a tool ran in the page")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range b.bad {
		b.t.Error(text)
	}
	b.bad = nil
}

func TestConsole(t *testing.T) {
	b := newTab(t)
	o := newOrla(t, "tools", lock)
	link := o.run("console", "--no-browser")
	b.do(chromedp.Navigate(link))
	b.wait(`document.querySelectorAll('.tools .tr:not(.head)').length === 2`)
	if at := b.js("location.href"); strings.Contains(at, "login") || b.js("document.cookie") != "" {
		t.Errorf("after the login the page is at %s, and sees the cookie %q", at, b.js("document.cookie"))
	}

	t.Run("keyboard", func(t *testing.T) {
		b.js(`document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '/', bubbles: true, cancelable: true}))`) // chromedp types it, whatever the page says
		b.wait(`document.activeElement.type === 'search'`)
		b.do(chromedp.KeyEvent("hel"))
		b.wait(`document.querySelectorAll('.tools .tr:not(.head)').length === 1`)
		b.do(chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(kb.Backspace))
		b.wait(`document.querySelectorAll('.tools .tr:not(.head)').length === 2`)
	})

	t.Run("crash", func(t *testing.T) {
		b.visit("#/tool/evil")
		pid, _ := o.status()
		b.wait(`document.querySelector('.facts')?.innerText.includes(` + strconv.Quote(strconv.Itoa(pid)) + `)`)
		b.js(`(window.seen = 0, new MutationObserver(() => { if (!window.seen && document.querySelector('.now .badge')?.textContent !== 'Ready') window.seen = Date.now(); }).observe(document.body, {subtree: true, childList: true, characterData: true}), 1)`)
		killed := time.Now()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		b.wait(`window.seen`)
		t.Logf("the page shows %d ms after the kill that the process has ended", int64(b.number(`window.seen`))-killed.UnixMilli())
		b.wait(`[...document.querySelectorAll('.story strong')].some((e) => e.textContent === 'Crashed')`)
		o.eventually("another process", func() bool { now, state := o.status(); return now != pid && state == "READY" })
		pid, _ = o.status()
		b.wait(`document.querySelector('.facts').innerText.includes(` + strconv.Quote(strconv.Itoa(pid)) + `)`)
		b.wait(`document.querySelector('.now .badge').textContent === 'Ready'`)
	})

	t.Run("logs", func(t *testing.T) {
		b.visit("#/logs/evil")
		b.wait(`document.querySelector('.log')?.innerText.includes('<img src=x')`)
		b.js(`(document.querySelector('.logs input').value = 'ONERROR', document.querySelector('.logs input').dispatchEvent(new Event('input')), 1)`)
		b.wait(`document.querySelectorAll('.line').length > 0 && [...document.querySelectorAll('.line')].every((l) => l.innerText.includes('onerror'))`)
		b.js(`(document.querySelector('.picked input').value = 'hello', document.querySelector('.picked input').dispatchEvent(new Event('change')), 1)`)
		b.wait(`location.hash === '#/logs/evil/hello' && document.querySelectorAll('.marks li').length === 2`)
		b.js(`(document.querySelector('.logs input').value = 'no such text', document.querySelector('.logs input').dispatchEvent(new Event('input')), 1)`)
		b.wait(`document.querySelectorAll('.line').length === 0 && document.querySelector('.logs .info').innerText.startsWith('0 lines')`)
		b.fine()
	})

	t.Run("injection", func(t *testing.T) {
		b.visit("#/tool/evil/logs")
		b.wait(`document.querySelector('.log')?.innerText.includes('<img src=x')`)
		b.visit("#/tool/evil/offers")
		b.wait(`document.querySelector('.offers')?.innerText.includes('<script>')`)
		b.visit("#/tool/evil/about")
		b.wait(`document.querySelector('.tabbody')?.innerText.includes('onerror')`)
		b.visit("#/try/evil")
		b.click(`document.querySelector('.go .primary')`)
		b.wait(`document.querySelector('.result img')?.complete`)
		b.wait(`document.querySelector('.result').innerText.includes('<img src=x')`)
		b.visit("#/calls")
		b.wait(`document.querySelector('.calls .tr:not(.head)')?.innerText.includes('console')`)
		b.fine()
	})

	t.Run("questions", func(t *testing.T) {
		b.visit("#/try/evil/evil")
		ask := func() {
			b.wait(`document.querySelector('fieldset input') && !document.querySelector('.go .primary').disabled`)
			b.js(`(document.querySelector('fieldset input').value = 'ask', document.querySelector('fieldset input').dispatchEvent(new Event('input')), document.querySelector('.go .primary').click())`)
			b.wait(`document.querySelector('.asked form')?.innerText.includes('<img src=x') && document.querySelector('.progress').innerText.includes('2 of 4')`)
		}
		ask()
		b.js(`(document.querySelector('.asked input').value = 'said', document.querySelector('.asked .primary').click())`)
		b.wait(`document.querySelector('.result pre')?.innerText.includes('"content": {"word": "said"}') && !document.querySelector('.asked form')`)
		ask()
		b.click(`[...document.querySelectorAll('.asked button')].find((e) => e.textContent === 'Decline')`)
		b.wait(`document.querySelector('.result pre')?.innerText.includes('"decline"')`)
		ask()
		b.click(`[...document.querySelectorAll('.go button')].find((e) => e.textContent === 'Cancel')`)
		b.wait(`document.querySelector('.result .banner')?.innerText.includes('Canceled') && !document.querySelector('.asked form')`)
		b.fine()
	})

	t.Run("records", func(t *testing.T) {
		b.visit("#/numbers")
		b.wait(`document.querySelector('.plain tbody tr')?.innerText.includes('evil') && document.querySelectorAll('.charts .good').length > 0`)
		b.visit("#/packages")
		b.wait(`document.querySelectorAll('.item').length === 2 && document.querySelector('.item').innerText.includes('<img src=x') && document.querySelector('.item').innerText.includes('not enforced')`)
		b.visit("#/audit")
		b.wait(`document.querySelector('.banner.good')?.innerText.includes('The chain is whole') && document.querySelector('.plain tbody').innerText.includes('console')`)
		file := filepath.Join(o.dir, "audit.log")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.Replace(string(text), `"new file"`, `"old file"`, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		b.click(`document.querySelector('.controls button')`)
		b.wait(`document.querySelector('.result .banner.bad')?.innerText.includes('not as Orla wrote it') && document.querySelector('.findings .bad').innerText.includes('audit.log:')`)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		b.fine()
	})

	t.Run("widths", func(t *testing.T) {
		rules := map[string][]string{"dark": colours} // light: all
		for _, scheme := range []string{"light", "dark"} {
			widths := []int64{1440, 800, 320}
			for _, width := range widths {
				b.look(width, 800, scheme)
				for _, view := range []string{"tools", "tool/evil/activity", "tool/evil/logs", "logs/evil/hello", "try/evil", "calls", "clients", "approvals", "numbers", "packages", "audit"} {
					b.visit("#/" + view)
					b.wait(`document.querySelector('main h1')`)
					if view == "approvals" {
						b.wait(`document.querySelector('.passkeys button')`)
					}
					if b.js("document.documentElement.scrollWidth > innerWidth || document.querySelector('main').scrollWidth > document.querySelector('main').clientWidth") != "false" {
						t.Errorf("%s at %d px is wider than the window: %s", view, width, b.js("[...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > innerWidth).map((e) => e.tagName + '.' + e.className + ' ' + e.getBoundingClientRect().right + ' ' + e.textContent.slice(0, 40)).join('; ')"))
					}
					if view == "tools" { // each value stands below its heading, and none beyond the edge
						b.wait(`document.querySelector('.tools .tr:not(.head)')`)
						if got := b.js(`(() => { const [head, row] = [...document.querySelectorAll('.tools .tr')];
							if (!head.offsetHeight) return '';
							const right = (e) => (e.offsetWidth ? e.getBoundingClientRect().right : 0), edge = document.querySelector('.tools').getBoundingClientRect().right;
							return [...head.children].filter((e, i) => Math.abs(right(e) - right(row.children[i])) > 2 || right(e) > edge).map((e) => e.textContent).join(); })()`); got != "" {
							t.Errorf("the table of tools at %d px: %s", width, got)
						}
					}
					b.accessible(fmt.Sprintf("%s at %d px, %s", view, width, scheme), rules[scheme]...)
					b.picture(fmt.Sprintf("%s-%s-%d", strings.ReplaceAll(view, "/", "-"), scheme, width))
				}
			}
		}
	})

	t.Run("restart", func(t *testing.T) {
		b.fine()
		o.stop()
		b.wait(`!document.querySelector('.offline').hidden`)
		o.start()
		b.wait(`document.body.innerText.includes('This session is over')`)
		b.mu.Lock()
		b.bad = nil // requests that failed meanwhile
		b.mu.Unlock()
	})

	t.Run("link", func(t *testing.T) {
		b.do(chromedp.Navigate(link))
		b.wait(`document.body.innerText.includes('This link does not work')`)
		resp, err := http.Get("http://127.0.0.1:" + o.port + "/")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("without a session: %d", resp.StatusCode)
		}
	})
}

// look sets the size of the window and the scheme.
func (b *tab) look(width, height int64, scheme string) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height), chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return err
	}))
}
