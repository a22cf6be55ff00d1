package browser

import (
	"context"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// before has each page that the tab loads from now on run a script first.
func (b *tab) before(script string) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return err
	}))
}

// waitingTool is a tool of which each call needs an approval.
var waitingTool = map[string]string{
	"wipe":      "#!/bin/sh\n# /// tool\n# input_schema: {type: object}\n# ///\necho wiped\n",
	"rule.yaml": "apiVersion: orloj.dev/v1\nkind: ToolPermission\nmetadata: {name: wipe}\nspec: {operation_rules: [{verdict: approval_required}]}\n",
}

// waits begins a call of waitingTool, which ends with the test.
func (o *orla) waits(arguments string) *exec.Cmd {
	o.t.Helper()
	cmd := o.command("call", "wipe", "--json", "-", "--tools-dir", o.tools)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(arguments), io.Discard, io.Discard
	if err := cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
	return cmd
}

// O1, O4: times are Orla's, whatever the clock of the browser says, and a page whose clock is another asks no more than others.
func TestO4ABrowserWithAnotherClock(t *testing.T) {
	for _, c := range []struct{ name, off string }{{"ahead", "20 * 60e3"}, {"behind", "-20 * 60e3"}} {
		t.Run(c.name, func(t *testing.T) {
			b := newTab(t)
			o := newOrla(t, folder(t, waitingTool), "version: 1\n")
			b.before(`{ const real = Date.now.bind(Date), ask = window.fetch; Date.now = () => real() + ` + c.off + `; window.asks = 0; window.fetch = (...a) => { asks++; return ask(...a); }; }`)
			b.do(chromedp.Navigate(o.run("console", "--no-browser")))
			b.wait(`document.querySelector('nav a')`)
			call := o.waits(`{"n":1}`)
			b.visit("#/approvals")
			b.wait(`document.querySelector('.waits .left')?.textContent`)
			// Once in a second the page looks at what is over: after it has asked for what it shows, it asks no more.
			b.js(`(window.quiet = 0, window.last = asks, window.watching = setInterval(() => { quiet = asks === last ? quiet + 1 : 0; last = asks; }, 100), 1)`)
			b.wait(`quiet >= 25`)
			// The clocks are 20 min apart; on a busy machine all of this may take minutes.
			if got := b.text(`document.querySelector('.waits .left').textContent`); !regexp.MustCompile(`^[3-9] min$`).MatchString(got) {
				t.Errorf("of 10 min there are left: %s", got)
			}
			if got := b.text(`document.querySelector('.where').textContent`); !regexp.MustCompile(`\D([1-5]?\d s|[1-7] min)$`).MatchString(strings.ReplaceAll(got, "\u00a0", " ")) {
				t.Errorf("the page says %q of an Orla that has just started", got)
			}
			o.run("approvals", "deny", id(b, 0))
			_ = call.Wait()
			b.visit("#/tools")
			b.wait(`document.querySelector('.tools .tr:not(.head)')`)
			b.fine()
		})
	}
}

// O1, WCAG 4.1.3: a screen reader is told of calls that wait, in each view. The focus stays where somebody decided.
func TestO1ApprovalsForKeyboardsAndReaders(t *testing.T) {
	b := newTab(t)
	o := newOrla(t, folder(t, waitingTool), "version: 1\n", "approvals: {same_user: true}")
	b.do(chromedp.Navigate(o.run("console", "--no-browser")))
	b.wait(`document.querySelector('.tools .tr:not(.head)')`)
	said := `[...document.querySelectorAll('[role=status]')].map((e) => e.textContent).join('; ')`
	if got := b.text(said); strings.Contains(got, "wait") {
		t.Errorf("while nothing waits: %q", got)
	}
	b.js(`(window.spoken = [...document.querySelectorAll('[role=status]')], 1)`) // what is told is a change of something that is there
	heard := `spoken.map((e) => e.isConnected ? e.textContent : '').join('; ')`
	first := o.waits(`{"n":1}`)
	b.wait(heard + `.includes('1 call waits for an approval')`)
	second := o.waits(`{"n":2}`)
	b.wait(heard + `.includes('2 calls wait for an approval')`)
	b.visit("#/approvals")
	b.wait(`document.querySelectorAll('.waits').length === 2`)
	for _, c := range []struct {
		button string
		call   *exec.Cmd
		past   string
	}{{"Deny", first, "Denied"}, {"Approve", second, "Approved"}} {
		b.js("(document.activeElement.blur(), 1)")
		b.tabTo(`e.textContent === '` + c.button + `'`)
		b.js(`(window.id = document.activeElement.closest('.waits').innerText.match(/ap-\w+/)[0], 1)`)
		b.do(chromedp.KeyEvent(kb.Enter))
		_ = c.call.Wait()
		b.wait(`[...document.querySelectorAll('.past')].some((e) => e.innerText.includes(id))`)
		at := `document.activeElement.matches('.past') && document.activeElement.innerText.includes(id)`
		b.wait(`!document.querySelector('.decide button[disabled]')`)
		if b.js(at) != "true" {
			t.Errorf("after %s the focus is on %s", c.button, b.js(`document.activeElement.outerHTML.slice(0, 80)`))
		}
		b.wait(`[...document.querySelectorAll('.past')].some((e) => e.innerText.includes(id) && !e.style.height)`) // it has left its place
		if b.js(at) != "true" {
			t.Errorf("5 s after %s the focus is on %s", c.button, b.js(`document.activeElement.outerHTML.slice(0, 80)`))
		}
	}
	b.wait(heard + `.includes('no call waits')`)
	b.fine()
}
