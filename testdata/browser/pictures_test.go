package browser

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// picture writes what the tab shows, if somebody wants to see it.
func (b *tab) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("PICTURES")
	if dir == "" {
		return
	}
	time.Sleep(300 * time.Millisecond) // until it is drawn; nothing depends on it
	shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), shot, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// weather is a capsule that knows two cities, and ends at the third.
const weather = `#!/usr/bin/env python3
import json, sys

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

say(method="orla.hello", params={"name": "weather", "version": "2.1.0"})
print("2 stations loaded", file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        city = message["params"]["arguments"]["city"]
        print(f"forecast for {city}", file=sys.stderr, flush=True)
        degrees = {"Rome": 31, "Oslo": 17}[city]
        say(id=message["id"], result={"content": [{"type": "text", "text": f"{degrees} degrees"}]})
`

// TestPictures makes the pictures of the documents, from the example tools and a capsule that crashes. It runs only if
// DOCUMENTS names where they go.
func TestPictures(t *testing.T) {
	into := os.Getenv("DOCUMENTS")
	if into == "" {
		t.Skip("DOCUMENTS is not set")
	}
	t.Setenv("PICTURES", into)
	tools := t.TempDir()
	for _, from := range []string{"tools", "capsules"} {
		if err := os.CopyFS(tools, os.DirFS(filepath.Join("..", "..", "examples", from))); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"main.py":   weather,
		"tool.yaml": "name: weather\nversion: 2.1.0\ndescription: The weather of a city.\nentrypoint: main.py\nruntime: {mode: capsule}\nmcp:\n  input_schema: {type: object, properties: {city: {type: string}}, required: [city]}\n",
	} {
		path := filepath.Join(tools, "weather", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b := newTab(t)
	o := newOrla(t, tools, "version: 1\n")
	b.do(chromedp.Navigate(o.run("console", "--no-browser")))
	b.wait(`[...document.querySelectorAll('.tools .badge')].filter((e) => e.textContent === 'Ready').length >= 3`)
	call := func(tool, arguments string) {
		_ = o.command("call", tool, "--json", arguments, "--tools-dir", tools).Run()
	} // some fail
	for range 4 {
		call("weather", `{"city":"Rome"}`)
		call("weather", `{"city":"Oslo"}`)
		call("hello", `{"name":"Ada"}`)
		call("wordcount", `{"text":"one two"}`)
	}
	call("notes__search", `{"query":"x"}`)
	call("weather", `{"city":"Atlantis"}`)
	b.visit("#/tool/weather")
	b.wait(`[...document.querySelectorAll('.story strong')].filter((e) => e.textContent === 'Ready').length === 2 && document.querySelector('.now .badge').textContent === 'Ready'`)
	call("weather", `{"city":"Rome"}`)
	b.look(1120, 662, "dark")
	b.picture("console-tool")
	b.look(1120, 560, "light")
	b.visit("#/tools")
	b.wait(`document.querySelectorAll('.tools .tr:not(.head)').length === 7`)
	b.picture("console-tools")
}

// deploy is a tool whose calls a person approves.
const deploy = `#!/usr/bin/env python3
# /// tool
# description: Deploy a version of a service.
# input_schema: {type: object}
# annotations: {readOnlyHint: false, destructiveHint: false}
# ///
print("deployed")
`

// TestPictureOfAnApproval makes the picture of a call that waits for a person, and of how it differs from the one before.
func TestPictureOfAnApproval(t *testing.T) {
	into := os.Getenv("DOCUMENTS")
	if into == "" {
		t.Skip("DOCUMENTS is not set")
	}
	t.Setenv("PICTURES", into)
	b := newTab(t)
	tools := filepath.Join(os.TempDir(), "orla-pictures") // the rule's place is in the picture
	t.Cleanup(func() { _ = os.RemoveAll(tools) })
	if err := os.Rename(folder(t, map[string]string{
		"deploy.py": deploy,
		"rule.yaml": "apiVersion: orloj.dev/v1\nkind: ToolPermission\nmetadata: {name: deploy}\nspec: {tool_ref: deploy, operation_rules: [{operation_class: write, verdict: approval_required, approvers: [passkey]}]}\n",
	}), tools); err != nil {
		t.Fatal(err)
	}
	o := newOrla(t, tools, "version: 1\n")
	b.authenticator()
	b.do(chromedp.Navigate(o.run("console", "--no-browser")))
	b.wait(`document.querySelector('nav a')`)
	b.visit("#/approvals")
	b.press("Add a passkey")
	b.wait(`document.querySelectorAll('.passkeys .marks li').length === 1`)
	call := func(arguments string) *exec.Cmd {
		t.Helper()
		cmd := o.command("call", "deploy", "--json", arguments, "--tools-dir", tools)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		b.wait(`document.querySelector('.waits pre')?.textContent.includes('service')`)
		return cmd
	}
	first := call(`{"service": "billing", "version": "2.1.0", "region": "eu-west", "replicas": 3}`)
	b.press("Approve with a passkey")
	if err := first.Wait(); err != nil {
		t.Error(err)
	}
	b.wait(`!document.querySelector('.waits') && [...document.querySelectorAll('.past')].every((e) => !e.style.height)`) // it has left its place
	second := call(`{"service": "billing", "version": "2.2.0", "region": "eu-west", "replicas": 12}`)
	b.wait(`document.querySelectorAll('.waits .diff li').length === 2`)
	b.wait(`!document.querySelector('.toast')`)
	b.look(1120, 704, "light")
	b.picture("console-approval")
	b.press("Deny")
	_ = second.Wait() // it was denied
}
