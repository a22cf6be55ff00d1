package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// slow lets a test break the stream off with cut(), keep it from coming back with gate, and hold the next answer to what holds
// matches until release(). While it is down, nothing is answered; while it is in a hurry, what the page waits long for is over soon.
// Its clock is as many ms ahead as later says.
const slow = `{
	const ask = window.fetch, wait = window.setTimeout, clock = Date.now;
	Object.assign(window, { watches: 0, asked: [], gate: null, holds: null, release: null, down: false, tries: 0, hurry: false, later: 0 });
	window.setTimeout = (f, ms, ...rest) => wait(f, hurry && ms >= 40000 ? 1000 : ms, ...rest);
	Date.now = () => clock() + later;
	window.fetch = async (at, options = {}) => {
		if (down) {
			tries++;
			throw new TypeError('Failed to fetch');
		}
		if (!/\/v1\/watch/.test(at)) {
			const held = holds?.test(at) && (holds = null, new Promise((go) => { release = go; options.signal?.addEventListener('abort', go); })), answer = await ask(at, options);
			await held;
			options.signal?.throwIfAborted();
			asked.push(at);
			return answer;
		}
		const own = new AbortController();
		options.signal.addEventListener('abort', () => own.abort());
		window.cut = () => own.abort();
		await gate;
		const answer = await ask(at, { ...options, signal: own.signal });
		watches++;
		return answer;
	};
}`

// quiet waits until the page has asked for nothing for a second.
func (b *tab) quiet() {
	b.t.Helper()
	b.js(`(window.calm = 0, window.before = asked.length, clearInterval(window.watching), window.watching = setInterval(() => { calm = asked.length === before ? calm + 1 : 0; before = asked.length; }, 100), 1)`)
	b.wait(`calm >= 10`)
}

