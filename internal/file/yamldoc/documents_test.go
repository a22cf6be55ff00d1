package yamldoc_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/file/yamldoc"
)

// split decodes every document of a text into a name, and says where it begins.
func split(text string) string {
	var out []string
	for _, d := range yamldoc.Documents([]byte(text)) {
		var v struct {
			Name string `json:"name,omitempty"`
		}
		doc, err := yamldoc.Decode("f", d.Data, &v, yamldoc.Options{Position: d.Position})
		switch {
		case doc.Empty():
			v.Name = "empty"
		case err != nil:
			v.Name = err.Error()
		}
		out = append(out, fmt.Sprintf("%d %s", d.Line, v.Name))
	}
	return strings.Join(out, "; ")
}

// SPEC-TOOLS 1.1: a file has one or more documents.
func TestT11DocumentsOfAFile(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":                  {"", ""},
		"comments":                 {"# a\n\n# b", ""},
		"one":                      {"name: a", "1 a"},
		"one that is begun":        {"---\nname: a\n", "1 a"},
		"two":                      {"name: a\n---\nname: b\n", "1 a; 2 b"},
		"comments above the first": {"# a\n#\n---\nname: a\n---\nname: b", "1 a; 5 b"},
		"comments that end as YAML 1.1 lets them": {"# a\rname: a\n---\n# b\u0085name: b\n---\n# c\u2028name: c\n", "1 a; 2 b; 4 c"},
		"a comment that ends with CR and LF":      {"# a\r\n\r\n", ""},
		"an end that ends with CR":                {"...\rname: a\n", "1 f:1:1: did not find expected node content; look at the indentation, quotes and brackets around here"},
		"an end with a comment":                   {"name: a\n... # c\nname: b\n", "1 a; 3 b"},
		"directives":                              {"%YAML 1.1\n---\nname: a\n...\n%YAML 1.1\n---\nname: b\n", "1 a; 5 b"},
		"a mark of the byte order":                {"\ufeff---\nname: a\n---\nname: b\n", "1 a; 3 b"},
		"lines that end as Windows ends them":     {"name: a\r\n---\r\nname: b\r\n", "1 a; 2 b"},
		"an end in between":                       {"name: a\n...\nname: b\n...\n...\n# c\n", "1 a; 3 b"},
		"empty ones":                              {"---\n---\n# c\n---\nname: a\n---\n", "1 empty; 2 empty; 4 a; 6 empty"},
		"one on the marker's line":                {"--- {name: a}\n--- {name: b}", "1 a; 2 b"},
		"text is not a marker":                    {"name: |\n  ---\n  ...\n----: \n", "1 f:4:1: ----: unknown key"},
		"a broken one leaves the others":          {"name: a\n---\nname: [\n---\nname: b\n---\nname: 'c\n", "1 a; 2 f:4:1: did not find expected node content; look at the indentation, quotes and brackets around here; 4 b; 6 f:7:1: found unexpected end of stream"},
		"faults have the file's lines":            {"name: a\n---\n\nname: {}\n", "1 a; 2 f:4:7: name: wants a string, got a mapping"},
		"anchors are a document's own":            {"name: &x a\n---\nname: *x\n", "1 a; 2 f:3:1: unknown anchor 'x' referenced"},
		"a fourth and a fifth":                    {"name: a\n---\nname: b\n---\nname: c\n---\nname: d\n---\nname: e\n", "1 a; 2 b; 4 c; 6 d; 8 e"},
		"three and nothing more":                  {"name: a\n---\nname: b\n---\nname: c\n...\n# d\n", "1 a; 2 b; 4 c"},
		"a fourth after an end":                   {"name: a\n---\nname: b\n---\nname: c\n...\n# d\nname: d\n", "1 a; 2 b; 4 c; 7 d"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := split(c.text); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestTextIsWhatAKeySays(t *testing.T) {
	doc := yamldoc.Parse("f", []byte("a: &x 1.0\nb: {c: *x, d: ~}\n'e.f': g\n"), yamldoc.Options{})
	for key, want := range map[string]string{"a": "1.0", "b.c": "1.0", "e.f": "g"} {
		if got, ok := doc.Text(key); got != want || !ok {
			t.Errorf("%s: got %q, %v", key, got, ok)
		}
	}
	for _, key := range []string{"", "b", "b.d", "b.e", "z", "a.b"} {
		if got, ok := doc.Text(key); ok || got != "" {
			t.Errorf("%s: got %q, %v", key, got, ok)
		}
	}
	if _, ok := yamldoc.Parse("f", []byte("a: ["), yamldoc.Options{}).Text("a"); ok {
		t.Error("a file that cannot be parsed says something")
	}
}

// SPEC-TOOLS 5.3: what a file of secrets says stays out of its faults.
func TestT53HiddenValues(t *testing.T) {
	const planted = "hunter2"
	for _, text := range []string{
		planted, "[" + planted, "name: [" + planted + "]", "name: *" + planted, "name: !" + planted + " x", "map: " + planted,
		"count: " + planted, "colour: " + planted, "on: " + planted, "ratio: 0" + planted, "name: '" + planted, "list: " + planted,
		"name: " + planted + "\nname: " + planted, "name: \"\\" + planted + "\"", "map: &a " + planted + "\nname: *a\ncount: *a",
		"count: 077" + planted, "name: %" + planted, "name: a: " + planted, "any: {a: " + planted + "}\non: 1",
	} {
		var v struct {
			Name   string            `json:"name"`
			Map    map[string]string `json:"map,omitempty"`
			Count  int               `json:"count,omitempty"`
			Ratio  float64           `json:"ratio,omitempty"`
			On     bool              `json:"on,omitempty"`
			Colour colour            `json:"colour,omitempty"`
			List   []string          `json:"list,omitempty"`
			Any    yamldoc.JSON      `json:"any,omitempty"`
		}
		_, err := yamldoc.Decode("f", []byte(text), &v, yamldoc.Options{Hide: true})
		if err == nil || strings.Contains(err.Error(), planted) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestRevealTellsAllButSecrets(t *testing.T) {
	doc := yamldoc.Parse("f", []byte("runtime: hunter2\ncount: told\n"), yamldoc.Options{Hide: true})
	doc.Reveal("runtime")
	var v file
	text := fmt.Sprint(doc.Decode(&v))
	if strings.Contains(text, "hunter2") || !strings.Contains(text, "told") {
		t.Error(text)
	}
}

func FuzzDocuments(f *testing.F) {
	f.Add([]byte("a: 1\n---\nb: 2\n...\n%YAML 1.1\n---\nc"))
	f.Add([]byte("\ufeff---\r\n... x\n--- |\n  ---"))
	f.Fuzz(func(t *testing.T, data []byte) {
		last := 0
		for _, d := range yamldoc.Documents(data) {
			if d.Line <= last || len(d.Data) == 0 {
				t.Fatalf("a document of %d bytes on line %d, after line %d", len(d.Data), d.Line, last)
			}
			last = d.Line
			lines := strings.Split(string(data), "\n")
			if !strings.HasPrefix(strings.Join(lines[d.Line-1:], "\n"), string(d.Data)) {
				t.Fatalf("line %d is not where %q begins", d.Line, d.Data)
			}
		}
	})
}
