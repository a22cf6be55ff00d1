package simple

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/observe/brief"
	"github.com/orla-project/orla/manifest"
)

const (
	// maxFlag is the longest value that becomes a flag (SPEC C1). The kernel
	// allows 128 KiB for one argument.
	maxFlag = 64 << 10
	// maxFlags bounds all flags of a call together: half of what Linux allows for arguments and
	// environment with the usual 8 MiB stack.
	maxFlags = 1 << 20
	// maxMembers bounds the arguments that may become flags: more are longer than maxFlags even with the
	// shortest names.
	maxMembers = 200_000
	// perMember is roughly how many bytes of memory one argument takes as a flag.
	perMember = 200
	// maxNamed bounds how much of an invalid name an error repeats.
	maxNamed = 64
)

// input is a call's arguments in the form that a process gets.
type input struct {
	stdin []byte
	flags []string
}

// buildInput turns a JSON object of arguments into stdin and flags (SPEC C1). It reserves the memory
// that many arguments take.
func buildInput(ctx context.Context, args json.RawMessage, mode manifest.ArgumentsMode) (input, error) {
	if none(args) {
		args = json.RawMessage("{}")
	}
	object := map[string]json.RawMessage{}
	many, counted := false, 0
	var full error
	err := eachMember(args, func(key string, value json.RawMessage) bool {
		const few = 1000
		if key == "stdin" || mode != manifest.ArgumentsStdin {
			object[key] = value
		}
		if len(object) > counted+few {
			counted += few
			full = turns.AccountOf(ctx).Need(ctx, few*perMember)
		}
		many = len(object) > maxMembers
		return !many && full == nil
	})
	switch {
	case full != nil:
		return input{}, fault.From(full)
	case many:
		return input{}, fault.New(fault.InvalidInput, "arguments: over %d members cannot be flags", maxMembers)
	case err != nil:
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

// none reports whether a call has no arguments.
func none(args json.RawMessage) bool {
	args = bytes.TrimSpace(args)
	return len(args) == 0 || string(args) == "null"
}

// eachMember calls take with the members of a JSON object, in order, until it returns false. It
// avoids encoding/json, which is slow and takes many times as much memory, unless a key has escapes.
func eachMember(args json.RawMessage, take func(key string, value json.RawMessage) bool) error {
	on := true
	if utf8.Valid(args) && rawjson.Valid(args) && rawjson.Members(args, func(key []byte, value json.RawMessage) bool {
		on = take(string(key), value)
		return on
	}) || !on {
		return nil
	}
	members := json.NewDecoder(bytes.NewReader(args)) // a key has escapes, or args is not an object
	if open, err := members.Token(); err != nil || open != json.Delim('{') {
		return errNoObject
	}
	for members.More() {
		key, err := members.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := members.Decode(&value); err != nil {
			return err
		}
		if name, _ := key.(string); !take(name, value) {
			return nil
		}
	}
	if _, err := members.Token(); err != nil {
		return err
	}
	if _, err := members.Token(); !errors.Is(err, io.EOF) {
		return errNoObject // something follows the object
	}
	return nil
}

var errNoObject = errors.New("not a JSON object")

// flagBuilder collects flags of the form --name value.
type flagBuilder struct {
	flags     []string
	size      int
	onlyFlags bool // there is no stdin for other values
}

func (b *flagBuilder) add(name string, raw json.RawMessage) error {
	if !flagName(name) {
		return fault.New(fault.InvalidInput,
			"arguments: %q cannot be a flag: names are letters, digits, _ and -, and begin with a letter or a digit", brief.Cut(name, maxNamed))
	}
	raw = bytes.TrimSpace(raw)
	flag := "--" + strings.ReplaceAll(name, "_", "-")
	if raw[0] != '[' {
		return b.addValue(name, flag, raw)
	}
	var err error
	rawjson.Elements(raw, func(element json.RawMessage) bool {
		err = b.addValue(name, flag, element)
		return err == nil
	})
	return err
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
	default: // true, false, and numbers as the client wrote them
		value = string(raw)
	}
	if strings.IndexByte(value, 0) >= 0 || len(value) > maxFlag {
		if b.onlyFlags {
			return fault.New(fault.InvalidInput,
				"arguments: %s: a value with a NUL byte or over %d bytes cannot be a flag, and this tool takes flags only", name, maxFlag)
		}
		return nil // stdin has the value
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
