package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// call presses Call on the page of a tool, and returns what the page shows of the answer.
func (b *tab) call(of, name string) string {
	b.t.Helper()
	b.visit("#/try/" + of + "/" + name)
	b.wait(fmt.Sprintf(`document.querySelector('.about strong')?.textContent && location.hash.endsWith(%q) && document.querySelector('.go .primary') && !document.querySelector('.result').innerText`, name))
	return b.again()
}

// again presses Call, and returns what the page shows of the answer.
func (b *tab) again() string {
	b.t.Helper()
	b.click(`document.querySelector('.go .primary')`)
	b.wait(`document.querySelector('.result .banner') && document.querySelector('.go .primary').disabled === false`)
	return b.text(`document.querySelector('.result').innerText`)
}

// enters has a field of the form hold a text.
func (b *tab) enters(field, text string) {
	b.t.Helper()
	b.js(fmt.Sprintf(`((e) => { e.value = %q; e.dispatchEvent(new Event('input')); return 1; })(document.getElementById('arg-' + %q))`, text, field))
}

// TestO2TryEveryExample calls each tool of the examples on the page, with a value in each field that is required: the page
// shows what orla call prints.
func TestO2TryEveryExample(t *testing.T) {
	b := newTab(t)
	t.Setenv("TZ", "UTC")
	tools := t.TempDir()
	for _, from := range []string{"tools", "capsules"} {
		if err := os.CopyFS(tools, os.DirFS(filepath.Join("..", "..", "examples", from))); err != nil {
			t.Fatal(err)
		}
	}
	o := newOrla(t, tools, "version: 1\n")
	b.do(chromedp.Navigate(o.run("console", "--no-browser")))
	b.wait(`[...document.querySelectorAll('.tools .badge')].filter((e) => e.textContent === 'Ready').length === 2`)
	b.js(`(window.all = null, fetch('/api/v1/tools', {headers: {'X-Orla-Console': localStorage.getItem('orla.console.key')}}).then((r) => r.text()).then((text) => { window.all = text; }), 1)`)
	b.wait(`window.all`)
	var list struct {
		Tools []struct {
			Name, Of string
			Schema   struct {
				Required   []string
				Properties map[string]struct{ Type any }
			} `json:"input_schema"`
		}
	}
	if err := json.Unmarshal([]byte(b.text(`window.all`)), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Tools) < 10 {
		t.Errorf("the examples have %d tools", len(list.Tools))
	}
	for _, one := range list.Tools {
		if strings.HasSuffix(one.Name, "wait") { // it waits for somebody else
			continue
		}
		b.visit("#/try/" + one.Of + "/" + one.Name)
		b.wait(fmt.Sprintf(`document.querySelector('.raw') && location.hash.endsWith(%q) && document.querySelectorAll('.field').length === %d`, one.Name, len(one.Schema.Properties)))
		for _, field := range one.Schema.Required {
			value := "Two words"
			if kind := one.Schema.Properties[field].Type; kind == "integer" || kind == "number" {
				value = "1"
			}
			b.enters(field, value)
		}
		arguments := b.text(`document.querySelector('.raw').value`)
		shown := b.again()
		out, _ := o.command("call", one.Name, "--json", arguments, "--tools-dir", tools).Output() // it may fail: so it does on the page
		answer := strings.TrimSpace(string(out))
		if !strings.Contains(shown, "The tool answered") && !strings.Contains(shown, "The tool failed") {
			t.Errorf("%s with %s: the page shows %q", one.Name, arguments, shown)
		}
		if stays := len(one.Schema.Properties) == 0 || one.Of == one.Name; stays && answer != "" && !strings.Contains(strings.Join(strings.Fields(shown), " "), strings.Join(strings.Fields(answer), " ")) {
			t.Errorf("%s with %s: the page shows %q, and orla call prints %q", one.Name, arguments, shown, answer)
		}
		t.Logf("%s %s: %.80q", one.Name, strings.Join(strings.Fields(arguments), " "), shown)
	}
	b.fine()
}

// odd is an MCP server whose tools have schemas that no form is made for. It answers with the arguments.
const odd = `#!/usr/bin/env python3
import json, sys

SCHEMAS = json.loads(open("schemas.json").read())

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

say(method="orla.hello", params={"name": "odd", "version": "1.0.0", "capabilities": ["tools"]})
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "tools/list":
        say(id=message["id"], result={"tools": [{"name": name, "description": "x", "inputSchema": schema} for name, schema in SCHEMAS.items()]})
    elif "id" in message and "method" in message:
        say(id=message["id"], result={"content": [{"type": "text", "text": json.dumps(message["params"].get("arguments"))}]})
`

