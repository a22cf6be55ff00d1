package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/orla-project/orla/internal/yamldoc"
)

// resourceExtensions are those of files that may hold resources.
var resourceExtensions = []string{".yaml", ".yml", ".json"}

// braced is what begins with a brace, as JSON does.
var braced = regexp.MustCompile(`^(?:\x{feff}|\s|#.*\n|---)*\{`)

// mayHold reports whether a file that begins so may hold resources. It is quick,
// and right about nearly all data; what it lets through is looked at closely.
func mayHold(head []byte) bool {
	if bytes.Contains(head, []byte("orloj.dev/")) || mentionsRule(head) {
		return true
	}
	key, flow := []byte("kind"), braced.Match(head)
	for at := 0; ; at += len(key) {
		i := bytes.Index(head[at:], key)
		if i < 0 {
			return false
		}
		at += i
		// Outside braces only what begins a line is a key of the document itself.
		before := bytes.TrimRight(head[max(0, at-4):at], "\"'\ufeff")
		begins := at == 0 || len(before) == 0 || before[len(before)-1] == '\n'
		if (flow || begins) && isKindOfOurs(head[at+len(key):]) {
			return true
		}
	}
}

// isKindOfOurs reports whether what follows a key kind is a kind of ours.
func isKindOfOurs(after []byte) bool {
	after, ok := bytes.CutPrefix(bytes.TrimLeft(after[:min(len(after), 64)], "\"' \t"), []byte(":"))
	if !ok {
		return false
	}
	after = bytes.TrimLeft(after, "\"' \t")
	end := bytes.IndexFunc(after, func(c rune) bool { return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') })
	if end < 0 {
		end = len(after)
	}
	escaped := end < len(after) && after[end] == '\\' // it may be any word
	return escaped || slices.Contains(servedKinds, string(after[:end]))
}

// mayDeclare is mayHold for a whole file of JSON, which is cheaper to look
// through as that. What is no JSON may be meant to be.
func mayDeclare(data []byte) bool {
	var says struct {
		Version json.RawMessage `json:"apiVersion"`
		Kind    json.RawMessage `json:"kind"`
	}
	err := json.Unmarshal(bytes.TrimPrefix(data, byteOrderMark), &says)
	_, broken := errors.AsType[*json.SyntaxError](err)
	return broken || err == nil && len(says.Version)+len(says.Kind) > 0 || ruleKey.Match(data)
}

// declaring returns what a file holds that may hold resources, up to maxManifest
// bytes of it; nil if it holds data for certain.
func declaring(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, readError(err)
	case !info.Mode().IsRegular():
		return nil, nil // it is not opened: opening a FIFO waits for its writer
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, readError(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	head := make([]byte, min(info.Size(), headSize))
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, readError(err)
	}
	whole := head[:n]
	head = plain(whole)
	may := mayHold(head)
	if err != nil || n < headSize {
		if !may {
			return nil, nil
		}
		return head, nil
	}
	rest, err := io.ReadAll(io.LimitReader(f, maxManifest-headSize))
	if err != nil {
		return nil, readError(err)
	}
	data := plain(append(whole, rest...))
	if !may && !mentionsRule(data[len(head):]) {
		return nil, nil
	}
	return data, nil
}

// plain is a text without the NULs that UTF-16 and UTF-32 have, where a byte order
// mark says that it is in one of them. It cannot be read, but is found by its words.
func plain(text []byte) []byte {
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) || bytes.HasPrefix(text, []byte("\x00\x00\xfe\xff")) {
		return bytes.ReplaceAll(text, []byte{0}, nil)
	}
	return text
}

// resources reads the resources that a regular file declares, path being where
// it is without links. It reports whether the file is one of resources, or
// cannot be read, rather than of somebody's data.
func (w *walker) resources(at, path string) bool {
	data, err := declaring(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true // it was removed since the folder was read
	case err != nil:
		w.unreadable(at, err)
		return true
	case data == nil:
		return false
	case len(data) >= maxManifest:
		return w.tooLarge(at, data)
	}
	list, err := readDeclarations(file{display: at, dir: filepath.Dir(path)}, data)
	faulty, denies := 0, false
	for i, d := range list {
		if d.doc.Err() != nil {
			faulty++
		}
		if faulty <= maxFaulty || d.doc.Err() == nil {
			w.declared(d, fmt.Sprintf("%s#%d", path, i))
		} else {
			denies = denies || d.rule
		}
	}
	if faulty > maxFaulty {
		w.partly(at, denies, yamldoc.Faults{{File: at, Line: 1, Column: 1, Msg: fmt.Sprintf("%d more documents of this file are at fault", faulty-maxFaulty)}})
	}
	if err != nil {
		w.partly(at, mentionsRule(data), err)
	}
	if slices.ContainsFunc(list, func(d *declaration) bool { return d.secret.Data != nil }) {
		w.checkMode(at, path)
	}
	return len(list) > 0 || err != nil
}

// declared keeps what a document declares, or says why it is not served. id is
// the document's own, however often its file is found.
func (w *walker) declared(d *declaration, id string) {
	for _, warning := range d.warnings {
		w.problem(d.file.display, d.name, Warning, warning)
	}
	at := place{entry: d.file.display, id: id, named: d.doc.At("metadata.name", "")}
	if d.tool.Runtime.Generated || d.tool.Kind == Cli && d.tool.Path != "" {
		w.servers = append(w.servers, d.tool)
	}
	switch err := d.doc.Err(); {
	case d.rule:
		w.denied(d.file.display, err)
	case err != nil:
		w.problem(d.file.display, d.name, Fault, err)
	case d.secret.Data != nil:
		w.secrets = append(w.secrets, foundSecret{at, d.secret})
	case d.name != "":
		w.found = append(w.found, found{place: at, tool: d.tool, server: d.server})
	}
}

// checkMode warns of a file of secrets that others can read.
func (w *walker) checkMode(at, path string) {
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		w.warn(at, "holds secrets, and others than its owner have rights to it (mode %04o): chmod 600", info.Mode().Perm())
	}
}
