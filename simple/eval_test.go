package simple_test

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/orla-project/orla/simple"
)

// values has every kind of value that a template can meet.
const values = `{"a":"-rf","b":"abc","e":"","n":3,"z":0,"neg":-2,"f":1.5,"f0":0.0,"t":true,"no":false,"nul":null,"big":12345678901234567890,
	"l":["x",1,null,{"k":"v"},[2]],"l0":[],"o":{"k":"v","n":3,"o":{"k":null}},"o0":{}}`

// A template gives what text/template makes of it, and fails where text/template does (SPEC-TOOLS 3.6).
func TestT36TemplatesAreThoseOfGo(t *testing.T) {
	for _, template := range []string{
		"", "x", "{{/* c */}}", "{{.}}", "{{$}}", "{{.b}}", "{{.missing}}", "{{.missing.k}}", "{{.o.o.k.k}}", "{{.b.k}}", "{{.n.k}}", "{{.l.k}}", "{{.nul.k}}",
		"{{.b 1}}", "{{1 | .b}}", "{{$ 1}}", "{{$x := .b}}{{$x 1}}", "{{$x := .o}}{{$x.k 1}}", "{{.b.k 1}}", "{{nil}}", "{{1 2}}", "{{(1) 2}}", `{{"x" | 1}}`, "{{true}}{{false}}",
		"{{1}} {{0x10}} {{0b11}} {{1.0}} {{1e3}} {{'x'}} {{1i}} {{1_000}} {{0x1p4}} {{-3}} {{+3}} {{1.5e300}}", "{{9223372036854775808}}", "{{0x1.8p1}} {{0XE}}",
		"{{if .b}}1{{else if .e}}2{{else}}3{{end}}", "{{if .e}}1{{else if .l0}}2{{else}}3{{end}}", "{{with .o}}{{.k}}{{$.b}}{{else}}no{{end}}", "{{with .e}}1{{else with .b}}{{.}}{{end}}",
		"{{with $x := .o}}{{$x.k}}{{end}}", "{{if $x := .z}}{{else}}{{$x}}{{end}}", "{{$x := 1}}{{if true}}{{$x = 2}}{{$x := 3}}{{$x}}{{end}}{{$x}}", "{{$x := 1}}{{$x = .b | len}}{{$x}}",
		"{{range .l}}[{{.}}]{{else}}none{{end}}", "{{range .l0}}x{{else}}none{{end}}", "{{range $i, $v := .l}}{{$i}}={{$v}};{{end}}", "{{range $v := .o}}{{$v}};{{end}}", "{{range $k, $v := .o}}{{$k}}={{$v}};{{end}}",
		"{{range .n}}{{.}},{{end}}", "{{range $i := 3}}{{$i}},{{end}}", "{{range $i, $j := 3}}{{end}}", "{{range .z}}x{{else}}none{{end}}", "{{range .neg}}x{{else}}none{{end}}", "{{range .b}}{{end}}", "{{range .t}}{{end}}", "{{range .f}}{{end}}",
		"{{range .nul}}x{{else}}none{{end}}", "{{range .missing}}x{{else}}none{{end}}", "{{range .big}}{{end}}", "{{range index .b 0}}.{{end}}",
		"{{range .l}}{{if eq . 1}}{{break}}{{end}}{{.}}{{end}}", "{{range .n}}{{if eq . 1}}{{continue}}{{end}}{{.}}{{end}}", "{{range .n}}a{{range $.l0}}{{else}}{{break}}{{end}}b{{end}}",
		"{{range .n}}a{{range $.l0}}{{else}}{{continue}}{{end}}b{{end}}", "{{range .n}}{{with $.o}}{{break}}{{end}}{{end}}", "{{$i := 9}}{{range $i = .n}}{{$i}}{{end}}{{$i}}", "{{$i := 9}}{{$v := 8}}{{range $i, $v = .l}}{{$i}}{{end}}{{$i}}{{$v}}",
		`{{define "x"}}<{{.}}{{$}}>{{end}}{{template "x" .b}}{{template "x"}}`, `{{template "none"}}`, `{{block "x" .o}}{{.k}}{{end}}`, `{{define "x"}}{{.k}}{{end}}{{template "x" .b}}`, `{{define "x"}}{{end}}`,
		"{{$x := 1}}{{template \"y\" $x}}{{define \"y\"}}{{$x := 5}}{{$x}}{{.}}{{end}}{{$x}}", "{{(.o).k}}", "{{(.o).k.k}}", "{{(index .l 3).k}}", "{{(index .l 3).k 1}}", "{{(.missing).k}}", "{{(len .b).k}}",
		"{{and}}", "{{and 1 0 2}}", "{{and 1 2}}", "{{or 0 .e .b .b.k}}", "{{or 0 .e}}", "{{and 0 .b.k}}", "{{0 | and 1}}", "{{1 | or 0}}", "{{1 | or}}", "{{or .missing}}", "{{not .e}}{{not 1}}{{not nil}}", "{{not}}", "{{not 1 2}}",
		"{{call .b}}", "{{call}}", "{{call nil}}", "{{.b | call}}", "{{len .b}}{{len .l}}{{len .o}}{{len .nul}}{{len .big}}", "{{len 3}}", "{{len nil}}", "{{len .missing}}", "{{len}}", "{{len .b .b}}",
		"{{index .l 0}}{{index .l 3 \"k\"}}{{index .l 4 0}}", "{{index .l 5}}", "{{index .l 4}}", "{{index .l -1}}", `{{index .l "x"}}`, "{{index .l nil}}", `{{index .o "k"}}{{index .o "none"}}`, "{{index .o 1}}", "{{index .o nil}}", `{{index .o "none" "x"}}`,
		"{{index .b 1}}", "{{index .b 3}}", "{{index .n 1}}", "{{index nil 1}}", "{{index .missing 1}}", "{{index nil}}", "{{index .b}}", "{{index}}", `{{index .nul "x"}}`, "{{index .l 1.0}}", "{{index .big 0}}", "{{index .l (index .b 0)}}", "{{0 | index .l}}",
		"{{slice .b}}", "{{slice .b 1}}", "{{slice .b 1 2}}", "{{slice .b 1 2 3}}", "{{slice .b 2 1}}", "{{slice .b 4}}", "{{slice .l 1 2}}", "{{slice .l 1 2 3}}", "{{slice .l 1 3 2}}", "{{slice .l 0 0 0 0}}", "{{slice .o}}", "{{slice nil}}", "{{slice .n 1}}", "{{slice .big 1 3}}", "{{slice .b nil}}", `{{slice .b "x"}}`, "{{slice .b -1}}",
		"{{eq .b .b}}{{eq .b \"x\" \"abc\"}}{{eq 3 .n}}{{eq .t true}}{{eq 1.5 .f}}{{eq .big \"12345678901234567890\"}}", "{{eq .b}}", "{{eq}}", "{{eq .b .n}}", "{{eq .n .f}}", "{{eq .l .l}}", "{{eq .o .o}}", "{{eq .l .o}}", "{{eq .nul .nul}}{{eq .nul nil}}{{eq .nul .o0}}{{eq .missing .nul}}{{eq .missing nil}}{{eq .missing 1}}{{eq 1 nil}}",
		"{{eq .l nil}}", "{{eq nil .l}}", "{{eq .l0 nil}}", "{{eq .nul .l}}", "{{eq .nul 1}}", "{{eq .l 1}}", "{{eq 1i 1i}}", "{{eq (index .b 0) 97}}{{eq 97 (index .b 0)}}{{eq (index .b 0) (index .b 0)}}", "{{1 | eq .n}}", "{{eq 1 1 .l}}", "{{eq 1 2 .l}}", "{{ne .b .n}}", "{{ne 1 2}}{{ne nil nil}}{{ne .l nil}}{{ne .nul .o}}", "{{ne 1}}", "{{ne 1 2 3}}",
		"{{lt 1 2}}{{le 2 2}}{{gt .n 3}}{{ge .n 3}}{{lt .b \"b\"}}{{lt 1.5 .f}}{{le .f 1.5}}{{gt .neg -3}}{{lt (index .b 0) 98}}{{lt 96 (index .b 0)}}{{gt .b .big}}", "{{lt true false}}", "{{lt 1i 2i}}", "{{lt .l .l}}", "{{lt nil nil}}", "{{lt 1 nil}}", "{{lt nil 1}}", "{{lt 1 1.5}}", "{{lt .b 1}}", "{{lt 1}}", "{{le .o 1}}", "{{ge .missing 1}}", "{{gt 1 .l}}", "{{lt 1 .t}}",
		"{{print .b 1 nil .missing .nul .o .l}}", "{{println .b}}", "{{print}}", "{{html \"<\" .l}}{{js \"'\"}}{{urlquery \"a b&\"}}", `{{printf "%s-%d-%v-%q" .b .n .o .e}}`, "{{printf}}", "{{printf 1}}", "{{printf .n}}", "{{printf nil}}", "{{printf .missing}}", "{{printf .nul}}", "{{printf .big}}", `{{.b | printf "%s"}}`, "{{.b | printf}}", "{{.n | printf}}", "{{printf \"%T %T\" 1 .n}}",
		"{{.a}}", "x{{.a}}", "{{.e}}-x", `{{"-x"}}`, `{{printf "-%v" .a}}`, "{{.neg}}", "{{.neg}}{{.a}}", "{{$x := .a}}{{$x}}", "{{len .b | printf \"%d\" | html}}",
	} {
		same(t, template)
	}
}

