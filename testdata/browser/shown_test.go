package browser

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestShown compares what the page draws of arguments with what the tool gets: a person signs what is drawn.
func TestShown(t *testing.T) {
	b := newTab(t)
	tools := folder(t, map[string]string{
		"wipe":      "#!/bin/sh\n# /// tool\n# input_schema: {type: object}\n# ///\necho wiped\n",
		"rule.yaml": "apiVersion: orloj.dev/v1\nkind: ToolPermission\nmetadata: {name: wipe}\nspec: {operation_rules: [{verdict: approval_required}]}\n",
	})
	o := newOrla(t, tools, "version: 1\n", "approvals: {same_user: true}")
	b.do(chromedp.Navigate(o.run("console", "--no-browser")))
	b.wait(`document.querySelector('nav a')`)
	b.visit("#/approvals")
	for _, c := range []struct{ sent, drawn, differs string }{
		{`{"account":9007199254740992}`, "", ""},
		{`{"account":9007199254740993}`, "", "9007199254740993"},
		{`{"amount":1e400}`, "", "1e400"},
		{"{\"a\":\"safe \u202e gnp.exe\",\"b\":\"<b>&amp;\",\"p\":\"/srv/\u200b\u200dold\"}", `{"a":"safe \u202e gnp.exe","b":"<b>&amp;","p":"/srv/\u200b\u200dold"}`, `\u202e`},
		{"{\"blank\":\"/srv/tmp\u2800/..\",\"mark\":\"s\u0338u\u0336\u05bc \U0001d159\u0301\",\"words\":\"हिन्दी ที่นี่ مُحَمَّد e\u0301 בְּ\"}", `{"blank":"/srv/tmp\u2800/..","mark":"s\u0338u\u0336\u05bc \ud834\udd59\u0301","words":"हिन्दी ที่นี่ مُحَمَّد e` + "\u0301" + ` בְּ"}`, `\u2800`},
		{`{"a":"` + strings.Repeat("harmless ", 13000) + `","z":"rm -rf /"}`, "", "rm -rf /"},
	} {
		if c.drawn == "" {
			c.drawn = c.sent
		}
		cmd := o.command("call", "wipe", "--json", "-", "--tools-dir", tools)
		var out bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.sent), &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		b.wait(`document.querySelector('.waits pre')`)
		var shown bytes.Buffer
		if err := json.Compact(&shown, []byte(b.text(`document.querySelector('.waits pre').textContent`))); err != nil || shown.String() != c.drawn {
			t.Errorf("%.90s is drawn as %.200q, %v", c.sent, shown.String(), err)
		}
		if c.differs != "" && !strings.Contains(b.text(`document.querySelector('.waits .diff').innerText`), c.differs) {
			t.Errorf("%.90s: the difference is %.300q", c.sent, b.text(`document.querySelector('.waits .diff').innerText`))
		}
		b.press("Approve")
		if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "wiped") {
			t.Errorf("%.90s: %v %s", c.sent, err, &out)
		}
		b.wait(`!document.querySelector('.waits')`)
	}
	b.fine()
}

// text returns a text of the page as it is.
func (b *tab) text(expression string) string {
	b.t.Helper()
	raw := b.js("JSON.stringify(" + expression + ")")
	if text, err := strconv.Unquote(raw); err == nil && !strings.HasPrefix(text, `"`) {
		return text
	} else if err == nil {
		raw = text
	}
	var text string
	if err := json.Unmarshal([]byte(raw), &text); err != nil {
		b.t.Fatalf("%.100s: %v", raw, err)
	}
	return text
}
