package crd

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// plain are the texts that YAML takes for themselves, without quotes.
var plain = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9/_-]*([ ][A-Za-z0-9/_,()-]+)*$`) })

// words are those that YAML 1.1 takes for something else than a text.
var words = []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null"}

// writeYAML writes a JSON value as YAML, with sorted keys.
func writeYAML(out *bytes.Buffer, v any, level int) {
	indent := strings.Repeat("  ", level)
	switch v := v.(type) {
	case object:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			fmt.Fprintf(out, "%s%s:", indent, scalar(key))
			writeBelow(out, v[key], level+1)
		}
	case []any:
		for _, item := range v {
			if below, ok := item.(object); ok && len(below) > 0 {
				var lines bytes.Buffer
				writeYAML(&lines, below, level+1)
				fmt.Fprintf(out, "%s- %s", indent, lines.String()[len(indent)+2:])
				continue
			}
			fmt.Fprintf(out, "%s- %s\n", indent, scalar(item))
		}
	}
}

// writeBelow writes the value of a key.
func writeBelow(out *bytes.Buffer, v any, level int) {
	switch below := v.(type) {
	case object:
		if len(below) > 0 {
			out.WriteByte('\n')
			writeYAML(out, below, level)
			return
		}
	case []any:
		if len(below) > 0 {
			out.WriteByte('\n')
			writeYAML(out, below, level)
			return
		}
	}
	fmt.Fprintf(out, " %s\n", scalar(v))
}

// scalar returns a value on one line.
func scalar(v any) string {
	if text, ok := v.(string); ok && plain().MatchString(text) && !slices.Contains(words, strings.ToLower(text)) {
		return text
	}
	raw, err := rawjson.Encode(v)
	if err != nil {
		panic(err) // it came from JSON, or is Orla's own
	}
	return string(raw)
}