// detail is what text/template and Orla say of a value in different words. elsewhere is said of another
// part of a command, and so perhaps of a later one.
var (
	detail    = regexp.MustCompile(`(?s)(can't evaluate field \w+ in type|error calling \w+:) .*`)
	elsewhere = regexp.MustCompile(`expected string|cannot assign nil to string|can't give argument to non-function`)
)

func alike(a, b error) bool {
	text, other := a.Error(), b.Error()
	return elsewhere.MatchString(text) || elsewhere.MatchString(other) ||
		detail.ReplaceAllString(text, "") == detail.ReplaceAllString(other, "")
}

// same checks that a template gives the same with text/template, or fails at the same place.
func same(t interface {
	Context() context.Context
	Errorf(format string, args ...any)
}, template string,
) {
	want, wantErr := simple.RenderByTextTemplate(t.Context(), template, json.RawMessage(values))
	got, err := simple.Render(t.Context(), []string{template}, json.RawMessage(values))
	switch {
	case err == nil && wantErr == nil && slices.Equal(got, want):
	case wantErr != nil && strings.Contains(wantErr.Error(), "cannot index slice/array with type interface {}"): // slice .b .n
	case err != nil && wantErr != nil && alike(err, wantErr):
	default:
		t.Errorf("%s\ngot  %q, %v\nwant %q, %v", template, got, err, want, wantErr)
	}
}

