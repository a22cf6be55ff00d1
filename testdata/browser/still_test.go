package browser

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// SPEC-TOOLS 8.7: other calls and decisions do not take the place from who reads a call that waits, and move no button under the
// pointer. Arguments are shown whole.
func TestT87ApprovalsKeepTheirPlaces(t *testing.T) {
	b := newTab(t)
	tools := folder(t, map[string]string{
		"wipe":      "#!/bin/sh\n# /// tool\n# input_schema: {type: object}\n# ///\necho wiped\n",
		"rule.yaml": "apiVersion: orloj.dev/v1\nkind: ToolPermission\nmetadata: {name: wipe}\nspec: {operation_rules: [{verdict: approval_required}]}\n",
	})
	o := newOrla(t, tools, "version: 1\n", "approvals: {same_user: true}")
	b.do(chromedp.Navigate(o.run("console", "--no-browser")))
	b.wait(`document.querySelector('nav a')`)
	b.visit("#/approvals")
	waiting := 0
	call := func(arguments string) *exec.Cmd {
		t.Helper()
		cmd := o.command("call", "wipe", "--json", "-", "--tools-dir", tools)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(arguments), io.Discard, io.Discard
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waiting++
		b.wait(fmt.Sprintf(`document.querySelectorAll('.waits pre').length === %d`, waiting))
		return cmd
	}
	first := call(`{"n":1}`)
	second := call(`{"steps":[` + strings.Repeat(`"harmless",`, 300) + `"rm -rf /"]}`)
	b.js(`(window.second = document.querySelectorAll('.waits')[1], window.pre = second.querySelector('pre'), pre.focus(), document.querySelector('main').scrollTop = 2500, getSelection().selectAllChildren(pre), 1)`)
	place := `[pre.isConnected, document.activeElement === pre, document.querySelector('main').scrollTop > 2000, String(getSelection()).includes('rm -rf /')].join()`
	third := call(`{"n":3}`)
	if got := b.js(place); got != "true,true,true,true" {
		t.Errorf("after another call: the text is there, has the focus, is scrolled, is selected: %s", got)
	}
	b.look(320, 700, "light")
	if got := b.js(`[...document.querySelectorAll('.waits pre')].filter((e) => e.scrollHeight > e.clientHeight + 1).length`); got != "0" {
		t.Errorf("the arguments of %s calls go on below an edge", got)
	}
	b.look(1280, 800, "light")
	b.js(`(document.querySelector('main').scrollTop = 0, window.at = () => second.getBoundingClientRect().top, window.was = at(), 1)`)
	// It leaves its place later. A click at once, where the next call has moved, counts for nothing. The page itself looks, since this
	// test may come late.
	click := `[...second.querySelectorAll('button')].find((e) => e.textContent === 'Approve').dispatchEvent(new MouseEvent('click', { bubbles: true, detail: 1 }))`
	b.js(`(window.began = 0, window.moved = 0, window.looks = new MutationObserver(() => {
		const past = document.querySelector('.past');
		if (!began && past) {
			began = performance.now();
			window.decided = [at() - was, past === second.previousSibling, pre.isConnected, past.querySelector('h2').offsetHeight === second.querySelector('h2').offsetHeight].join();
		}
		if (began && was !== at()) { looks.disconnect(); window.stayed = performance.now() - began; ` + click + `; moved = 1; }
	}), looks.observe(document.querySelector('main'), { subtree: true, childList: true }), 1)`)
	o.run("approvals", "deny", id(b, 0))
	_ = first.Wait()
	waiting--
	b.wait(`moved`)
	if got := b.js(`decided`); got != "0,true,true,true" {
		t.Errorf("after a decision elsewhere: how far the next call moved, whether it is below the one that is decided, the same, and that one is not drawn out to the height of its place: %s", got)
	}
	b.wait(`document.body.innerText.includes('This has just moved')`)
	if got := b.number(`Math.round(stayed)`); got < 2500 {
		t.Errorf("what was decided kept its place for %d ms more", got)
	}
	if got := b.js(`document.querySelectorAll('.waits').length`); got != "2" {
		t.Fatalf("a click on what had just moved decided: %s calls wait", got)
	}
	time.Sleep(600 * time.Millisecond) // for as long as the page waits
	b.js("(" + click + ", 1)")
	if err := second.Wait(); err != nil {
		t.Errorf("a click on what stands still: %v\n%s", err, b.js("document.body.innerText"))
	}
	b.wait(`document.querySelectorAll('.waits').length === 1`)
	o.run("approvals", "deny", id(b, 0))
	_ = third.Wait()
	b.fine()
}

// id is that of the record of a card.
func id(b *tab, n int) string {
	b.t.Helper()
	return b.text(fmt.Sprintf(`document.querySelectorAll('.waits')[%d].innerText.match(/ap-\w+/)[0]`, n))
}

// O3: a page that Orla refuses says so, and from when its content is. It tries again, and says that the session is over.
func TestO3TheConsoleIsTurnedOff(t *testing.T) {
	b := newTab(t)
	o := newOrla(t, folder(t, map[string]string{"hello": "#!/bin/sh\necho hi\n"}), "version: 1\n")
	b.do(chromedp.Navigate(o.run("console", "--no-browser")))
	b.wait(`document.body?.innerText.includes('hello')`)
	config := filepath.Join(o.dir, "orla.yaml")
	before, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	turn := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, append(bytes.Clone(before), text...), 0o600); err != nil {
			t.Fatal(err)
		}
		o.run("reload")
	}
	turn("\nconsole: off\n")
	b.wait(`!document.querySelector('.offline').hidden && document.querySelector('.offline').textContent.includes('the console is off. This is from ')`)
	up := b.text(`document.querySelector('.where').textContent`)
	time.Sleep(2100 * time.Millisecond) // two seconds of the page
	if got := b.text(`document.querySelector('.where').textContent`); got != up {
		t.Errorf("the page goes on to count: %q, %q", up, got)
	}
	turn("")
	b.wait(`document.body?.innerText.includes('This session is over')`)
}

// O3: a page whose token is taken back says that its session is over, and shows nothing any more.
func TestO3ATokenThatIsTakenBack(t *testing.T) {
	b := newTab(t)
	token := filepath.Join(t.TempDir(), "ann.token")
	if err := os.WriteFile(token, []byte(strings.Repeat("anns", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	o := newOrla(t, folder(t, map[string]string{"hello": "#!/bin/sh\necho hi\n"}), "version: 1\n", "auth:\n  tokens:\n    - {name: ann, file: "+token+"}\ncallers:\n  - {name: ann, console: [viewer]}\n")
	b.shows(o, strings.Repeat("anns", 8))
	b.wait(`document.querySelector('.tools .tr:not(.head)')?.innerText.includes('hello')`)
	if err := os.WriteFile(token, []byte(strings.Repeat("else", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	o.run("reload")
	b.wait(`document.body.innerText.includes('This session is over')`)
	if text := b.text(`document.body.innerText`); strings.Contains(text, "hello") {
		t.Errorf("the page still shows tools:\n%s", text)
	}
	b.shows(o, strings.Repeat("anns", 8))
	b.wait(`document.body.innerText.includes('This token does not let you in')`)
}
