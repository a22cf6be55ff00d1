package simple_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/simple"
)

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
					t.Errorf("%s: %q is no flag", mode, word)
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
