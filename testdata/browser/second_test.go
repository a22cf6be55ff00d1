package browser

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// press presses a button that has a text.
func (b *tab) press(text string) {
	b.t.Helper()
	b.click("[...document.querySelectorAll('main button')].find((e) => e.textContent === '" + text + "' && !e.disabled)")
}

// shows goes to the page of an Orla with a token.
func (b *tab) shows(o *orla, token string) {
	b.t.Helper()
	b.do(chromedp.Navigate("http://localhost:" + o.port + "/"))
	b.wait(`document.querySelector('input[type=password]')?.checkVisibility()`)
	b.js(`(document.querySelector('input[type=password]').value = '` + token + `', document.querySelector('input[type=password]').form.requestSubmit(), 1)`)
}

// TestSecondPerson has a second person add a passkey in the own browser, the first one agree to it, the second one approve
// a call, and the first one remove the passkey again.
func TestSecondPerson(t *testing.T) {
	tools := folder(t, map[string]string{
		"wipe":      "#!/bin/sh\necho wiped\n",
		"rule.yaml": "apiVersion: orloj.dev/v1\nkind: ToolPermission\nmetadata: {name: wipe}\nspec: {operation_rules: [{verdict: approval_required}]}\n",
	})
	token := filepath.Join(t.TempDir(), "bert.token")
	if err := os.WriteFile(token, []byte(strings.Repeat("bert", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	ada, bert := newTab(t), newTab(t)
	o := newOrla(t, tools, "version: 1\n", "auth:\n  tokens:\n    - {name: bert, file: "+token+"}\ncallers:\n  - {name: bert, console: [approver]}\n")
	ada.authenticator()
	bert.authenticator()
	ada.do(chromedp.Navigate(o.run("console", "--no-browser")))
	ada.wait(`document.querySelector('nav a')`)
	ada.visit("#/approvals")
	ada.press("Add a passkey")
	ada.wait(`document.querySelectorAll('.passkeys .marks li').length === 1`)

	bert.shows(o, strings.Repeat("bert", 8))
	bert.wait(`document.querySelector('nav a')`)
	bert.mu.Lock()
	bert.bad = nil // the page said 401 before the login
	bert.mu.Unlock()
	bert.visit("#/approvals")
	bert.press("Add a passkey")
	bert.wait(`document.querySelector('.asked .code')`)
	ada.wait(`document.querySelector('.passkey.waits')?.innerText.includes('bert')`)
	code := bert.js(`document.querySelector('.asked .code').textContent`)
	if len(code) != 9 || strings.Contains(ada.js(`document.querySelector('.passkey.waits').innerText`), code) {
		t.Errorf("the second person sees the code %s; the first one is to hear it", code)
	}
	types := func(code string) {
		ada.js(`((e) => { e.value = '` + code + `'; e.dispatchEvent(new Event('input')); return 1; })(document.querySelector('.passkey.waits .code'))`)
		ada.press("Agree with a passkey")
	}
	types("")
	ada.wait(`document.querySelector('.passkey.waits .fault').textContent.startsWith('Type the code')`)
	types("AAAA-AAAA")
	ada.wait(`document.querySelector('.passkey.waits .fault').textContent.startsWith('This is not the code')`)
	rules := map[string][]string{"dark": colours} // light: all
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1440, 800, 320} {
			ada.look(width, 900, scheme)
			bert.look(width, 900, scheme)
			ada.accessible("a passkey that waits, "+scheme, rules[scheme]...)
			bert.accessible("a passkey that was asked for, "+scheme, rules[scheme]...)
			ada.picture("agree-" + scheme + "-" + map[int64]string{1440: "1440", 800: "800", 320: "320"}[width])
			bert.picture("asked-" + scheme + "-" + map[int64]string{1440: "1440", 800: "800", 320: "320"}[width])
		}
	}
	types(strings.ToLower(strings.Replace(code, "-", " ", 1)))
	bert.wait(`document.querySelectorAll('.passkeys .marks li').length === 1 && !document.querySelector('.asked')`)
	ada.wait(`!document.querySelector('.passkey.waits')`)

	call := o.command("call", "wipe", "--tools-dir", tools)
	if err := call.Start(); err != nil {
		t.Fatal(err)
	}
	bert.press("Approve with a passkey")
	if err := call.Wait(); err != nil {
		t.Errorf("the call: %v", err)
	}
	ada.wait(`document.querySelector('.past')?.innerText.includes('bert')`)

	ada.js(`(document.querySelector('.everybody').open = true, 1)`)
	ada.wait(`document.querySelectorAll('.everybody .passkey').length === 2`)
	ada.accessible("the passkeys of everybody")
	ada.picture("everybody")
	ada.click(`[...document.querySelectorAll('.everybody .passkey')].find((e) => e.innerText.includes('bert'))?.querySelector('button')`)
	bert.wait(`document.querySelectorAll('.passkeys .marks li').length === 0`)
	ada.wait(`document.querySelectorAll('.everybody .passkey').length === 1 && document.querySelector('.everybody .passkey button').disabled`)
	ada.fine()
	bert.fine()
	if out := o.run("audit", "verify", "--config", filepath.Join(o.dir, "orla.yaml")); strings.Contains(out, "fail") {
		t.Error(out)
	}
}
