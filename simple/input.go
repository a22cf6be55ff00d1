package simple

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/manifest"
)

const (
	// maxFlag is the longest value that becomes a flag (SPEC C1). The kernel
	// allows 128 KiB for one argument.
	maxFlag = 64 << 10
	// maxFlags bounds all flags of one call: half of what Linux allows for
	// arguments and environment with the usual 8 MiB stack.
	maxFlags = 1 << 20
	// maxNamed bounds how much of a bad name an error repeats.
	maxNamed = 64
)

// input is a call's arguments as a process takes them.
type input struct {
	stdin []byte
	flags []string
}

// buildInput turns a JSON object of arguments into stdin and flags (SPEC C1).
func buildInput(args json.RawMessage, mode manifest.ArgumentsMode) (input, error) {
	if len(bytes.TrimSpace(args)) == 0 || string(bytes.TrimSpace(args)) == "null" {
		args = json.RawMessage("{}")
	}
	object, err := membersOf(args)
	if err != nil {
		return input{}, fault.New(fault.InvalidInput, "arguments: want a JSON object")
	}
	var in input
	if mode != manifest.ArgumentsFlags {
		in.stdin = args
	}
	if raw, ok := object["stdin"]; ok && raw[0] == '"' {
		text, err := unquote(raw)
		if err != nil {
			return input{}, fault.New(fault.InvalidInput, "arguments: stdin: not a valid JSON string")
		}
		in.stdin = []byte(text)
		delete(object, "stdin")
	}
	if mode == manifest.ArgumentsStdin {
		return in, nil
	}
	b := flagBuilder{onlyFlags: mode == manifest.ArgumentsFlags}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if err := b.add(name, object[name]); err != nil {
			return input{}, err
		}
	}
	in.flags = b.flags
	return in, nil
}

// membersOf returns the members of a JSON object, of two with one key the last.
// As a rule encoding/json, which goes by reflection, has nothing to do with it.
func membersOf(args json.RawMessage) (map[string]json.RawMessage, error) {
	object := map[string]json.RawMessage{}
	if utf8.Valid(args) && rawjson.Valid(args) && rawjson.Members(args, func(key string, value json.RawMessage) bool {
		object[key] = value
		return true
	}) {
		return object, nil
	}
	clear(object)
	err := json.Unmarshal(args, &object)
	return object, err
}

// flagBuilder collects --name value pairs.
type flagBuilder struct {
	flags     []string
	size      int
	onlyFlags bool // there is no stdin to fall back to
}

func (b *flagBuilder) add(name string, raw json.RawMessage) error {
	if !flagName(name) {
		return fault.New(fault.InvalidInput,
			"arguments: %q cannot be a flag: names are letters, digits, _ and -, and begin with a letter or a digit", clip(name))
	}
	raw = bytes.TrimSpace(raw)
	flag := "--" + strings.ReplaceAll(name, "_", "-")
	if raw[0] != '[' {
		return b.addValue(name, flag, raw)
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(raw, &elements); err != nil {
		return fault.New(fault.InvalidInput, "arguments: %s: not a valid JSON array", name)
	}
	for _, element := range elements {
		if err := b.addValue(name, flag, element); err != nil {
			return err
		}
	}
	return nil
}

func (b *flagBuilder) addValue(name, flag string, raw json.RawMessage) error {
	var value string
	switch raw[0] {
	case 'n':
		return nil
	case '"':
		text, err := unquote(raw)
		if err != nil {
			return fault.New(fault.InvalidInput, "arguments: %s: not a valid JSON string", name)
		}
		value = text
	case '{', '[':
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil {
			return fault.New(fault.InvalidInput, "arguments: %s: not valid JSON", name)
		}
		value = compact.String()
	default: // true, false, and numbers exactly as the client wrote them
		value = string(raw)
	}
	if strings.IndexByte(value, 0) >= 0 || len(value) > maxFlag {
		if b.onlyFlags {
			return fault.New(fault.InvalidInput,
				"arguments: %s: a value with a NUL byte or over %d bytes cannot be a flag, and this tool takes flags only", name, maxFlag)
		}
		return nil // stdin has it
	}
	b.size += len(flag) + len(value) + 2
	if b.size > maxFlags {
		return fault.New(fault.InvalidInput,
			"arguments: over %d bytes of flags; let the tool take its arguments on stdin (arguments: stdin)", maxFlags)
	}
	b.flags = append(b.flags, flag, value)
	return nil
}

// unquote decodes a JSON string.
func unquote(raw json.RawMessage) (string, error) {
	if text := rawjson.String(raw); text != "" && utf8.ValidString(text) {
		return text, nil
	}
	var text string
	err := json.Unmarshal(raw, &text)
	return text, err
}

// flagName reports whether name matches [A-Za-z0-9][A-Za-z0-9_-]*.
func flagName(name string) bool {
	for i, r := range []byte(name) {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		case (r == '_' || r == '-') && i > 0:
		default:
			return false
		}
	}
	return name != ""
}

func clip(name string) string {
	if len(name) > maxNamed {
		return strings.ToValidUTF8(name[:maxNamed], "") + "…"
	}
	return name
}
