package browser

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// O4: of 10 000 tools the page draws those that are seen, wherever somebody scrolls to and whatever is searched for, and it goes on
// to tell of each. What it costs is printed.
func TestO4TenThousandTools(t *testing.T) {
	const n = 10_000
	files := make(map[string]string, n)
	for i := range n {
		files[fmt.Sprintf("tool-%05d", i)] = "#!/bin/sh\necho ok\n"
	}
	b := newTab(t)
	o := newOrla(t, folder(t, files), "version: 1\n")
	b.do(chromedp.Navigate(o.run("console", "--no-browser")))
	b.wait(`document.querySelector('.totals')?.textContent.startsWith('10,000 tools')`)
	pages := renderers(t)
	spent := func(what string, do func()) {
		t.Helper()
		page, orla, began := cpu(pages...), cpu(o.cmd.Process.Pid), time.Now()
		do()
		t.Logf("%s: the page uses %v of a processor and Orla %v, in %v", what, cpu(pages...)-page, cpu(o.cmd.Process.Pid)-orla, time.Since(began).Round(time.Millisecond))
	}
	// drawn waits until the table is at a row of the list, and fails unless the rows that are drawn are those that are seen.
	drawn := func(first, all int) {
		t.Helper()
		b.wait(fmt.Sprintf(`(() => {
			const rows = document.querySelector('.tools .rows'), list = [...rows.querySelectorAll('.tr')], name = (i) => list[i].querySelector('a').textContent;
			const height = list[0]?.offsetHeight, seen = list.filter((e) => { const at = e.getBoundingClientRect(), of = rows.getBoundingClientRect(); return at.bottom > of.top + 1 && at.top < of.bottom - 1; });
			return list.length && list.length <= Math.ceil(rows.clientHeight / height) + 14 && seen.length === Math.min(%[2]d, Math.ceil(rows.clientHeight / height)) &&
				seen[0].querySelector('a').textContent === 'tool-' + String(%[1]d).padStart(5, '0') && document.querySelector('.tools').getAttribute('aria-rowcount') === String(%[2]d + 1);
		})()`, first, all))
		if nodes := b.number(`document.querySelectorAll('*').length`); nodes > 1500 {
			t.Errorf("at %d of %d rows the page has %d elements", first, all, nodes)
		}
	}
	scroll := func(to int) {
		b.js(fmt.Sprintf(`(document.querySelector('.tools .rows').scrollTop = %d * document.querySelector('.tools .tr:not(.head)').offsetHeight, 1)`, to))
	}
	drawn(0, n)
	places := 10
	if more() {
		places = 50
	}
	spent("quiet for 2 s", func() { time.Sleep(2 * time.Second) }) // this is what is measured
	spent(fmt.Sprintf("scroll to %d places", places), func() {
		for i := range places {
			scroll(i * n / places)
			drawn(i*n/places, n)
		}
	})
	scroll(9800)
	spent("5 calls", func() {
		for range 5 {
			o.run("call", "tool-09800")
		}
		b.wait(`[...document.querySelectorAll('.tools .tr:not(.head)')].some((e) => e.innerText.includes('tool-09800') && e.querySelector('.c-calls').textContent === '5')`)
	})
	spent("a search", func() {
		b.js(`((s) => { s.value = '0999'; s.dispatchEvent(new Event('input')); return 1; })(document.querySelector('input[type=search]'))`)
		drawn(999, 11) // tool-00999, and tool-09990 to tool-09999
	})
	spent("the log, and a tool of it", func() {
		b.js(`(location.hash = '#/logs', 1)`)
		b.wait(`document.querySelector('.picked input') && document.querySelectorAll('.picked option').length === 50`)
		b.js(`((s) => { s.value = '0980'; s.dispatchEvent(new InputEvent('input', { inputType: 'insertText' })); return 1; })(document.querySelector('.picked input'))`)
		b.wait(`document.querySelectorAll('.picked option').length === 11 && !document.querySelector('.marks li')`) // tool-00980, and tool-09800 to tool-09809
		b.js(`((s) => { s.value = 'tool-09800'; s.dispatchEvent(new Event('change')); return 1; })(document.querySelector('.picked input'))`)
		b.wait(`document.querySelector('.marks li')?.textContent.includes('tool-09800') && location.hash === '#/logs/tool-09800'`)
		if nodes := b.number(`document.querySelectorAll('*').length`); nodes > 1500 {
			t.Errorf("the log has %d elements", nodes)
		}
	})
	b.fine()
}
