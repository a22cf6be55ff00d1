package toolfile

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/manifest"
)

// shebangs are the first lines of scripts, by the extension of their files.
var shebangs = map[string]string{
	".sh": "#!/bin/sh", ".bash": "#!/usr/bin/env bash", ".py": "#!/usr/bin/env python3", ".js": "#!/usr/bin/env node",
	".mjs": "#!/usr/bin/env node", ".ts": "#!/usr/bin/env -S deno run", ".rb": "#!/usr/bin/env ruby",
	".pl": "#!/usr/bin/env perl", ".php": "#!/usr/bin/env php", ".lua": "#!/usr/bin/env lua",
}

// ShebangFor returns the first line that a script usually has whose file has this name. ok
// reports whether the name's extension is one of scripts.
func ShebangFor(file string) (line string, ok bool) {
	line, ok = shebangs[filepath.Ext(file)]
	if !ok {
		line = shebangs[".sh"]
	}
	return line, ok
}

// LooksLikeTool reports whether a file that begins so, and that is not executable, may be
// meant to be: by a shebang, by a metadata block, or as a program without an extension that
// lost its mode. A module that scripts import has none of these.
func LooksLikeTool(file string) bool {
	head, _, _ := regularfile.Head(file, firstRead) // a file that cannot be read does not look like one
	return bytes.HasPrefix(head, []byte("#!")) || filepath.Ext(file) == "" && isProgramFile(head) ||
		!bytes.ContainsRune(head, 0) && nearlyOpening().Match(head)
}

// programs are the first bytes of files that a system runs as they are, or that another
// program runs for it (binfmt_misc).
var programs = append([]string{
	"\x7fELF", "\xca\xfe\xba\xbe", // Linux, Java and macOS
	"MZ", "PK\x03\x04", "\x00asm", // Windows, archives of Java and Python, WebAssembly
}, machO...)

// machO are the first bytes of programs of macOS, of one architecture each.
var machO = []string{"\xcf\xfa\xed\xfe", "\xce\xfa\xed\xfe", "\xfe\xed\xfa\xcf", "\xfe\xed\xfa\xce"}

// isProgramFile reports whether a file that begins so is a program.
func isProgramFile(head []byte) bool {
	return slices.ContainsFunc(programs, func(magic string) bool { return bytes.HasPrefix(head, []byte(magic)) })
}

// cannotRun says why no system runs a file without a shebang that begins so; nil if one may.
func cannotRun(file string, head []byte) error {
	switch line, _ := ShebangFor(file); {
	case isProgramFile(head):
		return nil
	case len(head) == 0:
		return errors.New("is empty")
	case bytes.ContainsRune(head, 0) || !utf8.Valid(head[:max(0, len(head)-utf8.UTFMax)]):
		return errors.New("cannot be run: it is neither a program of this machine nor a script with a shebang line")
	case nearShebang(head) != "":
		return errors.New("has no shebang line: " + nearShebang(head))
	default:
		return fmt.Errorf("has no shebang line, so that nothing says what runs it; begin it with a line such as %s", line)
	}
}

// misspelt is a first line that was meant to be a shebang.
var misspelt = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:#|!#|#[ \t]+!|!)(/[^ \t]*bin/[^ \t].*)`) })

// nearShebang says what was meant to be the shebang of a file that has none; "" if nothing.
func nearShebang(head []byte) string {
	const near = 5 // lines that a shebang may have slipped down
	n := 0
	for line := range bytes.Lines(head) {
		n++
		if n > near {
			break
		}
		text := bytes.TrimSpace(line)
		if bytes.HasPrefix(text, []byte("#!")) {
			return fmt.Sprintf("line %d looks like one, and nothing may stand before its #!, no space and no other line", n)
		}
		if m := misspelt().FindSubmatch(text); n == 1 && m != nil {
			return fmt.Sprintf("its first line is %q; write #!%s", text, m[1])
		}
	}
	return ""
}

// shells take a CR before the end of a line for a part of the command.
var shells = []string{"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"}

// windowsLines warns of a shell script whose lines, from the second on, end in CR LF.
func windowsLines(i manifest.Interpreter, file string, head []byte) error {
	_, body, _ := bytes.Cut(head, []byte("\n"))
	if !slices.Contains(shells, i.Name) || !bytes.Contains(body, []byte("\r\n")) {
		return nil
	}
	return fmt.Errorf("has lines that end in CR LF, as on Windows, and %s takes the CR for a part of each command; to convert them: sed -i 's/\\r$//' %s", i.Name, file)
}
