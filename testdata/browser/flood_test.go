package browser

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

// N2, 8.7: a caller with many calls that wait, some of them as large as they may be, does not keep a person from deciding about the
// call of another one on the page. What waits beside those that are shown is counted, and shown as there is place for it.
func TestN2ManyApprovalsOfOneCaller(t *testing.T) {
	b := newTab(t)
	tools := folder(t, map[string]string{
		"wipe":      "#!/bin/sh\n# /// tool\n# input_schema: {type: object}\n# ///\necho wiped\n",
		"ask":       "#!/bin/sh\n# /// tool\n# input_schema: {type: object}\n# ///\necho asked\n",
		"ask.yaml":  "apiVersion: orloj.dev/v1\nkind: ToolPermission\nmetadata: {name: ask}\nspec: {operation_rules: [{verdict: approval_required, approvers: [client]}]}\n",
		"rule.yaml": "apiVersion: orloj.dev/v1\nkind: ToolPermission\nmetadata: {name: wipe}\nspec: {operation_rules: [{verdict: approval_required}]}\n",
	})
	settings := "approvals: {same_user: true}\nauth:\n  tokens:\n"
	for _, name := range []string{"ann", "bert", "cora", "dora"} {
		token := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(token, []byte(strings.Repeat(name, 10)), 0o600); err != nil {
			t.Fatal(err)
		}
		settings += fmt.Sprintf("    - {name: %s, file: %s}\n", name, token)
	}
	o := newOrla(t, tools, "version: 1\n", settings)
	var calls sync.WaitGroup
	t.Cleanup(calls.Wait)
	call := func(caller, tool, arguments string) (done chan struct{}) {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, arguments)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:"+o.port+"/mcp", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Authorization", "Bearer "+strings.Repeat(caller, 10))
		done = make(chan struct{})
		calls.Go(func() {
			defer close(done)
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		})
		return done
	}
	waiting := func(n int) {
		t.Helper()
		o.eventually(fmt.Sprintf("%d calls wait", n), func() bool { return strings.Count(o.run("approvals", "list"), "Pending") == n })
	}
	const many = 60
	for i := range many {
		call("ann", "wipe", fmt.Sprintf(`{"n": %d}`, i))
		if i%10 == 9 {
			waiting(i + 1)
		}
	}
	of := call("bert", "wipe", `{"of": "bert"}`)
	waiting(many + 1)
	b.do(chromedp.Navigate(o.run("console", "--no-browser")))
	b.wait(`document.querySelector('nav a')`)
	b.visit("#/approvals")
	b.wait(`document.querySelector('.totals')?.textContent === '61 calls wait'`)
	approve := `[...document.querySelectorAll('.waits')].find((e) => e.querySelector('h2').innerText.includes('by bert'))?.querySelector('.decide button')`
	b.wait(approve)
	b.wait(`document.querySelectorAll('.waits').length === 11`)
	b.wait(`document.querySelector('.more')?.innerText === '50 more calls of ann wait, and are shown when some of these are decided'`)
	b.click(approve)
	<-of
	b.wait(`!(` + approve + `)`)
	b.click(`[...document.querySelectorAll('.waits button')].find((e) => e.textContent === 'Deny')`)
	b.wait(`document.querySelectorAll('.waits').length === 10 && document.querySelector('.more')?.innerText.startsWith('49 ') && [...document.querySelectorAll('.waits')].at(-1).querySelector('.decide')`)

	large := `"a": ` + strings.Repeat("[", 45) + strings.Repeat("0,", 125_000) + "0" + strings.Repeat("]", 45)
	for i := range 10 {
		call("bert", "wipe", fmt.Sprintf(`{"large": %d, %s}`, i, large))
	}
	waiting(many - 1 + 10)
	b.wait(`[...document.querySelectorAll('.waits')].filter((e) => e.querySelector('h2').innerText.includes('by bert')).length === 2`)
	b.wait(`[...document.querySelectorAll('.more p')].some((e) => e.innerText.startsWith('8 more calls of bert '))`)

	// What a client of 2026-07-28 adds to a call is shown as well.
	b.js(`(() => { const f = window.fetch; window.fetch = async (at, ...rest) => {
		const answer = await f(at, ...rest);
		if (!/\/v1\/approvals$/.test(at)) return answer;
		const all = await answer.json();
		for (const r of all.approvals) if (r.caller === 'cora') r.input_bytes = 200000;
		return new Response(JSON.stringify(all), answer);
	}; return 1; })()`)
	for i := range 3 {
		call("cora", "wipe", fmt.Sprintf(`{"n": %d}`, i))
	}
	waiting(many - 1 + 10 + 3)
	b.wait(`[...document.querySelectorAll('.waits')].filter((e) => e.querySelector('h2').innerText.includes('by cora')).length === 2`)
	b.wait(`[...document.querySelectorAll('.more p')].some((e) => e.innerText.startsWith('1 more call of cora '))`)

	// Calls about which only the client may decide do not hide one that waits for a person here.
	for i := range 12 {
		call("dora", "ask", fmt.Sprintf(`{"n": %d}`, i))
	}
	waiting(many - 1 + 10 + 3 + 12)
	call("dora", "wipe", `{"n": 0}`)
	b.wait(`[...document.querySelectorAll('.waits')].some((e) => e.querySelector('h2').innerText.includes('by dora') && e.querySelector('.decide .primary:not(:disabled)'))`)
	// How many others there are depends on which of them the page had shown before: these stay.
	b.wait(`[...document.querySelectorAll('.more p')].some((e) => /^([1-3]) more calls? of dora /.test(e.innerText))`)
	b.fine()
}