// words are parts of which TestT36RandomTemplatesAreThoseOfGo makes templates.
var (
	operands  = []string{".", "$", ".a", ".b", ".e", ".n", ".z", ".neg", ".f", ".t", ".no", ".nul", ".big", ".l", ".l0", ".o", ".o.k", ".o.o.k", ".none", ".none.k", ".k", "$.l", "$.o.n", "$x", "$y", "$x.k", "1", "2", "-1", "1.5", "true", "false", "nil", `"x"`, `"k"`, `"%v"`, `"-"`, "'a'", "1i"}
	callables = []string{"and", "or", "not", "call", "index", "slice", "len", "eq", "ne", "lt", "le", "gt", "ge", "print", "println", "printf", "html", "js", "urlquery"}
)

// TestT36RandomTemplatesAreThoseOfGo is TestT36TemplatesAreThoseOfGo for templates that nobody thought of.
func TestT36RandomTemplatesAreThoseOfGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		template := `{{$x := .o}}{{$y := 1}}` + nodesOf(t, 3) + `{{define "d"}}{{$x := .}}{{$y := $}}` + nodesOf(t, 0) + `{{end}}`
		same(t, template)
	})
}

// nodesOf makes a list of nodes, of which each has others in it down to a depth.
func nodesOf(t *rapid.T, depth int) string {
	text := ""
	for range rapid.IntRange(1, 3).Draw(t, "nodes") {
		kind := rapid.IntRange(0, 9).Draw(t, "kind")
		if depth == 0 {
			kind %= 4
		}
		switch kind {
		case 0:
			text += "t"
		case 1, 2:
			text += "{{" + pipelineOf(t, depth) + "}}"
		case 3:
			text += rapid.SampledFrom([]string{"{{$x = ", "{{$x := ", "{{$y = ", "{{$y := "}).Draw(t, "set") + pipelineOf(t, depth) + "}}"
		case 4:
			text += "{{if " + pipelineOf(t, depth) + "}}" + nodesOf(t, depth-1) + "{{else}}" + nodesOf(t, depth-1) + "{{end}}"
		case 5:
			text += "{{with " + pipelineOf(t, depth) + "}}" + nodesOf(t, depth-1) + "{{end}}"
		case 6, 7:
			over := rapid.SampledFrom([]string{"{{range ", "{{range $x := ", "{{range $x, $y := ", "{{range $y = ", "{{range $x, $y = "}).Draw(t, "over")
			leave := rapid.SampledFrom([]string{"", "", "{{break}}", "{{continue}}", "{{if .}}{{break}}{{end}}", "{{with .}}{{continue}}{{end}}"}).Draw(t, "leave")
			text += over + pipelineOf(t, depth) + "}}" + nodesOf(t, depth-1) + leave + nodesOf(t, depth-1) + "{{else}}" + nodesOf(t, depth-1) + "{{end}}"
		case 8:
			text += `{{template "d" ` + pipelineOf(t, depth) + `}}`
		case 9:
			text += "{{- /* c */ -}}"
		}
	}
	return text
}

func pipelineOf(t *rapid.T, depth int) string {
	text := commandOf(t, depth)
	for range rapid.IntRange(0, 3).Draw(t, "more") / 2 {
		text += " | " + commandOf(t, depth)
	}
	return text
}

func commandOf(t *rapid.T, depth int) string {
	if rapid.IntRange(0, 3).Draw(t, "command") == 0 {
		return operandOf(t, depth)
	}
	text := rapid.SampledFrom(callables).Draw(t, "function")
	for range rapid.IntRange(0, 3).Draw(t, "args") {
		text += " " + operandOf(t, depth)
	}
	return text
}

func operandOf(t *rapid.T, depth int) string {
	if depth > 0 && rapid.IntRange(0, 3).Draw(t, "operand") == 0 {
		return "(" + pipelineOf(t, depth-1) + ")" + rapid.SampledFrom([]string{"", "", ".k"}).Draw(t, "member")
	}
	return rapid.SampledFrom(operands).Draw(t, "value")
}
