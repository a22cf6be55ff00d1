package browser

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// TestO3APageThatStaysOpen leaves pages open over an upgrade of Orla, and over the removal of the token by which one came:
// each says that its session is over, and shows nothing of Orla any more.
func TestO3APageThatStaysOpen(t *testing.T) {
	token := filepath.Join(t.TempDir(), "bert.token")
	if err := os.WriteFile(token, []byte(strings.Repeat("bert", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newTab(t)
	with := "auth:\n  tokens:\n    - {name: bert, file: " + token + "}\n    - {name: anna, file: " + token + "2}\ncallers:\n  - {name: bert, console: [viewer]}\n  - {name: anna, console: [viewer]}\n"
	if err := os.WriteFile(token+"2", []byte(strings.Repeat("anna", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	o := newOrla(t, folder(t, map[string]string{"secretive": "#!/bin/sh\necho hi\n"}), "version: 1\n", with)
	over := func() {
		t.Helper()
		b.wait(`document.body.innerText.includes('This session is over')`)
		if b.js(`document.body.innerText.includes('secretive')`) != "false" {
			t.Error("a page whose session is over still shows the tools")
		}
		b.mu.Lock()
		b.bad = nil // requests that were refused
		b.mu.Unlock()
	}
	enter := func() {
		t.Helper()
		b.shows(o, strings.Repeat("bert", 8))
		b.wait(`document.querySelector('.tools')?.innerText.includes('secretive')`)
	}

	b.do(chromedp.Navigate(o.run("console", "--no-browser")))
	b.wait(`document.querySelector('.tools')?.innerText.includes('secretive')`)
	o.run("upgrade", "--config", filepath.Join(o.dir, "orla.yaml"))
	over()

	enter()
	if err := os.WriteFile(filepath.Join(o.dir, "orla.yaml"), []byte(strings.Replace(with, "    - {name: bert, file: "+token+"}\n", "", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	o.run("reload", "--config", filepath.Join(o.dir, "orla.yaml"))
	over()
	if b.js(`[...document.querySelectorAll('a')].some((e) => e.getAttribute('href') === '/')`) != "true" {
		t.Error("the page does not lead to where a token is entered")
	}
	b.shows(o, strings.Repeat("bert", 8))
	b.wait(`document.body.innerText.includes('does not let you in')`)
}

// TestO1APartThatDoesNotCome keeps a part of the page from coming: the page says so, and leads to the whole of it.
func TestO1APartThatDoesNotCome(t *testing.T) {
	b := newTab(t)
	o := newOrla(t, "tools", "version: 1\n")
	b.do(chromedp.Navigate(o.run("console", "--no-browser")))
	b.wait(`document.querySelector('.tools .tr:not(.head)')`)
	if b.js(`document.querySelector('.late')`) != "null" {
		t.Error("a page that is whole says that it is not")
	}
	block := func(patterns ...*network.BlockPattern) {
		b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
			if _, err := cdp.Call(ctx, target, network.Enable, network.EnableParams{}); err != nil {
				return err
			}
			_, err := cdp.Call(ctx, target, network.SetBlockedURLs, network.SetBlockedURLsParams{URLPatterns: patterns})
			return err
		}))
	}
	block(&network.BlockPattern{URLPattern: "http://localhost:" + o.port + "/console/logs.js", Block: true})
	b.do(chromedp.Navigate("http://localhost:" + o.port + "/"))
	b.wait(`document.querySelector('.late')?.checkVisibility({visibilityProperty: true})`)
	b.accessible("a page that is not whole")
	block()
	b.do(chromedp.Click(".late a"))
	b.wait(`document.querySelector('.tools .tr:not(.head)')`)
}
