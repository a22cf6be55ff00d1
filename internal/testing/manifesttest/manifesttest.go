// Package manifesttest has what the tests of package manifest and of the
// packages below it share: folders of tools, and checks of what is found in them.
package manifesttest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/mcp/schema"
	"github.com/orla-project/orla/manifest"
)

const (
	// Script is an executable's text.
	Script = "#!/bin/sh\necho\n"
	// Binary begins an executable that is not a script.
	Binary = "PK\x03\x04"
	// Resource is a Tool; it has a verb for its name.
	Resource = "apiVersion: orloj.dev/v1\nkind: Tool\nmetadata: {name: %s}\nspec: {endpoint: https://example.com}\n"
	// MayBeRule ends the problem of what cannot be read and may hold a governance document.
	MayBeRule = "; there may be a governance document in it, so that every call is denied until it can be read or is gone"
	// Deprecated is the warning that every orla-tool.json has.
	Deprecated = "is deprecated: tool.yaml replaces it (RFC 3); to convert it, move name, version, entrypoint and a description to a tool.yaml, " +
		"and everything else below runtime, with mode: capsule"
)

// Write makes a file, and the folders above it.
func Write(t *testing.T, dir, name, text string, mode os.FileMode) {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
}

// WritePackage makes a package with its entrypoint.
func WritePackage(t *testing.T, dir, name, version string) {
	t.Helper()
	Write(t, dir, "tool.yaml", fmt.Sprintf("name: %s\nversion: %s\ndescription: x\nentrypoint: run.sh\n", name, version), 0o644)
	Write(t, dir, "run.sh", Script, 0o755)
}

// Pack makes a package with the manifest and an entrypoint called run.sh.
func Pack(t *testing.T, toolYAML string) string {
	t.Helper()
	dir := t.TempDir()
	Write(t, dir, "tool.yaml", toolYAML, 0o644)
	Write(t, dir, "run.sh", "#!/bin/sh\n", 0o644)
	return dir
}

// Read returns what a file holds.
func Read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Link makes a symbolic link.
func Link(t *testing.T, target, file string) {
	t.Helper()
	if err := os.Symlink(target, file); err != nil {
		t.Fatal(err)
	}
}

// RealPath is a path without links.
func RealPath(t *testing.T, dir string) string {
	t.Helper()
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	return real
}

// Folder goes to a new working directory, lets build fill the folder tools there, and
// returns its name.
func Folder(t *testing.T, build func()) string {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.Mkdir("tools", 0o755); err != nil {
		t.Fatal(err)
	}
	build()
	return "tools"
}

// Expect compares names and problems with what they should be.
func Expect(t *testing.T, r manifest.Result, tools, problems []string) {
	t.Helper()
	if got := Names(r); !slices.Equal(got, tools) {
		t.Errorf("tools\n got  %q\n want %q", got, tools)
	}
	if got := Texts(r); !slices.Equal(got, problems) {
		t.Errorf("problems\n got  %s\n want %s", strings.Join(got, "\n      "), strings.Join(problems, "\n      "))
	}
}

// Texts gives the problems as people see them.
func Texts(r manifest.Result) []string {
	var list []string
	for _, p := range r.Problems {
		list = append(list, string(p.Severity)+" "+p.Path+": "+p.Err.Error())
	}
	return list
}

// Names gives the names of the tools.
func Names(r manifest.Result) []string {
	var list []string
	for _, tool := range r.Tools {
		list = append(list, tool.Name)
	}
	return list
}

// SecretValues tells what is in the secrets of a result, as NAMESPACE/NAME:KEY.
func SecretValues(r manifest.Result) map[string]string {
	values := map[string]string{}
	for _, s := range r.Secrets {
		for key, value := range s.Data {
			values[s.Namespace+"/"+s.Name+":"+key] = value.Reveal()
		}
	}
	return values
}

// UTF16 is a text of ASCII in UTF-16, as Windows writes it.
func UTF16(text string) string {
	var b strings.Builder
	for i := range len(text) {
		b.WriteByte(text[i])
		b.WriteByte(0)
	}
	return b.String()
}

// AsJSON returns a YAML mapping as JSON.
func AsJSON(t *testing.T, text []byte) json.RawMessage {
	t.Helper()
	indented := "doc:\n  " + strings.ReplaceAll(string(text), "\n", "\n  ")
	var free struct {
		Doc yamldoc.JSON `json:"doc"`
	}
	if _, err := yamldoc.Decode("", []byte(indented), &free, yamldoc.Options{}); err != nil {
		t.Fatal(err)
	}
	return json.RawMessage(free.Doc)
}

// ParserKeys lists the keys that a parser knows, as paths.
func ParserKeys(t reflect.Type, prefix string) []string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if _, own := reflect.TypeAssert[json.Unmarshaler](reflect.New(t)); own || t.Kind() != reflect.Struct {
		return nil
	}
	var list []string
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous {
			continue
		}
		list = append(append(list, prefix+name), ParserKeys(f.Type, prefix+name+".")...)
	}
	return list
}

// SchemaKeys lists the keys that a JSON Schema knows, as paths.
func SchemaKeys(object map[string]any, prefix string) []string {
	properties, ok := object["properties"].(map[string]any)
	if !ok {
		return nil
	}
	var list []string
	for name, below := range properties {
		list = append(list, prefix+name)
		if below, ok := below.(map[string]any); ok {
			list = append(list, SchemaKeys(below, prefix+name+".")...)
		}
	}
	return list
}

// Sound checks what holds of every file, whatever is in it.
func Sound(t *testing.T, tool manifest.Tool, err error) {
	t.Helper()
	if err != nil {
		faults, ok := errors.AsType[yamldoc.Faults](err)
		if !ok {
			t.Fatalf("got %#v, want Faults", err)
		}
		for _, f := range faults {
			if f.Line < 1 || f.Column < 1 || f.Msg == "" {
				t.Fatalf("a fault that points nowhere: %#v", f)
			}
		}
		return
	}
	if _, err := schema.CompileInput(tool.InputSchema); err != nil {
		t.Fatalf("input schema %s: %v", tool.InputSchema, err)
	}
	if tool.OutputSchema == nil {
		return
	}
	if _, err := schema.CompileObject(tool.OutputSchema); err != nil {
		t.Fatalf("output schema %s: %v", tool.OutputSchema, err)
	}
}

// AddSeeds adds files to the corpus of a fuzz target.
func AddSeeds(f *testing.F, pattern string) {
	f.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}
