package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// codeLike finds what Markdown shows as code: names of keys and variables, paths, addresses.
var codeLike = regexp.MustCompile(`https?://[^ ,;)]+|[$~]?[A-Za-z0-9.]*(?:[/_][A-Za-z0-9._]+)+|\$[A-Z_]+(?:/[a-z]+)*`)

// inMarkdown is the text of a tag as the page shows it.
func inMarkdown(text string) string {
	return codeLike.ReplaceAllStringFunc(text, func(code string) string {
		end := strings.TrimRight(code, ".,")
		return "`" + end + "`" + code[len(end):]
	})
}

// pageRows are the rows of a table of the page: of the keys that isolate tools, or of the others.
func pageRows(section reflect.Type, path string, isolation bool) string {
	var rows strings.Builder
	for _, field := range settings(section) {
		embedded := len(field.Index) > 1
		key, flag := path+jsonKey(field), ""
		switch t := field.Type; {
		case path == "" && embedded != isolation:
			continue
		case t.Kind() == reflect.Struct:
			rows.WriteString(pageRows(t, key+".", isolation))
			continue
		}
		if _, has := field.Tag.Lookup("flag"); has {
			flag = "`--" + flagKey{key: key}.flag() + "`"
		}
		meaning, initial, _ := cutLast(field.Tag.Get("jsonschema"), " Default")
		initial = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(initial, ":"), " "), ".")
		if initial != "" && initial != "none" && initial != "stderr" && !strings.Contains(initial, " ") {
			initial = "`" + initial + "`"
		} else {
			initial = inMarkdown(initial)
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s | %s |\n", key, flag, initial, strings.TrimSuffix(inMarkdown(meaning), "."))
		if t := field.Type; t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
			rows.WriteString(pageRows(t.Elem(), key+"[].", isolation))
		}
	}
	return rows.String()
}

func cutLast(text, at string) (before, after string, found bool) {
	i := strings.LastIndex(text, at)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(at):], true
}

// The tables of docs/CONFIGURATION.md are made from Config. UPDATE=1 in the environment
// writes them.
func TestTheConfigurationPageIsTheTable(t *testing.T) {
	path := filepath.Join("..", "..", "..", "docs", "CONFIGURATION.md")
	page := testkit.ReadFile(t, path)
	want := page
	for name, isolation := range map[string]bool{"keys": false, "isolation": true} {
		begin, end := "<!-- "+name+": made from internal/app/config; UPDATE=1 go test ./internal/app/config -->\n", "<!-- end of "+name+" -->\n"
		head, rest, begins := strings.Cut(want, begin)
		_, tail, ends := strings.Cut(rest, end)
		if !begins || !ends {
			t.Fatalf("the page has no table %s between\n%s%s", name, begin, end)
		}
		want = head + begin + "| key | flag | default | meaning |\n|---|---|---|---|\n" + pageRows(reflect.TypeFor[Config](), "", isolation) + end + tail
	}
	switch {
	case want == page:
	case os.Getenv("UPDATE") == "":
		t.Errorf("the page is not what the table says; UPDATE=1 writes\n%s", want)
	default:
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
