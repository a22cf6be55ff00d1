package browser

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// folder makes a folder of tools: executables, and files that are not (with an extension).
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		mode := os.FileMode(0o755)
		if filepath.Ext(name) != "" && filepath.Ext(name) != ".py" {
			mode = 0o644
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// authenticator gives the tab an authenticator that knows its person.
func (b *tab) authenticator() {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		if _, err := cdp.Call(ctx, target, webauthn.Enable, webauthn.EnableParams{}); err != nil {
			return err
		}
		_, err := cdp.Call(ctx, target, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{Options: &webauthn.VirtualAuthenticatorOptions{
			Protocol: "ctap2", Transport: "internal", HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true,
		}})
		return err
	}))
}

// tabTo presses Tab until what has the focus fits.
func (b *tab) tabTo(fits string) {
	b.t.Helper()
	for range 60 {
		if b.js("Boolean((e => "+fits+")(document.activeElement))") == "true" {
			return
		}
		b.do(chromedp.KeyEvent(kb.Tab))
	}
	b.t.Fatalf("the keyboard does not reach it: %s\n%s", fits, b.js("document.body.innerText"))
}

// TestApprovals has a person approve a call by passkey and deny one, with the keyboard alone. The audit log has what was
// signed.
func TestApprovals(t *testing.T) {
	b := newTab(t)
	tools := folder(t, map[string]string{
		"wipe":      "#!/bin/sh\necho wiped\n",
		"rule.yaml": "apiVersion: orloj.dev/v1\nkind: ToolPermission\nmetadata: {name: wipe}\nspec: {operation_rules: [{verdict: approval_required}]}\n",
	})
	o := newOrla(t, tools, "version: 1\n")
	b.authenticator()
	link := o.run("console", "--no-browser")
	if !strings.HasPrefix(link, "http://localhost:") {
		t.Fatalf("the link is %s: passkeys need a name", link)
	}
	b.do(chromedp.Navigate(link))
	b.wait(`document.querySelector('nav a')`)
	b.visit("#/approvals")
	call := func(arguments string) (*exec.Cmd, *bytes.Buffer) {
		var out bytes.Buffer
		cmd := o.command("call", "wipe", "--json", arguments, "--tools-dir", tools)
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		b.wait(`document.querySelector('.waits')?.innerText.includes(` + "`" + strings.Trim(arguments, "{}") + "`" + `)`)
		return cmd, &out
	}
	approve := `e.textContent === 'Approve with a passkey'`
	approving, said := call(`{"n": 1}`)
	b.wait(`[...document.querySelectorAll('.waits button')].some((e) => ` + approve + ` && e.disabled)`)
	b.accessible("approvals without a passkey")
	b.tabTo(`e.textContent === 'Add a passkey' && !e.disabled`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.wait(`document.querySelectorAll('.passkeys .marks li').length === 1`)
	if b.js(`document.activeElement.matches('.passkeys')`) != "true" {
		t.Errorf("after a passkey was added the focus is on %s", b.js(`document.activeElement.outerHTML.slice(0, 80)`))
	}
	b.wait(`[...document.querySelectorAll('.waits button')].some((e) => ` + approve + ` && !e.disabled)`)
	b.accessible("approvals with a passkey")
	b.look(320, 900, "dark")
	if got := b.js(`[...document.querySelectorAll('.waits button')].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.textContent).join()`); got != "" {
		t.Errorf("on a phone, buttons are too narrow for their text: %s", got)
	}
	b.picture("approval-320")
	b.look(1280, 800, "light")
	b.js("(document.activeElement.blur(), 1)")
	b.tabTo(approve)
	b.do(chromedp.KeyEvent(kb.Enter))
	if err := approving.Wait(); err != nil || !strings.Contains(said.String(), "wiped") {
		t.Errorf("the call: %v\n%s\n%s", err, said, b.js("document.body.innerText"))
	}
	b.wait(`document.querySelector('.past')?.innerText.includes('passkey') && !document.querySelector('.waits')`)

	denying, said := call(`{"n": 2}`)
	b.tabTo(`e.placeholder?.startsWith('Reason')`)
	b.do(chromedp.KeyEvent("not on a Friday"))
	b.js("(document.querySelector('main').focus(), 1)")
	b.tabTo(`e.textContent === 'Deny'`)
	b.do(chromedp.KeyEvent(kb.Enter))
	if err := denying.Wait(); err == nil || !strings.Contains(said.String(), "not on a Friday") {
		t.Errorf("the call that was denied: %v\n%s\n%s", err, said, b.js("document.body.innerText"))
	}
	b.wait(`!document.querySelector('.waits')`)
	b.fine()
	if out := o.run("audit", "verify", "--config", filepath.Join(o.dir, "orla.yaml")); strings.Contains(out, "fail") {
		t.Error(out)
	}
}
