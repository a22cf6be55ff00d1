package config

import (
	"fmt"
	"io"
	"reflect"

	"github.com/orla-project/orla/internal/terminal"
)

// sampleValues are shown for keys whose default depends on where Orla runs, or
// whose empty default would not say how a value looks.
var sampleValues = map[string]string{
	"max_concurrent_calls": "16",
	"state_dir":            "/var/lib/orla",
	"secrets_dir":          "/etc/orla/secrets",
	"log_file":             "/var/log/orla/orla.log",
	"allowed_origins":      "[https://example.com]",
	"allowed_hosts":        "[orla.example.com]",
	"auth.tokens":          "[{name: ci, file: /etc/orla/ci.token}]",

	"cli_allowed_commands":    "[git, /usr/bin/jq]",
	"sandbox_paths":           "[/usr/local/lib/models]",
	"tool_container_image":    "docker.io/library/python:3.13-slim",
	"tool_container_runtime":  "runsc",
	"tool_container_networks": "[tools]",
	"tool_k8s_kubeconfig":     "/etc/orla/kubeconfig",
	"tool_k8s_context":        "tools",
}

// WriteSample writes an orla.yaml in which every key is explained and
// none is set: a key has no space after its sign, so that an editor can take the
// signs away again and leave the explanations.
func WriteSample(w io.Writer) error {
	const head = `# Configuration of Orla. Every key is here, commented out, with its default or an
# example. "orla config" prints what is in force and where it came from, "orla
# validate" checks this file, and "systemctl reload orla" or SIGHUP applies it.
`
	if _, err := io.WriteString(w, head); err != nil {
		return err
	}
	initial := Defaults()
	return writeSampleKeys(w, reflect.ValueOf(initial), "", "")
}

func writeSampleKeys(w io.Writer, section reflect.Value, path, indent string) error {
	for _, field := range settings(section.Type()) {
		key, v := jsonKey(field), section.FieldByIndex(field.Index)
		text, isSample := sampleValues[path+key]
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
			if err := writeSampleKeys(w, v, path+key+".", indent+"  "); err != nil {
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
