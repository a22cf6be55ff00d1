package resource

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"regexp"
	"slices"

	"github.com/orla-project/orla/internal/regularfile"
	"github.com/orla-project/orla/internal/yamldoc"
)

const (
	// headSize is how much of a file is read to see whether it may hold resources.
	headSize = 64 << 10
	// maxManifest is one byte more than is ever decoded, so that a longer file is
	// seen to be longer.
	maxManifest = yamldoc.MaxFile + 1
)

var byteOrderMark = []byte("\xef\xbb\xbf")

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

// Content is what a file holds that may hold resources.
type Content struct {
	Data  []byte // nil if it is data for certain
	Large bool   // there is more of it than is ever decoded, and this is its beginning
	Rule  bool   // a large one may hold a governance document
	Late  bool   // nothing in its beginning is a resource, so that none is served of it
}

// HasVersion reports whether the beginning of the file has an apiVersion of ours.
func (c Content) HasVersion() bool {
	return versionLine.Match(c.Data[:min(len(c.Data), headSize)])
}

// Load reads a file that may hold resources. One that is too large to be
// decoded is searched to its end for what may be a governance document.
func Load(path string) (Content, error) {
	f, info, err := regularfile.Open(path)
	if err != nil {
		return Content{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	head := make([]byte, min(info.Size()+1, headSize))
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return Content{}, regularfile.ReadError(err)
	}
	whole := head[:n]
	head = plain(whole)
	may := mayHold(head)
	if err != nil {
		if !may {
			return Content{}, nil
		}
		return Content{Data: head}, nil
	}
	rest, err := io.ReadAll(io.LimitReader(f, maxManifest-int64(n)))
	if err != nil {
		return Content{}, regularfile.ReadError(err)
	}
	data := plain(append(whole, rest...))
	if n+len(rest) >= maxManifest {
		rule, err := largeRule(f, maxSearched)
		return Content{Data: data, Large: true, Rule: rule}, err
	}
	switch {
	case may, holdsWord(data, ruleWords):
		return Content{Data: data}, nil
	case holdsWord(data, suspicious), hasKind(data, func(kind string) bool { return nearRule(kind) != "" }):
		return Content{Data: data, Late: true}, nil
	}
	return Content{}, nil
}

// maxSearched is how much of a large file is searched.
const maxSearched = 1 << 30

// largeRule reports whether a file that is too large to be decoded may hold a
// governance document: it has the words of one, and is not JSON without one.
func largeRule(f *os.File, most int64) (bool, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return false, regularfile.ReadError(err)
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
