package toolfile

import (
	"bytes"
	"errors"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/manifest"
)

// firstRead is how much of a file is read before it is known that more is
// needed. The shebang and the code after it are within it almost always.
const firstRead = 4 << 10

// head is what the first bytes of an executable say.
type head struct {
	interpreter manifest.Interpreter
	block       *block // nil when there is none
	// stray is the line of a script that looks like the opening of a block but is not one; 0 if there is no such line,
	// or there is a block.
	stray int
	// windows warns of line ends that the interpreter does not take for such; nil if there are none.
	windows error
	// foreign warns of a program of another machine; nil if it is not one.
	foreign error
	module  bool // it is WebAssembly
	read    bool // the file could be read
}

// readHead reads the shebang and the metadata block of a regular file, and no
// more bytes than it takes. display is the file's name for messages.
func readHead(file, display string) (head, error) {
	buf, size, err := regularfile.Head(file, firstRead)
	if err != nil {
		return head{}, err
	}
	whole := len(buf) < firstRead
	module := bytes.HasPrefix(buf, []byte("\x00asm"))
	b, unsure, err := findBlock(display, buf, whole)
	if unsure && !whole {
		if buf, size, err = regularfile.Head(file, headSize+1); err != nil {
			return head{}, err
		}
		whole = len(buf) <= headSize
		b, _, err = findBlock(display, buf[:min(len(buf), headSize)], whole)
	}
	first, _, _ := bytes.Cut(buf, []byte("\n"))
	interpreter, script, serr := parseShebang(first)
	h := head{interpreter: interpreter, block: b, windows: windowsLines(interpreter, display, buf), module: module, read: true}
	if !script {
		h.foreign = foreignTo(runtime.GOOS, runtime.GOARCH, buf, size)
		err = errors.Join(cannotRun(file, buf), err)
	}
	if script && b == nil {
		h.stray = strayOpening(buf)
		err = errors.Join(err, strayIsolation(display, buf, h.stray))
	}
	return h, errors.Join(serr, err)
}

var nearlyOpening = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^[ \t]*(#|//|--|;)[ \t]*///[ \t]*[Tt]ools?[ \t\r]*$`)
})

// strayOpening returns the line, from 1, that its author may take for the opening of a metadata block: below the
// code, indented, or misspelt. It returns 0 if there is none.
func strayOpening(text []byte) int {
	at := nearlyOpening().FindIndex(text)
	if at == nil {
		return 0
	}
	return 1 + bytes.Count(text[:at[0]], []byte("\n"))
}

var isolates = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\bisolation_mode["']?[ \t]*:[ \t]*["']?(sandboxed|container|kubernetes|wasm)\b`)
})

// strayIsolation refuses a script that asks for isolation in comments that are not read: those from a line that
// its author may take for the opening of a block.
func strayIsolation(display string, text []byte, opening int) error {
	if opening == 0 {
		return nil
	}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		trimmed := strings.TrimSpace(string(line))
		switch {
		case number < opening:
		case !slices.ContainsFunc(signs, func(sign string) bool { return strings.HasPrefix(trimmed, sign) }):
			return nil
		case isolates().MatchString(trimmed):
			return (&blockScan{file: display}).fault(number, "isolation_mode would have no effect: line %d does not open a metadata block; one must be above all code and open with \"# /// tool\" (or //, --, ;) at the left edge", opening)
		}
	}
	return nil
}
