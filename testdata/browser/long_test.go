package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// long is a capsule that prints a line of 1 000 000 bytes, which begins with a command for terminals, between two short lines.
const long = `#!/usr/bin/env python3
import json, sys

print(json.dumps({"jsonrpc": "2.0", "method": "orla.hello", "params": {"name": "long", "version": "1.0.0", "capabilities": []}}), flush=True)
sys.stderr.write("before\n" + "\x1b[2J" + "\N{GRINNING FACE}" * 249_999 + "\n" + "after\n")
sys.stderr.flush()
for line in sys.stdin:
    pass
`

// O1, O2: of a line of 1 MB that a tool has printed the page shows a row like any other, and the first 20 KiB if somebody opens it, as
// orla logs does. log_file has 64 KiB, and says how much was cut.
func TestO2ALineOfAMegabyte(t *testing.T) {
	b := newTab(t)
	log := filepath.Join(t.TempDir(), "orla.log")
	o := newOrla(t, folder(t, map[string]string{"long/main.py": long, "long/tool.yaml": toolFile("long", "")}), "version: 1\n", "log_file: "+log+"\n")
	b.do(chromedp.Navigate(o.run("console", "--no-browser")))
	b.wait(`document.querySelector('nav a')`)
	b.visit("#/logs/long")
	row := func(text string) string {
		return fmt.Sprintf(`[...document.querySelectorAll('.line.own')].find((e) => e.lastChild.textContent.startsWith(%q))`, text)
	}
	b.wait(row("before") + ` && ` + row("😀") + ` && ` + row("after"))
	if got := b.js(fmt.Sprintf(`((e, other) => [e.offsetHeight === other.offsetHeight, e.lastChild.textContent.length <= 2000, document.documentElement.scrollWidth <= innerWidth, document.querySelector('main').scrollWidth <= document.querySelector('main').clientWidth].join())(%s, %s)`, row("😀"), row("after"))); got != "true,true,true,true" {
		t.Errorf("the row is as high as another, its text is short, and the page and the view are no wider than the window: %s", got)
	}
	b.js(`(` + row("😀") + `.click(), 1)`)
	b.wait(`document.querySelector('.detail pre')`)
	text := b.text(`document.querySelector('.detail pre').textContent`)
	if faces, cut := strings.CutSuffix(text, "…"); !cut || strings.Trim(faces, "😀") != "" || len(text) < 19<<10 || len(text) > 20<<10 {
		t.Errorf("the line that is opened has %d bytes and ends with %q; want whole characters, 20 KiB, and that it goes on", len(text), text[max(len(text)-40, 0):])
	}
	if got := o.run("logs", "long", "-n", "2"); !strings.Contains(got, text) {
		t.Errorf("orla logs shows %d bytes, which are not those of the page: %q", len(got), got[max(len(got)-200, 0):])
	}
	const first = (64<<10 - len("\x1b[2J")) / 4 * 4 // whole characters of 64 KiB
	if raw, err := os.ReadFile(log); err != nil || !strings.Contains(string(raw), fmt.Sprintf(" [cut: %d bytes more]", 1_000_000-len("\x1b[2J")-first)) {
		t.Errorf("%v; log_file has a line of 1 MB with another end", err)
	}
	b.fine()
}
