package origin

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// lister parses what git ls-tree writes, and ends it at a limit: trees may contain each other
// in such a way that a few of them unfold to billions.
type lister struct {
	most int
	part []byte
	list []entry
	err  error
}

func (l *lister) fault() error { return l.err }

func (l *lister) Write(p []byte) (int, error) {
	for rest := p; l.err == nil; {
		text, after, whole := bytes.Cut(rest, []byte{0})
		l.part = append(l.part, text...)
		if !whole {
			if len(l.part) > 2*maxPath {
				l.err = errors.New("a path in the repository is too long")
			}
			break
		}
		l.err = l.add(string(l.part))
		l.part, rest = l.part[:0], after
	}
	return len(p), l.err
}

// add parses "MODE TYPE OBJECT SIZE<tab>PATH".
func (l *lister) add(line string) error {
	if len(l.list) >= l.most {
		return fmt.Errorf("%w: there are over %d files and folders", ErrTooLarge, l.most)
	}
	about, name, _ := strings.Cut(line, "\t")
	parts := strings.Fields(about)
	if len(parts) != 4 {
		return errors.New("git lists the tree in an unknown form")
	}
	e := entry{name: name, object: parts[2]}
	switch parts[0] {
	case "040000":
		e.kind = folder
	case "100644", "100664":
		e.kind = file
	case "100755":
		e.kind, e.exec = file, true
	case "120000":
		e.kind = link
	case "160000":
		return refused(name, "it is a submodule, and submodules are not fetched")
	default:
		return refused(name, "it has the mode %s, which is not allowed", quoted(parts[0]))
	}
	if e.kind != folder {
		size, err := strconv.ParseInt(parts[3], 10, 64)
		if err != nil || e.kind == link && size > maxTarget {
			return refused(name, "its size is not allowed")
		}
		e.size = size
	}
	l.list = append(l.list, e)
	return nil
}
