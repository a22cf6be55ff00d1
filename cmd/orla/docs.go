package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/version"
)

// docsCommand is the hidden command that writes what a package brings beside
// the program.
const docsCommand = "__docs"

// newDocs writes the files that are made from the help and from Config: whoever
// packages Orla runs it, so that these files say what this program does.
func newDocs() *cobra.Command {
	return &cobra.Command{
		Use:    docsCommand + " DIR",
		Short:  "Write the man page, the completions and a commented orla.yaml to a folder",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeDocs(cmd.Root(), args[0])
		},
	}
}

// writeDocs writes each file whole. Nothing in them depends on the machine or the moment.
func writeDocs(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, file := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"orla.1", func(w io.Writer) error { return writeMan(w, root, docsDate()) }},
		{"orla.bash", func(w io.Writer) error { return root.GenBashCompletionV2(w, true) }},
		{"orla.zsh", root.GenZshCompletion},
		{"orla.fish", func(w io.Writer) error { return root.GenFishCompletion(w, true) }},
		{"orla.yaml", writeSampleConfig},
	} {
		var text strings.Builder
		if err := file.write(&text); err != nil {
			return fmt.Errorf("%s: %w", file.name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, file.name), []byte(text.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// docsDate is the date of the man page: that of the build's source, as those
// who build packages again and again to compare them say it, or as git does.
func docsDate() string {
	if epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		return time.Unix(epoch, 0).UTC().Format(time.DateOnly)
	}
	date, _, _ := strings.Cut(version.Date(), "T")
	return date
}

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

// writeSampleConfig writes an orla.yaml in which every key is explained and
// none is set: a key has no space after its sign, so that an editor can take the
// signs away again and leave the explanations.
func writeSampleConfig(w io.Writer) error {
	const head = `# Configuration of Orla. Every key is here, commented out, with its default or an
# example. "orla config" prints what is in force and where it came from, "orla
# validate" checks this file, and "systemctl reload orla" or SIGHUP applies it.
`
	if _, err := io.WriteString(w, head); err != nil {
		return err
	}
	initial := defaults()
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
		for _, line := range wrap(field.Tag.Get("jsonschema"), 80-len(mark)) {
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
			if text = shown(v); text == "" {
				text = `""`
			}
		}
		if _, err := fmt.Fprintf(w, "#%s%s: %s\n", indent, key, text); err != nil {
			return err
		}
	}
	return nil
}

// jsonKey is the name that a field has in files.
func jsonKey(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

// wrap breaks a text into lines of at most width bytes, where it has spaces.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
