package simple_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/simple"
)

// belowZero is a number that may be first.
var belowZero = regexp.MustCompile(`^-[0-9]`)

// FuzzArguments checks what must hold for any arguments of any client (SPEC C1).
func FuzzArguments(f *testing.F) {
	for _, seed := range []string{
		``, `null`, `{}`, `{"a":1,"b_c":"x","d":[1,null,"y",{"k":[]}],"e":{"f":1e400},"g":true,"h":null}`,
		`{"stdin":"raw"}`, `{"stdin":5}`, `{"a\u0000":"\u0000"}`, `{"a":"\ud800"}`, ` {"a" : [ ] } `, `[1]`, `{"a":1,"a":2}`, `{"":1}`, `{"-x":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, args []byte) {
		for _, mode := range []manifest.ArgumentsMode{manifest.ArgumentsBoth, manifest.ArgumentsStdin, manifest.ArgumentsFlags} {
			stdin, flags, err := simple.BuildInput(args, mode)
			if err != nil {
				if fault.CodeOf(err) != fault.InvalidInput {
					t.Errorf("%s: error = %v; want invalid_input", mode, err)
				}
				continue
			}
			if mode == manifest.ArgumentsStdin && len(flags) > 0 {
				t.Errorf("flags %q in stdin mode", flags)
			}
			if len(flags)%2 != 0 {
				t.Fatalf("%s: a flag without a value in %q", mode, flags)
			}
			for i, word := range flags {
				if strings.ContainsRune(word, 0) {
					t.Errorf("%s: NUL in %q", mode, word)
				}
				if i%2 == 0 && (!strings.HasPrefix(word, "--") || len(word) < 3 || strings.ContainsAny(word, "_ =")) {
					t.Errorf("%s: %q is not a flag", mode, word)
				}
			}
			var object map[string]any
			if mode == manifest.ArgumentsStdin && json.Unmarshal(args, &object) == nil {
				if text, ok := object["stdin"].(string); ok && string(stdin) != text {
					t.Errorf("stdin = %q; want %q", stdin, text)
				}
			}
		}
	})
}

// FuzzTemplates checks what must hold for any template of a file and any arguments
// of a client (SPEC-TOOLS 3.6): one argument at most, no option that a value made,
// and an end.
func FuzzTemplates(f *testing.F) {
	for _, template := range []string{
		"", "get", "-{{.a}}", "{{.a}}", "x{{.a}}", "{{- .a -}}", "{{.e}}-x", "{{if .a}}--a{{else}}{{.b}}{{end}}", `{{printf "-%v" .a}}`, `{{printf .a .n}}`,
		"{{range $i, $x := .l}}{{$x}}{{end}}", "{{range .n}}{{range $.n}}{{end}}{{end}}", `{{define "x"}}{{template "x" .}}{{end}}{{template "x" .}}`,
		"{{with .o}}{{.k.m}}{{end}}", "{{index .l .n}}", "{{slice .a 1 2}}", "{{.a | js | js | js | urlquery | html}}", "{{call .a}}", "{{len .a}}", "{{eq .a .l}}",
		"{{$x := print .a .a}}{{$x}}", "{{break}}", "{{range .l}}{{continue}}{{end}}", "{{/* c */}}{{.}}", "{{print 1e3 'x' true nil}}", "{{block \"b\" .}}-{{.a}}{{end}}", "{{.a}}{{\"-\"}}",
	} {
		f.Add(template, `{"a":"-rf","b":"--all","e":"","n":3,"l":["-a",1,null,{"k":[]}],"o":{"k":null},"big":12345678901234567890.50}`)
		f.Add(template, `{"a":"%[1]*.[1]*d","n":-9000000000000000000}`)
	}
	f.Fuzz(func(t *testing.T, template, args string) {
		argv, err := simple.Render(t.Context(), []string{template}, json.RawMessage(args))
		again, errAgain := simple.Render(t.Context(), []string{"--", template}, json.RawMessage(args))
		if err != nil {
			if _, parseErr := manifest.ParseTemplate(template); parseErr == nil && fault.CodeOf(err) != fault.InvalidInput {
				t.Fatalf("error = %v; want invalid_input", err)
			}
			return
		}
		if full := len(strings.Join(argv, "")) > 127<<10; full && errAgain != nil {
			return // the -- takes room too
		}
		if errAgain != nil || len(again) != len(argv)+1 || len(argv) > 1 {
			t.Fatalf("%q, and after -- %q, %v", argv, again, errAgain)
		}
		for _, arg := range argv {
			if arg == "" || strings.ContainsRune(arg, 0) || len(arg) > 128<<10 {
				t.Fatalf("%.100q has %d bytes", arg, len(arg))
			}
			if strings.HasPrefix(arg, "-") && !belowZero.MatchString(arg) && !strings.Contains(template, "-") && !strings.Contains(template, `\`) {
				t.Fatalf("%q comes of %q", arg, template)
			}
		}
	})
}
