package toolfile

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/manifest"
)

// maxShebang is longer than any kernel takes, so that no sound file has more.
const maxShebang = 1024

var byteOrderMark = []byte("\xef\xbb\xbf")

// parseShebang reads the interpreter from a file's first line (SPEC A5). ok
// reports whether the line is a shebang at all; the error says why one cannot
// be used. As in the kernel, all that follows an interpreter is one argument;
// env takes the interpreter's name, and with -S its arguments as well.
func parseShebang(firstLine []byte) (i manifest.Interpreter, ok bool, err error) {
	line, _, _ := bytes.Cut(bytes.TrimPrefix(firstLine, byteOrderMark), []byte("\n"))
	text, ok := strings.CutPrefix(string(line), "#!")
	if !ok {
		return manifest.Interpreter{}, false, nil
	}
	text = strings.Trim(text, " \t\r")
	if len(text) > maxShebang {
		return manifest.Interpreter{}, true, fmt.Errorf("the shebang is longer than %d bytes", maxShebang)
	}
	if strings.ContainsRune(text, 0) {
		return manifest.Interpreter{}, true, errors.New("the shebang holds a NUL byte")
	}
	program, args := text, ""
	if end := strings.IndexAny(text, " \t"); end >= 0 {
		program, args = text[:end], strings.Trim(text[end:], " \t")
	}
	switch {
	case program == "":
		return manifest.Interpreter{}, true, errors.New("the shebang names no interpreter")
	case program == "env":
		return manifest.Interpreter{}, true, errors.New(`the shebang's interpreter "env" is not an absolute path; write #!/usr/bin/env`)
	case !strings.Contains(program, "/"):
		return manifest.Interpreter{}, true, fmt.Errorf("the shebang's interpreter %q is not a path; write #!/usr/bin/env %s", program, program)
	case path.IsAbs(program) && path.Base(program) == "env":
		i, err = parseEnv(program, args)
		return i, true, err
	}
	i = interpreterAt(program)
	if args != "" {
		i.Args = []string{args}
	}
	return i, true, nil
}

// parseEnv reads what follows env in a shebang.
func parseEnv(program, args string) (manifest.Interpreter, error) {
	command, split := cutSplit(args)
	if !split {
		switch {
		case args == "":
			return manifest.Interpreter{}, errors.New("the shebang names no interpreter after env")
		case strings.ContainsAny(args, " \t"), strings.HasPrefix(args, "-"), strings.Contains(args, "="):
			return manifest.Interpreter{}, fmt.Errorf("env takes one word from a shebang; write #!%s -S %s", program, args)
		case strings.Contains(args, "/"):
			return interpreterAt(args), nil
		}
		return manifest.Interpreter{Name: args}, nil
	}
	words := strings.Fields(command)
	if strings.ContainsAny(command, `"'\$#`) || len(words) > 0 && strings.HasPrefix(words[0], "-") {
		// Quotes, variables and options are for env itself to understand.
		return manifest.Interpreter{Name: "env", Path: program, Args: []string{args}}, nil
	}
	var i manifest.Interpreter
	for len(words) > 0 && strings.Contains(words[0], "=") {
		i.Env, words = append(i.Env, words[0]), words[1:]
	}
	if len(words) == 0 {
		return manifest.Interpreter{}, errors.New("the shebang names no interpreter after env -S")
	}
	env := i.Env
	if i = (manifest.Interpreter{Name: words[0]}); strings.Contains(i.Name, "/") {
		i = interpreterAt(words[0])
	}
	i.Env = env
	if len(words) > 1 {
		i.Args = words[1:]
	}
	return i, nil
}

// interpreterAt is the interpreter at a path. One that is not absolute counts from the
// folder of the file; see beside.
func interpreterAt(program string) manifest.Interpreter {
	return manifest.Interpreter{Name: path.Base(program), Path: program, Local: !path.IsAbs(program)}
}

// beside resolves the interpreter of a file by folders that belong to the file. A relative path is looked for in
// each of them, and with venv so is the Python of a .venv.
func beside(i manifest.Interpreter, venv bool, folders ...string) manifest.Interpreter {
	want := i.Path
	switch {
	case i.Local && !filepath.IsAbs(i.Path):
	case venv && i.Path == "" && strings.HasPrefix(i.Name, "python"):
		want = filepath.Join(".venv", "bin", i.Name)
	default:
		return i
	}
	for _, folder := range folders {
		if at := filepath.Join(folder, want); regularfile.IsProgram(at) {
			i.Path, i.Local = at, true
			return i
		}
	}
	if i.Local {
		i.Path = filepath.Join(folders[0], want)
	}
	return i
}

// cutSplit takes env's split option off the front of its arguments.
func cutSplit(args string) (command string, ok bool) {
	for _, option := range []string{"-S", "--split-string=", "--split-string "} {
		if command, ok := strings.CutPrefix(args, option); ok {
			return strings.TrimSpace(command), true
		}
	}
	return "", false
}
