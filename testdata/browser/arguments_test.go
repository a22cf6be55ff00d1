package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestO2Arguments has the arguments of a tool kept, on the pages of calls and of the tool, sees them in the rows of its calls,
// repeats calls with them, and has them forgotten. A viewer sees that they are kept, and not what they are.
func TestO2Arguments(t *testing.T) {
	token := filepath.Join(t.TempDir(), "vera.token")
	if err := os.WriteFile(token, []byte(strings.Repeat("vera", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newTab(t)
	tools := folder(t, map[string]string{
		"greet": "#!/bin/sh\n# /// tool\n# input_schema:\n#   type: object\n#   properties:\n#     name: {type: string}\n#     n: {type: integer}\n# ///\necho \"hello $*\"\n",
		"other": "#!/bin/sh\necho other\n",
	})
	o := newOrla(t, tools, "version: 1\n", "auth: {tokens: [{name: vera, file: "+token+"}]}\ncallers: [{name: vera, console: [viewer]}]\n")
	b.do(chromedp.Navigate(o.run("console", "--no-browser")))
	b.wait(`document.querySelector('nav a')`)
	press := func(where, text string) {
		t.Helper()
		b.click(fmt.Sprintf(`[...document.querySelectorAll('%s')].find((e) => e.textContent === %q)`, where, text))
	}
	call := func(args string) { t.Helper(); o.run("call", "greet", "--json", args) }
	row := func(text string) string {
		return fmt.Sprintf(`[...document.querySelectorAll('.calls .tr:not(.head)')].find((e) => e.innerText.includes(%q))`, text)
	}

	call(`{"name":"before"}`)
	b.visit("#/calls")
	b.wait(row("greet"))
	if b.js(`document.querySelector('.calls').innerText.includes('before')`) != "false" {
		t.Error("arguments are kept that nobody has asked for")
	}
	b.click(`document.querySelector('.calls .c-name button')`)
	b.wait(`document.querySelector('.detail').innerText.includes('Its arguments are not kept.')`)
	press(".detail .chip", "Keep arguments")
	b.wait(`document.querySelector('.keeping').innerText.includes('Arguments of greet are kept') && document.querySelector('.detail .chip').getAttribute('aria-pressed') === 'true'`)
	b.wait(`/for 9 min more, asked for by user:/.test(document.querySelector('.keeping').innerText)`)
	call(`{"name":"<img src=x onerror=window.owned=1>","n":7}`)
	b.wait(row("onerror"))
	b.accessible("calls with arguments")
	b.picture("calls-arguments")
	b.click(row("onerror"))
	b.wait(`document.querySelector('.detail .arguments')?.innerText.includes('"n": 7')`)
	press(".detail a", "Repeat")
	b.wait(`document.getElementById('arg-name')?.value === '<img src=x onerror=window.owned=1>' && document.getElementById('arg-n').value === '7'`)
	b.click(`document.querySelector('.go .primary')`)
	b.wait(`document.querySelector('.result')?.innerText.includes('hello')`)

	// What the form cannot hold stays as it is.
	const odd = `{"n":70000000000000000001,"more":[1e400],"name":"x"}`
	call(odd)
	b.visit("#/calls")
	b.wait(row("1e400"))
	b.click(row("1e400"))
	press(".detail a", "Repeat")
	b.wait(`document.querySelector('textarea.raw')?.value.includes('1e400')`)
	if got := b.js(`document.querySelector('textarea.raw').value.replace(/\s/g, '')`); got != odd {
		t.Errorf("it is repeated with %s, want %s", got, odd)
	}
	b.click(`document.querySelector('.go .primary')`)
	b.wait(`document.querySelector('.result')?.innerText.includes('70000000000000000001')`)

	b.visit("#/tool/greet/offers")
	b.wait(`document.querySelector('.offers .chip')?.getAttribute('aria-pressed') === 'true' && document.querySelector('.keeping').innerText.includes('greet')`)
	b.accessible("a tool whose arguments are kept")
	b.picture("tool-arguments")
	b.look(320, 800, "dark")
	if b.js("document.querySelector('main').scrollWidth > document.querySelector('main').clientWidth") != "false" {
		t.Error("the tool is wider than the window")
	}
	b.picture("tool-arguments-320")
	b.visit("#/calls")
	b.wait(row("1e400"))
	if b.js("document.querySelector('main').scrollWidth > document.querySelector('main').clientWidth") != "false" {
		t.Error("the calls are wider than the window")
	}
	b.picture("calls-arguments-320")
	b.look(1440, 900, "light")
	press(".keeping button", "Forget them")
	b.wait(`document.querySelector('.keeping').innerText === '' && !document.querySelector('.calls').innerText.includes('1e400')`)
	b.fine()

	// A viewer.
	b.visit("#/tool/other/offers")
	press(".offers .chip", "Keep arguments")
	b.wait(`document.querySelector('.offers .chip').getAttribute('aria-pressed') === 'true'`)
	o.run("call", "other", "--json", `{"secret":"of another caller"}`)
	press("#about button", "Close the session")
	b.wait(`document.querySelector('input[type=password]')`)
	b.shows(o, strings.Repeat("vera", 8))
	b.wait(`document.querySelectorAll('.tools .tr:not(.head)').length === 2`)
	b.mu.Lock()
	b.bad = nil // the page said 401 before the login
	b.mu.Unlock()
	b.visit("#/calls")
	b.wait(`document.querySelector('.keeping')?.innerText.includes('Arguments of other are kept')`)
	b.wait(row("other"))
	b.click(row("other"))
	b.wait(`document.querySelector('.detail pre')`)
	if b.js(`document.body.innerText.includes('of another caller') || [...document.querySelectorAll('main button, main a')].some((e) => e.checkVisibility() && /Keep|Forget|Repeat|again/.test(e.innerText))`) != "false" {
		t.Errorf("a viewer sees:\n%s", b.js(`document.querySelector('main').innerText`))
	}
	b.fine()
}