// O4: when the stream breaks off and begins again, or an answer comes late, the page shows what is so, and keeps what somebody
// has opened or chosen.
func TestO4TheStreamBeginsAgain(t *testing.T) {
	b := newTab(t)
	tools := folder(t, map[string]string{
		"wipe":      waitingTool["wipe"],
		"rule.yaml": "apiVersion: orloj.dev/v1\nkind: ToolPermission\nmetadata: {name: wipe}\nspec: {tool_ref: wipe, operation_rules: [{verdict: approval_required}]}\n",
		"hello":     "#!/bin/sh\necho hi\n",
	})
	o := newOrla(t, tools, "version: 1\n", "approvals: {same_user: true}\n")
	b.before(slow)
	b.do(chromedp.Navigate(o.run("console", "--no-browser")))
	b.wait(`document.querySelector('.tools .tr:not(.head)')`)
	hello := func(n int) {
		for range n {
			o.run("call", "hello")
		}
	}
	// cut breaks the stream off, and waits until there is another.
	cut := func() {
		b.t.Helper()
		b.js(`(window.had = watches, cut(), 1)`)
		b.wait(`watches > had && document.body.dataset.live === 'live'`)
	}
	for _, part := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"a call that is open", func(t *testing.T) {
			hello(2)
			b.visit("#/calls")
			b.wait(`document.querySelectorAll('.calls .tr:not(.head)').length === 2`)
			b.js(`(document.querySelector('.calls .tr:not(.head)').click(), 1)`)
			b.wait(`document.querySelector('.calls .tr.chosen')`)
			b.js(`(window.open = document.querySelector('.detail .dim').textContent, window.gone = 0, window.looks = new MutationObserver(() => { gone += document.querySelector('.detail').hidden || document.querySelectorAll('.calls .tr:not(.head)').length < 2; }), looks.observe(document.querySelector('main'), { subtree: true, childList: true, attributes: true }), 1)`)
			cut()
			hello(1)
			b.wait(`document.querySelectorAll('.calls .tr:not(.head)').length === 3`)
			if got := b.js(`[gone, document.querySelector('.detail .dim')?.textContent === open, document.querySelectorAll('.calls .tr')[2].matches('.chosen')].join()`); got != "0,true,true" {
				t.Errorf("how often it or the list was gone, whether it is open, and is marked: %s", got)
			}
			b.js(`(looks.disconnect(), 1)`)
		}},
		{"a line that is open", func(t *testing.T) {
			b.visit("#/logs/hello")
			const calls = `[...document.querySelectorAll('.line')].filter((e) => e.textContent.includes('call_id'))`
			b.wait(calls + `.length === 3`)
			b.js(`(` + calls + `[1].click(), 1)`)
			b.wait(`document.querySelector('.line.chosen')`)
			cut()
			hello(1)
			b.wait(calls + `.length === 4`)
			if got := b.js(`[document.querySelector('.detail').hidden, ` + calls + `[1].matches('.chosen'), new Set(` + calls + `.map((e) => e.textContent)).size].join()`); got != "false,true,4" {
				t.Errorf("whether it is hidden, is marked, and how many others there are: %s", got)
			}
		}},
		{"older lines that come late", func(*testing.T) {
			choose := func(when string) {
				b.js(fmt.Sprintf(`((s) => { s.value = %q; s.dispatchEvent(new Event('change')); return 1; })(document.querySelector('[aria-label=When]'))`, when))
			}
			b.js(`(holds = /\/v1\/logs/, 1)`)
			choose("3600")
			b.wait(`release`)
			choose("")
			b.js(`(release(), release = null, 1)`)
			b.quiet()
			hello(1)
			b.wait(`[...document.querySelectorAll('.line')].filter((e) => e.textContent.includes('call_id')).length === 5`)
		}},
		{"calls that wait, of another than before", func(*testing.T) {
			b.visit("#/approvals")
			b.wait(`document.querySelector('.passkeys')`)
			o.waits(`{"n":1}`)
			b.wait(`document.querySelector('.waits pre')?.textContent.includes('"n": 1')`)
			b.wait(`document.querySelector('[data-name=approvals] .count').textContent === '1'`)
			first := id(b, 0)
			b.js(`(gate = new Promise((go) => { window.openGate = go; }), cut(), 1)`)
			b.wait(`document.body.dataset.live === 'lost'`)
			o.run("approvals", "deny", first)
			o.waits(`{"n":2}`)
			o.eventually("the second waits", func() bool { return strings.Count(o.run("approvals", "list"), "Pending") == 1 })
			b.js(`(openGate(), gate = null, 1)`)
			b.wait(`[...document.querySelectorAll('.waits pre')].map((e) => e.textContent.replace(/\s/g, '')).join() === '{"n":2}'`)
		}},
		{"an old list of calls that comes last", func(t *testing.T) {
			b.quiet()
			b.js(`(holds = /\/v1\/approvals$/, 1)`)
			o.waits(`{"n":3}`)
			b.wait(`release`)
			o.waits(`{"n":4}`)
			b.wait(`document.querySelector('[data-name=approvals] .count').textContent === '3'`)
			b.js(`(window.least = performance.now() + 1000, window.fell = 0, window.were = document.querySelectorAll('.waits').length, window.looks = new MutationObserver(() => { const n = document.querySelectorAll('.waits').length; fell += n < were; were = n; }), looks.observe(document.querySelector('main'), { subtree: true, childList: true }), 1)`)
			b.wait(`document.querySelectorAll('.waits').length === 3 || performance.now() > least`) // the next list has come, if it was asked for
			b.js(`(release(), 1)`)
			b.quiet()
			if got := b.js(`[document.querySelectorAll('.waits').length, fell].join()`); got != "3,0" {
				t.Errorf("of 3 calls that wait the page shows, and was behind what it had shown: %s", got)
			}
		}},
		{"a list of calls that never comes", func(*testing.T) {
			b.quiet()
			b.js(`(holds = /\/v1\/approvals$/, hurry = true, 1)`)
			o.waits(`{"n":5}`)
			b.wait(`document.querySelectorAll('.waits').length === 4`)
			b.js(`(hurry = false, 1)`)
		}},
		{"calls that expire while Orla is away", func(t *testing.T) {
			b.js(`(down = true, later = 20 * 60_000, cut(), 1)`)
			b.wait(`document.body.dataset.live === 'lost'`)
			b.js(`(window.least = performance.now() + 8000, window.shown = document.querySelectorAll('.toast').length, window.most = 0, window.looks = new MutationObserver(() => { most = Math.max(most, document.querySelectorAll('.toast').length); }), looks.observe(document.querySelector('#toasts'), { childList: true }), 1)`)
			b.wait(`performance.now() > least`)
			if b.number(`most`) > b.number(`shown`)+1 {
				t.Errorf("the page says %s times at once that something failed", b.js(`most`))
			}
			b.js(`(looks.disconnect(), down = false, later = 0, 1)`)
			b.wait(`document.body.dataset.live === 'live' && document.querySelectorAll('.waits').length === 4`)
		}},
		{"lines and calls that came meanwhile", func(t *testing.T) {
			b.js(`(import('/console/logs.js').then((m) => { window.panels = m; }), import('/console/calls.js').then((m) => { window.calls = m; }), 1)`)
			b.wait(`window.panels && window.calls`)
			// Each of the times is in seconds from now. A stream ends at each '|'.
			for _, c := range []struct{ what, lines, want string }{
				{"a clock that was set back", "a-9 | a-9 b-3600 | b-3600 c-3599", "abc"},
				{"a clock that is set back later", "a-9 | a-9 b-8 c-3600", "abc"},
				{"lines that were left out before", "a-9 c-7 | a-9 b-8 c-7 d-6", "acd"},
				{"lines that are missing", "a-9 b-8 | x-3 y-2 | y-2 z-1", "xyz"},
				{"lines of a clock that was ahead", "a3600 | x2 y3", "xy"},
			} {
				b.js(fmt.Sprintf(`((text) => {
					const panel = panels.logPanel({ withTool: false, changed: () => {}, asked: () => ({}) }), all = new calls.Calls();
					const at = Date.now();
					panel.el.id = 'panel';
					document.querySelector('main').replaceChildren(panel.el);
					panel.el.querySelector('.rows').style.height = '400px';
					for (const part of text.split('|')) {
						panel.live();
						all.live();
						for (const one of part.trim().split(' ')) {
							const time = new Date(at + one.slice(1) * 1000).toISOString();
							panel.add({ lines: [{ time, level: 'info', msg: 'stderr', text: one[0] }] });
							all.add({ lines: [{ time, msg: 'call', call_id: one[0] }] });
						}
					}
					window.of = all.list.map((c) => c.call_id).join('');
					return 1;
				})(%q)`, c.lines))
				b.wait(fmt.Sprintf(`document.querySelector('#panel .info').textContent.startsWith('%d line')`, len(c.want)))
				b.wait(`document.querySelectorAll('#panel .line').length`)
				if got := b.js(`[...document.querySelectorAll('#panel .line span')].map((e) => e.textContent).join('')`); got != c.want {
					t.Errorf("%s: the lines are %q, want %q", c.what, got, c.want)
				}
			}
			if got := b.js(`of`); got != "xy" {
				t.Errorf("of calls after others that are missing the list has %q", got)
			}
		}},
		{"a tool that goes, and comes back", func(t *testing.T) {
			b.visit("#/tool/hello/offers")
			b.wait(`document.querySelector('.offers .chip')`)
			b.js(`(window.chip = document.querySelector('.offers .chip'), window.had = asked.filter((a) => a.endsWith('/v1/tools')).length, 1)`)
			hello(1)
			b.wait(`asked.filter((a) => a.endsWith('/v1/tools')).length > had`)
			b.quiet()
			if b.js(`chip.isConnected`) != "true" {
				t.Error("after a call, what the tool offers was drawn again")
			}
			away := filepath.Join(t.TempDir(), "hello")
			move := func(from, to string) {
				t.Helper()
				if err := os.Rename(from, to); err != nil {
					t.Fatal(err)
				}
			}
			move(filepath.Join(tools, "hello"), away)
			b.wait(`document.querySelector('main').innerText.includes('There is no tool hello')`)
			b.visit("#/try/hello")
			b.wait(`document.querySelector('main').innerText.includes('offers no tools now')`)
			move(away, filepath.Join(tools, "hello"))
			b.wait(`document.querySelector('.go .primary')`)
			b.visit("#/tool/hello")
			b.wait(`document.querySelector('.facts dd')`)
			move(filepath.Join(tools, "hello"), away)
			b.wait(`document.querySelector('main').innerText.includes('There is no tool hello')`)
			move(away, filepath.Join(tools, "hello"))
			b.wait(`!document.querySelector('main').innerText.includes('There is no tool hello') && document.querySelector('.facts dd')?.checkVisibility()`)
		}},
		{"a filter that was typed while the stream began", func(t *testing.T) {
			hello(1)
			b.visit("#/logs")
			b.wait(`document.querySelectorAll('.line').length > 0`)
			b.js(`(window.had = watches, document.querySelector('.logs select').dispatchEvent(new Event('change')), document.querySelector('.logs input').value = 'no such text', 1)`)
			b.wait(`watches > had && document.body.dataset.live === 'live' && document.querySelectorAll('.line').length > 0`)
			b.js(`(document.querySelector('.logs input').dispatchEvent(new Event('input')), 1)`)
			b.wait(`watches > had + 1 && document.querySelectorAll('.line').length === 0`)
		}},
	} {
		t.Run(part.name, func(t *testing.T) {
			b.t, o.t = t, t
			part.do(t)
		})
	}
	b.t, o.t = t, t
	b.fine()
}
