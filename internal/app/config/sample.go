package config

import (
	"fmt"
	"io"
	"reflect"

	"github.com/orla-project/orla/internal/app/terminal"
)

// WriteSample writes an orla.yaml that explains every key and sets none. The # before a key has no space
// after it, unlike that of an explanation, so that an editor can remove only the former.
func WriteSample(w io.Writer) error {
	const head = `# Configuration of Orla. Every key is here, commented out, with its default or an
# example. "orla config" prints what is in force and where it came from, "orla
# validate" checks this file, and "systemctl reload orla" or SIGHUP applies it.
`
	if _, err := io.WriteString(w, head); err != nil {
		return err
	}
	return writeSampleKeys(w, reflect.ValueOf(Defaults()), "")
}

func writeSampleKeys(w io.Writer, section reflect.Value, indent string) error {
	for _, field := range settings(section.Type()) {
		key, v := jsonKey(field), section.FieldByIndex(field.Index)
		text, isSample := field.Tag.Lookup("sample") // where the default depends on the machine, or does not show how a value looks
		if indent == "" {
			fmt.Fprintln(w)
		}
		mark := "# "
		if indent != "" {
			mark = "#" + indent + "# "
		}
		for _, line := range terminal.Wrap(field.Tag.Get("jsonschema"), 80-len(mark)) {
			fmt.Fprintf(w, "%s%s\n", mark, line)
		}
		switch {
		case isSample:
		case v.Kind() == reflect.Struct:
			fmt.Fprintf(w, "#%s%s:\n", indent, key)
			if err := writeSampleKeys(w, v, indent+"  "); err != nil {
				return err
			}
			continue
		case v.Kind() == reflect.Slice:
			text = "[]"
		default:
			if text = Text(v); text == "" {
				text = `""`
			}
		}
		if _, err := fmt.Fprintf(w, "#%s%s: %s\n", indent, key, text); err != nil {
			return err
		}
	}
	return nil
}
