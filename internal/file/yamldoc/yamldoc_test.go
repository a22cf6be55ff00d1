package yamldoc_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/file/yamldoc"
)

type colour string

func (colour) Values() []string { return []string{"red", "green"} }

type shared struct {
	Author string `json:"author,omitempty" jsonschema:"Who wrote it"`
}

type inner struct {
	Timeout yamldoc.Duration  `json:"timeout,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Args    []string          `json:"args,omitempty"`
}

type file struct {
	Name    string       `json:"name" jsonschema:"What it is called"`
	Count   int          `json:"count,omitempty"`
	Small   int8         `json:"small,omitempty"`
	Ratio   float64      `json:"ratio,omitempty"`
	On      bool         `json:"on,omitempty"`
	Maybe   *bool        `json:"maybe,omitempty"`
	Colour  colour       `json:"colour,omitempty"`
	Size    yamldoc.Size `json:"size,omitempty"`
	Any     yamldoc.JSON `json:"any,omitempty"`
	Runtime inner        `json:"runtime,omitzero"`
	List    []inner      `json:"list,omitempty"`
	shared
}

func decode(text string) (file, *yamldoc.Doc, error) {
	var f file
	doc, err := yamldoc.Decode("f.yaml", []byte(text), &f, yamldoc.Options{})
	return f, doc, err
}

func TestEveryKindOfFieldIsDecoded(t *testing.T) {
	f, doc, err := decode(`
name: 1.0
count: 0x10
small: -1_0
ratio: .5
on: true
maybe: false
colour: green
size: 1.5 KiB
author: yes
any: {b: [1, 2.50, null, "x\n", 0o17, 12345678901234567890123, on, <&>], a: &a {k: 1e3}, c: *a}
runtime:
  timeout: 1m30s
  env: {LOG: 1, A.B: on}
  args: [-x, 2024-01-01]
list:
- timeout: 0.5
`)
	if err != nil {
		t.Fatal(err)
	}
	no := false
	want := file{
		Name: "1.0", Count: 16, Small: -10, Ratio: .5, On: true, Maybe: &no, Colour: "green", Size: 1536,
		Any: yamldoc.JSON(`{"b":[1,2.50,null,"x\n",15,12345678901234567890123,"on","<&>"],"a":{"k":1e3},"c":{"k":1e3}}`),
		Runtime: inner{
			Timeout: yamldoc.Duration(90 * time.Second),
			Env:     map[string]string{"LOG": "1", "A.B": "on"},
			Args:    []string{"-x", "2024-01-01"},
		},
		List:   []inner{{Timeout: yamldoc.Duration(500 * time.Millisecond)}},
		shared: shared{Author: "yes"},
	}
	if !reflect.DeepEqual(f, want) {
		t.Errorf("got  %+v\nwant %+v", f, want)
	}
	for key, want := range map[string]bool{
		"name": true, "runtime": true, "runtime.timeout": true, "runtime.env.LOG": true, "runtime.env.A.B": true,
		"list[0].timeout": true, "any.b[1]": true, "any.c.k": true, "list[1]": false, "runtime.nothing": false, "nam": false,
	} {
		if got := doc.Has(key); got != want {
			t.Errorf("Has(%q) = %v, want %v", key, got, want)
		}
	}
}

func TestJSONIsDecodedAsWell(t *testing.T) {
	f, _, err := decode("{\n\t\"name\": \"a\\/b \\\\/ \\ud83d\\ude00\",\n\t\"runtime\": {\"env\": {\"A\": \"\\u00e9\"}}\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	if f.Name != `a/b \/ 😀` || f.Runtime.Env["A"] != "é" {
		t.Errorf("got %+v", f)
	}
}

func TestAnAbsentKeyKeepsItsValue(t *testing.T) {
	f := file{Name: "before", Count: 7}
	if _, err := yamldoc.Decode("f.yaml", []byte("name: after"), &f, yamldoc.Options{}); err != nil {
		t.Fatal(err)
	}
	if f.Name != "after" || f.Count != 7 {
		t.Errorf("got %+v", f)
	}
}

func TestB5FaultsPoint(t *testing.T) {
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	for name, c := range map[string]struct{ text, want string }{
		"an empty file lacks what is required":   {"", "1:1: name: is required"},
		"a file of comments is empty":            {"# hi\n", "1:1: name: is required"},
		"a null document is empty":               {"---\n", "1:1: name: is required"},
		"a required key is misspelt":             {"names: x", `1:1: names: unknown key; did you mean "name"?`},
		"a key is misspelt":                      {"name: x\ncuont: 1", `2:1: cuont: unknown key; did you mean "count"?`},
		"a key has another style":                {"name: x\nrun-time: {}", `2:1: run-time: unknown key; did you mean "runtime"?`},
		"a key belongs elsewhere":                {"name: x\ntimeout: 1", `2:1: timeout: unknown key; it belongs in "runtime"`},
		"a nested key belongs at the top":        {"name: x\nruntime: {count: 1}", "2:11: runtime.count: unknown key; it belongs at the top level"},
		"a key of another style elsewhere":       {"name: x\nTime-Out: 1", `2:1: Time-Out: unknown key; it belongs in "runtime", as "timeout"`},
		"a key is like no other":                 {"name: x\nzebra: 1", "2:1: zebra: unknown key"},
		"a nested key is misspelt":               {"name: x\nruntime:\n  timeuot: 1", `3:3: runtime.timeuot: unknown key; did you mean "timeout"?`},
		"a key is given twice":                   {"name: x\nname: y", "2:1: name: is given twice, first on line 1"},
		"a key below a free form is given twice": {"name: x\nany: {a: 1, a: 2}", "2:13: any.a: is given twice, first on line 2"},
		"a key that is not text":                 {"name: x\n? [a]\n: 1", "2:3: a key wants to be text, got a list"},
		"a merge key":                            {"name: x\nruntime:\n  <<: {args: []}", "3:3: runtime: merge keys (<<) are not supported; repeat the keys"},
		"text for a number":                      {"name: x\ncount: abc", `2:8: count: wants a whole number, got "abc"`},
		"a fraction for a whole number":          {"name: x\ncount: 1.5", "2:8: count: wants a whole number, got 1.5"},
		"a number that is too large":             {"name: x\nsmall: 128", "2:8: small: is out of range: 128"},
		"a number that begins with 0":            {"name: x\ncount: 010", "2:8: count: 010 begins with 0, which some read as octal; leave the 0 out, or put text in quotes"},
		"a number that is none":                  {"name: x\nratio: .nan", "2:8: ratio: wants a finite number, got .nan"},
		"text for a truth value":                 {"name: x\non: yes", `2:5: on: wants true or false, got "yes"`},
		"a list for text":                        {"name: [x]", "1:7: name: wants a string, got a list"},
		"nothing for text":                       {"name:", "1:6: name: wants a string, got nothing"},
		"nothing for a section":                  {"name: x\nruntime:", "2:9: runtime: wants a mapping, got nothing"},
		"nothing for a duration":                 {"name: x\nruntime: {timeout: ~}", "2:20: runtime.timeout: wants a value, got nothing"},
		"text for a list":                        {"name: x\nruntime:\n  args: -v", `3:9: runtime.args: wants a list, got "-v"`},
		"a list item of the wrong kind":          {"name: x\nruntime:\n  args: [a, {b: c}]", "3:13: runtime.args[1]: wants a string, got a mapping"},
		"a value that is not offered":            {"name: x\ncolour: gren", `2:9: colour: wants red or green, got "gren"; did you mean "green"?`},
		"a duration that is none":                {"name: x\nruntime: {timeout: 1:30}", `2:20: runtime.timeout: wants a duration such as 30s or 1m30s, or a number of seconds, got "1:30"`},
		"a duration that is negative":            {"name: x\nruntime: {timeout: -1}", "2:20: runtime.timeout: must not be negative, got -1"},
		"a size that is none":                    {"name: x\nsize: 8M", `2:7: size: wants a size such as 8MiB, 16MB or a number of bytes, got "8M"`},
		"a list at the top":                      {"- a", "1:1: the top level wants a mapping (key: value), got a list"},
		"a second document":                      {"name: x\n---\nname: y", "2:1: a second document begins here; a file holds one"},
		"a tag of somebody's own":                {"name: !secret x", "1:7: name: the tag !secret is not supported"},
		"text that is not UTF-8":                 {"name: \xff", "1:7: byte 0xff is not UTF-8; save the file as UTF-8"},
		"a control character":                    {"name: x\n# \x07", "2:3: control character U+0007 is not allowed"},
		"a tab for indentation":                  {"name: x\nruntime:\n\targs: []", "3:2: found character that cannot start any token; YAML is indented with spaces, and this line begins with a tab"},
		"a tab after a key":                      {"name: x\nany: y\n\truntime: {}", "3:2: found a tab character that violates indentation; YAML is indented with spaces, and this line begins with a tab"},
		"a bracket that stays open":              {"name: x\nruntime: {", "2:1: did not find expected node content; look at the indentation, quotes and brackets around here"},
		"a question mark in braces":              {"name: x\nany: {a: string?, b: int}", `2:1: did not find expected ',' or '}'; put "string?" in quotes: inside of { } and [ ] a ? needs them`},
		"a question mark before the brace":       {"name: x\nany: {a: {b: text?}}\n", `2:1: did not find expected ',' or '}'; put "text?" in quotes: inside of { } and [ ] a ? needs them`},
		"a conflict of git":                      {"name: x\n<<<<<<< HEAD\nany: a\n=======\nany: b\n>>>>>>> theirs\n", "2:1: a conflict of git begins here that is not resolved"},
		"a colon in a text":                      {"name: x\nany: a: b", `2:1: mapping values are not allowed in this context; put a text that has a colon in quotes, or look at the indentation`},
		"an anchor that is not there":            {"name: x\nany: *b", "2:1: unknown anchor 'b' referenced"},
		"values nested too deep":                 {"name: x\nany: " + deep, "2:106: any" + strings.Repeat("[0]", 100) + ": is nested more than 100 deep"},
		"an alias of what it is in":              {"name: x\nany: &a [*a]", "2:10: any" + strings.Repeat("[0]", 100) + ": is nested more than 100 deep"},
		"a file that is too large":               {strings.Repeat("#", 1<<20+1), "1:1: the file has 1048577 bytes, more than the 1048576 allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := decode(c.text)
			if err == nil {
				t.Fatalf("no fault; want %s", c.want)
			}
			if got, want := err.Error(), "f.yaml:"+c.want; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// SPEC B5: there is one fault of a value that is refused, and none of what is missing in it.
func TestB5OneFaultOfARefusedValue(t *testing.T) {
	_, doc, err := decode("name: x\nruntime: [1]\n")
	doc.Faultf("runtime.args", "is wanted here")
	doc.Faultf("runtime[0]", "is wanted here")
	doc.Faultf("runtimes", "is another key")
	if got, want := doc.Err().Error(), err.Error()+"\nf.yaml:1:1: runtimes: is another key"; !strings.Contains(got, "is another key") || strings.Contains(got, "is wanted here") {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// SPEC B5: what is wrong with a question mark is also said where values are not shown.
func TestB5AQuestionMarkInBracesOfAHiddenFile(t *testing.T) {
	var v struct{}
	_, err := yamldoc.Decode("f", []byte("name: x\nany: {a: hunter2?, b: int}"), &v, yamldoc.Options{Hide: true})
	if err == nil || !strings.Contains(err.Error(), "a word that ends in ? needs quotes") || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

func TestB5EveryFaultIsReportedAtOnce(t *testing.T) {
	_, doc, err := decode("runtime:\n  timeout: no\n  typo: 1\ncount: x\n")
	doc.Faultf("runtime", "is not good")
	doc.Faultf("runtime.timeout", "is not repeated after a fault of its form")
	doc.Faultf("runtime.args", "is wanted here")
	want := []string{
		"f.yaml:1:1: name: is required",
		"f.yaml:1:1: runtime: is not good",
		"f.yaml:1:1: runtime.args: is wanted here",
		`f.yaml:2:12: runtime.timeout: wants a duration such as 30s or 1m30s, or a number of seconds, got "no"`,
		"f.yaml:3:3: runtime.typo: unknown key",
		`f.yaml:4:8: count: wants a whole number, got "x"`,
	}
	if got := doc.Err().Error(); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	faults, ok := errors.AsType[yamldoc.Faults](err)
	if !ok || len(faults) != 4 || len(faults.Unwrap()) != 4 {
		t.Errorf("Decode returned %#v, want its own four faults", err)
	}
	if f, ok := errors.AsType[yamldoc.Fault](err); !ok || f.Line != 1 {
		t.Errorf("the first fault is %+v", f)
	}
}

func TestFaultsArePastCountingAtAHundred(t *testing.T) {
	var text strings.Builder
	for i := range 150 {
		fmt.Fprintf(&text, "zzzzzz%d: 1\n", i)
	}
	_, _, err := decode(text.String())
	faults, _ := errors.AsType[yamldoc.Faults](err)
	if len(faults) != 101 || faults[100].Msg != "51 more faults are not listed" {
		t.Errorf("got %d faults, the last %v", len(faults), faults[len(faults)-1])
	}
}

func TestAliasesAreBounded(t *testing.T) {
	var text strings.Builder
	text.WriteString("name: x\nany:\n  a0: &a0 [" + strings.Repeat("1234567890,", 10) + "]\n")
	for i := range 9 {
		fmt.Fprintf(&text, "  a%d: &a%[1]d [%s]\n", i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 10))
	}
	_, _, err := decode(text.String())
	if err == nil || strings.Count(err.Error(), "\n") != 0 || !strings.Contains(err.Error(), "aliases stand for more than") {
		t.Errorf("got %v, want the one fault of the aliases", err)
	}
}

func TestPositionsAndRefusedKeys(t *testing.T) {
	var f file
	doc, err := yamldoc.Decode("s.py", []byte("name: x\ncount: x\n"), &f, yamldoc.Options{
		Position: func(line, column int) (int, int) { return line + 10, column + 2 },
		Refuse:   map[string]string{"name": "does not belong here"},
	})
	doc.Faultf("ratio", "is wanted")
	want := "s.py:11:3: name: does not belong here\ns.py:11:3: ratio: is wanted\ns.py:12:10: count: wants a whole number, got \"x\""
	if err == nil || doc.Err().Error() != want {
		t.Errorf("got\n%v\nwant\n%s", doc.Err(), want)
	}
}

func TestSchemaSaysWhatDecodeTakes(t *testing.T) {
	raw, err := yamldoc.Schema[file](yamldoc.SchemaOptions{Title: "a file"})
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Schema               string `json:"$schema"`
		Title                string
		Required             []string
		Properties           map[string]any
		AdditionalProperties any
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	if s.Schema != "https://json-schema.org/draft/2020-12/schema" || s.Title != "a file" {
		t.Errorf("$schema %q, title %q", s.Schema, s.Title)
	}
	if !reflect.DeepEqual(s.Required, []string{"name"}) || s.AdditionalProperties != false {
		t.Errorf("required %v, additionalProperties %v", s.Required, s.AdditionalProperties)
	}
	for key, want := range map[string]any{
		"name":   map[string]any{"type": "string", "description": "What it is called"},
		"maybe":  map[string]any{"type": "boolean"}, // and not null
		"colour": map[string]any{"type": "string", "enum": []any{"red", "green"}},
		"any":    true,
		"author": map[string]any{"type": "string", "description": "Who wrote it"}, // of the embedded struct
	} {
		if got := s.Properties[key]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", key, got, want)
		}
	}
}

// A file of nothing but faults is answered at once: what is not listed is not
// looked into either.
func TestManyFaultsAreCheap(t *testing.T) {
	var keys strings.Builder
	const many = 20_000
	for i := range many {
		fmt.Fprintf(&keys, "k%d: 1\n", i)
	}
	var v struct {
		Known string `json:"known,omitempty"`
	}
	doc, err := yamldoc.Decode("f", []byte(keys.String()), &v, yamldoc.Options{})
	if n := testing.AllocsPerRun(1, func() {
		for i := range many {
			doc.Faultf(fmt.Sprint("k", i), "is wrong")
		}
	}); n > 5*many {
		t.Errorf("%v allocations for %d faults that are not listed", n, many)
	}
	faults, _ := errors.AsType[yamldoc.Faults](err)
	if len(faults) != 101 || faults[100].Msg != "19900 more faults are not listed" {
		t.Errorf("%d faults, the last %v", len(faults), faults[len(faults)-1])
	}
}

func TestALongKeyAndALongMessageAreCut(t *testing.T) {
	var v struct{}
	long := strings.Repeat("é", 5000)
	doc, err := yamldoc.Decode("f", []byte(long+": 1\n"), &v, yamldoc.Options{})
	doc.Faultf("", "%s", long)
	if err == nil || len(doc.Err().Error()) > 1500 || !utf8.ValidString(doc.Err().Error()) {
		t.Errorf("%d bytes: %v", len(doc.Err().Error()), doc.Err())
	}
}
