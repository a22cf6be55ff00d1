package manifest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	return holdsWord(head, suspicious) || hasKind(head, func(kind string) bool {
		return slices.Contains(servedKinds, kind) || nearRule(kind) != ""
	})
}

// lineEnds are the last bytes of the line breaks of YAML 1.1.
var lineEnds = []byte("\n\r\x85\xa8\xa9")

// hasKind reports whether a document of a file that begins so may have such a kind.
func hasKind(head []byte, such func(kind string) bool) bool {
	key, flow := []byte("kind"), braced.Match(head)
	for at := 0; ; at += len(key) {
		i := bytes.Index(head[at:], key)
		if i < 0 {
			return false
		}
		at += i
		// Outside braces only what begins a line is a key of the document itself.
		before := bytes.TrimRight(head[max(0, at-4):at], "\"'\ufeff")
		begins := at == 0 || len(before) == 0 || bytes.IndexByte(lineEnds, before[len(before)-1]) >= 0
		if (flow || begins) && isKindOf(head[at+len(key):], such) {
			return true
		}
	}
}

// isKindOf reports whether what follows a key kind is such a kind.
func isKindOf(after []byte, such func(kind string) bool) bool {
	after, ok := bytes.CutPrefix(bytes.TrimLeft(after[:min(len(after), 64)], "\"' \t"), []byte(":"))
	if !ok {
		return false
	}
	after = bytes.TrimLeft(after, "\"' \t")
	end := bytes.IndexFunc(after, func(c rune) bool { return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '_' })
	if end < 0 {
		end = len(after)
	}
	escaped := end < len(after) && after[end] == '\\' // it may be any word
	return escaped || such(string(after[:end]))
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
	return broken || err == nil && len(says.Version)+len(says.Kind) > 0 || holdsWord(data, suspicious)
}

// content is what a file holds that may hold resources.
type content struct {
	data  []byte // nil if it is data for certain
	large bool   // there is more of it than is ever decoded, and this is its beginning
	rule  bool   // a large one may hold a governance document
	late  bool   // nothing in its beginning is a resource, so that none is served of it
}

// declaring reads a file that may hold resources. One that is too large to be
// decoded is searched to its end for what may be a governance document.
func declaring(path string) (content, error) {
	f, info, err := openRegular(path)
	if err != nil {
		return content{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	head := make([]byte, min(info.Size()+1, headSize))
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return content{}, readError(err)
	}
	whole := head[:n]
	head = plain(whole)
	may := mayHold(head)
	if err != nil {
		if !may {
			return content{}, nil
		}
		return content{data: head}, nil
	}
	rest, err := io.ReadAll(io.LimitReader(f, maxManifest-int64(n)))
	if err != nil {
		return content{}, readError(err)
	}
	data := plain(append(whole, rest...))
	if n+len(rest) >= maxManifest {
		rule, err := largeRule(f, maxSearched)
		return content{data: data, large: true, rule: rule}, err
	}
	switch {
	case may, holdsWord(data, ruleWords):
		return content{data: data}, nil
	case holdsWord(data, suspicious), hasKind(data, func(kind string) bool { return nearRule(kind) != "" }):
		return content{data: data, late: true}, nil
	}
	return content{}, nil
}

// maxSearched is how much of a large file is searched.
const maxSearched = 1 << 30

// largeRule reports whether a file that is too large to be decoded may hold a
// governance document: it has the words of one, and is not JSON without one.
func largeRule(f *os.File, most int64) (bool, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return false, readError(err)
	}
	found, err := findWord(f, append([]string{"orloj.dev"}, ruleWords...), most)
	if !found && !errors.Is(err, errTooLong) {
		return false, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil || !found {
		return true, err
	}
	buffered := bufio.NewReaderSize(f, searched)
	if mark, err := buffered.Peek(len(byteOrderMark)); err == nil && bytes.Equal(mark, byteOrderMark) {
		_, _ = buffered.Discard(len(mark)) // it is buffered
	}
	j := jsonReader{ByteScanner: buffered}
	return !j.harmless(), nil
}

// plain is a text without the NULs that UTF-16 and UTF-32 have, where it begins as
// one of them does, with or without a byte order mark. It cannot be read, but is
// found by its words.
func plain(text []byte) []byte {
	marked := bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) || bytes.HasPrefix(text, []byte("\x00\x00\xfe\xff"))
	if marked {
		return bytes.ReplaceAll(text, []byte{0}, nil)
	}
	if first := bytes.IndexByte(text, 0); first != 0 && first != 1 {
		return text
	}
	return append([]byte("\xff\xfe"), bytes.ReplaceAll(text, []byte{0}, nil)...)
}

// resources reads the resources that a regular file declares, path being where
// it is without links. It reports whether the file is one of resources, or
// cannot be read, rather than of somebody's data.
func (w *walker) resources(at, path string) bool {
	c, err := declaring(path)
	data := c.data
	switch {
	case err != nil:
		w.unreadable(at, path, err)
		return true
	case data == nil:
		return false
	case c.large:
		return w.tooLarge(at, c)
	case c.late:
		w.rulesOf(at, path)
		return false
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
		w.partly(at, holdsWord(data, ruleWords), err)
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
