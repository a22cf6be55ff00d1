package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/chromedp/chromedp"
)

// axe is the source of axe-core.
var axe = sync.OnceValues(func() (string, error) {
	install := exec.Command(filepath.Join("..", "..", "scripts", "clients"), "browser")
	install.Stderr = os.Stderr
	if err := install.Run(); err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join("node_modules", "axe-core", "axe.min.js"))
	return string(text), err
})

// colours are the rules of axe-core about colours. The other scheme has other values of variables in style.css, and nothing else.
var colours = []string{"color-contrast", "link-in-text-block"}

// accessible reports what axe-core, with all of its rules or only some, and accessible.js find in what the tab shows.
func (b *tab) accessible(what string, only ...string) {
	b.t.Helper()
	if wrong := b.js(accessible); wrong != "" {
		b.t.Errorf("%s:\n%s", what, wrong)
	}
	source, err := axe()
	switch {
	case err != nil && os.Getenv("ORLA_TEST_CLIENTS") == "require":
		b.t.Fatal(err)
	case err != nil:
		b.t.Logf("without axe-core: %v", err)
		return
	}
	if b.js("typeof axe") != "object" {
		if _, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](source+"\n;''")); err != nil {
			b.t.Fatal(err)
		}
	}
	rules := `['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']`
	if len(only) > 0 {
		rules = fmt.Sprintf(`{type: 'rule', values: '%s'.split(' ')}`, strings.Join(only, " "))
	}
	b.js(`(window.found = null, axe.run(document, {resultTypes: ['violations'], runOnly: ` + rules + `}).then((r) => {
		window.found = JSON.stringify(r.violations.map((v) => ({rule: v.id, help: v.help, where: v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + ' ' + (n.failureSummary || ''))})));
	}, (e) => { window.found = JSON.stringify([{rule: String(e)}]); }), 1)`)
	b.wait("window.found")
	var found []struct {
		Rule, Help string
		Where      []string
	}
	if err := json.Unmarshal([]byte(b.js("window.found")), &found); err != nil {
		b.t.Fatal(err)
	}
	for _, f := range found {
		b.t.Errorf("%s: axe: %s: %s\n%q", what, f.Rule, f.Help, f.Where)
	}
}