// TestO2SchemasWithoutAWidget calls tools whose schemas have no form, or a strange one: what the form does not offer can be
// entered as JSON, and the page shows each.
func TestO2SchemasWithoutAWidget(t *testing.T) {
	deep := `{"type":"object","properties":{"tree":{"$ref":"#/$defs/node"}},"$defs":{"node":{"type":"object","properties":{"next":{"$ref":"#/$defs/node"}}}}}`
	many := map[string]any{}
	for i := range 300 {
		many[fmt.Sprintf("field_%03d", i)] = map[string]any{"type": "string"}
	}
	wide, err := json.Marshal(map[string]any{"type": "object", "properties": many})
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct{ name, schema, field, entered, arguments string }{
		{"no_properties", `{"type":"object"}`, "", "", `{"x": [1, {"y": null}]}`},
		{"one_of", `{"type":"object","oneOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{"type":"number"}},"required":["b"]}]}`, "", "", `{"b": 2}`},
		{"conditional", `{"type":"object","properties":{"kind":{"type":"string"}},"if":{"properties":{"kind":{"const":"a"}}},"then":{"required":["kind"]}}`, "kind", "a", `{"kind": "a"}`},
		{"recursive", deep, "tree", `{"next": {"next": {}}}`, `{"tree": {"next": {"next": {}}}}`},
		{"list_of_objects", `{"type":"object","properties":{"rows":{"type":"array","items":{"type":"object"}}}}`, "rows", `[{"a": 1}]`, `{"rows": [{"a": 1}]}`},
		{"tuple", `{"type":"object","properties":{"pair":{"type":"array","prefixItems":[{"type":"string"},{"type":"number"}]}}}`, "pair", `["a", 1]`, `{"pair": ["a", 1]}`},
		{"any", `{"type":"object","properties":{"value":true}}`, "value", `[1, "x"]`, `{"value": [1, "x"]}`},
		{"several_types", `{"type":"object","properties":{"value":{"type":["integer","string","null"]}}}`, "value", "7", `{"value": 7}`},
		{"values_of_all_kinds", `{"type":"object","properties":{"value":{"enum":[null,1,"1",{"a":1}]}}}`, "value", "4", `{"value": {"a": 1}}`},
		{"only_const", `{"type":"object","properties":{"value":{"const":3}}}`, "value", "3", `{"value": 3}`},
		{"strange_names", `{"type":"object","properties":{"__proto__":{"type":"string"},"a b\"'<":{"type":"string"},"":{"type":"string"}}}`, "__proto__", "x", `{"__proto__": "x"}`},
		{"many", string(wide), "field_299", "last", `{"field_299": "last"}`},
		{"by_pattern", `{"type":"object","patternProperties":{"^x-":{"type":"string"}},"additionalProperties":{"type":"integer"}}`, "", "", `{"x-a": "b", "n": 1}`},
	}
	schemas := map[string]json.RawMessage{}
	for _, c := range cases {
		schemas[c.name] = json.RawMessage(c.schema)
	}
	text, err := json.Marshal(schemas)
	if err != nil {
		t.Fatal(err)
	}
	b := newTab(t)
	o := newOrla(t, folder(t, map[string]string{
		"odd/main.py": odd, "odd/schemas.json": string(text), "odd/tool.yaml": "name: odd\nversion: 1.0.0\ndescription: A tool.\nentrypoint: main.py\nruntime: {mode: capsule}\n",
	}), "version: 1\n")
	b.do(chromedp.Navigate(o.run("console", "--no-browser")))
	b.wait(`document.querySelector('.tools .badge')?.textContent === 'Ready'`)
	for _, c := range cases {
		name := "odd__" + c.name
		b.visit("#/try/odd/" + name)
		b.wait(fmt.Sprintf(`document.querySelector('.about strong')?.textContent === %q && document.querySelector('.go .primary')`, name))
		if c.field == "" {
			b.js(fmt.Sprintf(`((e) => { e.value = %q; e.dispatchEvent(new Event('input')); return 1; })(document.querySelector('.raw'))`, c.arguments))
		} else {
			b.enters(c.field, c.entered)
		}
		if got := b.again(); !strings.Contains(got, c.arguments) {
			t.Errorf("%s: the page shows %q, want %s", c.name, got, c.arguments)
		}
		b.accessible("a form of the schema " + c.name)
	}
	b.fine()
}

// asks is a capsule that asks for an account, and answers with the text of what it got.
const asks = `#!/usr/bin/env python3
import json, sys

def say(text):
    print(text, flush=True)

say('{"jsonrpc": "2.0", "method": "orla.hello", "params": {"name": "asks", "version": "1.0.0"}}')
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    say('{"jsonrpc": "2.0", "id": "ask", "method": "elicitation/create", "params": {"message": "Which?", "requestedSchema": {"type": "object", "properties": {"account": {"type": "integer"}}, "required": ["account"]}}}')
    answer = sys.stdin.readline()
    say('{"jsonrpc": "2.0", "id": %s, "result": {"content": [{"type": "text", "text": %s}], "structuredContent": {"account": 9007199254740993, "much": 1e400}}}' % (json.dumps(message["id"]), json.dumps(answer)))
`

// O2: a number that a person types reaches the tool that asks for it, and one of the tool the person, with all digits.
func TestO2NumbersOfQuestionsAndResults(t *testing.T) {
	b := newTab(t)
	o := newOrla(t, folder(t, map[string]string{
		"asks/main.py": asks, "asks/tool.yaml": "name: asks\nversion: 1.0.0\ndescription: A tool.\nentrypoint: main.py\nruntime: {mode: capsule}\n",
	}), "version: 1\n")
	b.do(chromedp.Navigate(o.run("console", "--no-browser")))
	b.wait(`document.querySelector('.tools .badge')?.textContent === 'Ready'`)
	b.visit("#/try/asks")
	b.click(`document.querySelector('.go .primary')`)
	b.wait(`document.querySelector('.asked input')`)
	b.js(`((e) => { e.value = '9007199254740993'; e.dispatchEvent(new Event('input')); document.querySelector('.asked .primary').click(); return 1; })(document.querySelector('.asked input'))`)
	b.wait(`document.querySelectorAll('.result pre').length === 3`)
	for n, want := range [][]string{{"9007199254740993"}, {"9007199254740993", "1e400"}, {"9007199254740993", "1e400"}} {
		got := b.text(fmt.Sprintf(`document.querySelectorAll('.result pre')[%d].textContent`, n))
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%q has no %s", got, w)
			}
		}
	}
	b.fine()
}
