package origin

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/orla-project/orla/internal/observe/brief"
)

const (
	maxName   = 255  // bytes of one component
	maxPath   = 1024 // bytes
	maxDepth  = 64   // components
	maxTarget = 1024 // bytes of a link's target
	maxHops   = 40   // links on the way to a target, as in the kernel
	maxSteps  = 1e6  // components on the ways of all links
)

type kind string

const (
	file   kind = "file"
	folder kind = "folder"
	link   kind = "link"
)

// entry is a part of a tree as its source describes it.
type entry struct {
	name   string // the path, with slashes
	kind   kind
	exec   bool   // of a file: may be executed
	size   int64  // of a file, as the source says
	target string // of a link
	object string // of a file in a repository
}

// checked is a tree whose names are valid, unique and consistent.
type checked struct {
	names   []string        // of the entries; "" for the folder that is left out
	kinds   map[string]kind // of all paths, folders without an entry included
	targets map[string]string
	spelled map[string]string // the one spelling of each path, by its folded form
	most    int
	steps   int
}

// check checks the entries of a tree against each other and the limits.
func check(entries []entry, limits Limits, strip bool) (*checked, error) {
	t := &checked{kinds: map[string]kind{}, targets: map[string]string{}, spelled: map[string]string{}, most: limits.Files}
	top := ""
	if strip {
		top = commonFolder(entries)
	}
	var bytes int64
	for _, e := range entries {
		if fault := nameFault(e.name); fault != "" {
			return nil, refused(e.name, "%s", fault)
		}
		name := e.name
		if top != "" {
			name = strings.TrimPrefix(strings.TrimPrefix(name, top), "/")
		}
		t.names = append(t.names, name)
		if name == "" {
			continue
		}
		if err := t.add(name, e); err != nil {
			return nil, err
		}
		if bytes += e.size; e.size < 0 || bytes > limits.Bytes {
			return nil, fmt.Errorf("%w: the files have over %d bytes", ErrTooLarge, limits.Bytes)
		}
	}
	for name := range t.targets {
		if err := t.follow(name); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// commonFolder returns the folder at the top that holds all entries, or "".
func commonFolder(entries []entry) (top string) {
	for i, e := range entries {
		first, _, below := strings.Cut(e.name, "/")
		if i > 0 && first != top || !below && e.kind != folder {
			return ""
		}
		top = first
	}
	return top
}

func (t *checked) add(name string, e entry) error {
	for i := range len(name) {
		if name[i] == '/' {
			if err := t.claim(name[:i], folder); err != nil {
				return err
			}
		}
	}
	if _, there := t.kinds[name]; there && e.kind != folder {
		return refused(name, "it is there twice")
	}
	if e.kind == link {
		if fault := targetFault(e.target); fault != "" {
			return refused(name, "%s", fault)
		}
		t.targets[name] = e.target
	}
	return t.claim(name, e.kind)
}

// claim notes that a path is of a kind.
func (t *checked) claim(name string, as kind) error {
	if before, there := t.kinds[name]; there {
		if before != as {
			return refused(name, "it is a %s and a %s", before, as)
		}
		return nil
	}
	if other, there := t.spelled[fold(name)]; there {
		return refused(name, "its name differs from %s only in case or encoding", quoted(other))
	}
	t.spelled[fold(name)], t.kinds[name] = name, as
	if len(t.kinds) > t.most {
		return fmt.Errorf("%w: there are over %d files and folders", ErrTooLarge, t.most)
	}
	return nil
}

// follow returns an error unless a link leads to something in the tree, on a way that never leaves it.
// The way is that of the kernel: a link on the way is followed before "..".
func (t *checked) follow(name string) error {
	left := strings.Split(t.targets[name], "/")
	at := parent(name) // "" is the root
	for hops := 0; len(left) > 0; {
		step := left[0]
		left = left[1:]
		if t.steps++; t.steps > maxSteps {
			return refused(name, "the links of the package are too long")
		}
		switch step {
		case "", ".":
			continue
		case "..":
			if at == "" {
				return refused(name, "the link leads out of the package")
			}
			at = parent(at)
			continue
		}
		next := path.Join(at, step)
		switch t.kinds[next] {
		case folder:
			at = next
		case link:
			if hops++; hops > maxHops {
				return refused(name, "the link leads through too many links")
			}
			left = append(strings.Split(t.targets[next], "/"), left...)
		case file:
			if len(left) > 0 {
				return refused(name, "the link leads through a file")
			}
			return nil
		default:
			return refused(name, "the link leads to nothing in the package")
		}
	}
	return nil
}

func parent(name string) string {
	if dir := path.Dir(name); dir != "." {
		return dir
	}
	return ""
}

func targetFault(target string) string {
	switch {
	case target == "":
		return "the link has no target"
	case target[0] == '/':
		return "the link leads to an absolute path"
	case len(target) > maxTarget:
		return "the target of the link is too long"
	case !printable(target):
		return "the target of the link has characters that are not allowed"
	}
	return ""
}

// nameFault returns why a path is not allowed, or "".
func nameFault(name string) string {
	switch {
	case name == "":
		return "the name is empty"
	case name[0] == '/':
		return "the name is absolute"
	case len(name) > maxPath:
		return fmt.Sprintf("the path has over %d bytes", maxPath)
	case !printable(name):
		return "the name has characters that are not allowed"
	case strings.Count(name, "/") >= maxDepth:
		return fmt.Sprintf("the path has over %d components", maxDepth)
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "", part == ".", part == "..":
			return "the path has an empty component, \".\" or \"..\""
		case len(part) > maxName:
			return fmt.Sprintf("the name has over %d bytes", maxName)
		case fold(part) == ".git":
			return "a package may not contain .git"
		case fold(part) == Record:
			return "a package may not contain " + Record + ", in which Orla notes what it installed"
		}
	}
	return ""
}

// printable reports whether text is UTF-8 without backslashes and without characters that are not shown:
// terminals obey control characters, and some file systems ignore those that are invisible.
func printable(text string) bool {
	for _, r := range text {
		if r == '\\' || r == '\u2028' || r == '\u2029' || r != ' ' && unicode.In(r, unicode.C, unicode.Zl, unicode.Zp) {
			return false
		}
	}
	return utf8.ValidString(text)
}

// fold maps names that are one on some file system to one text.
func fold(name string) string {
	return norm.NFC.String(strings.ToLower(strings.ToUpper(norm.NFKC.String(name))))
}

// refused is an error about one entry, whose name a stranger has chosen.
func refused(name, format string, args ...any) error {
	return fmt.Errorf("%s: "+format, append([]any{quoted(name)}, args...)...)
}

func quoted(name string) string { return strconv.QuoteToGraphic(brief.Cut(name, 200)) }
