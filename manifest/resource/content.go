package resource

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/yamldoc"
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

// braced matches a text that begins with a brace, as JSON does.
var braced = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:\x{feff}|\s|#.*\n|---)*\{`) })

// mayHold reports whether a file with this beginning may hold resources. It is quick, and rules out nearly all
// data. The others are parsed.
func mayHold(head []byte) bool {
	return isSuspicious(head) || hasKind(head, func(kind string) bool {
		return slices.Contains(servedKinds, kind) || nearRule(kind) != ""
	})
}

// lineEnds are the last bytes of the line breaks of YAML 1.1.
var lineEnds = []byte("\n\r\x85\xa8\xa9")

// indented is how far before a key its line is looked for.
const indented = 32

// hasKind reports whether such accepts the kind of a document in a file with this beginning.
func hasKind(head []byte, such func(kind string) bool) bool {
	key, flow := []byte("kind"), braced().Match(head)
	for at := 0; ; at += len(key) {
		i := bytes.Index(head[at:], key)
		if i < 0 {
			return false
		}
		at += i
		// Outside braces, a key of a document begins a line, or an item of a list of documents.
		before := bytes.TrimRight(head[max(0, at-4):at], "\"'\ufeff")
		begins := at == 0 || len(before) == 0 || bytes.IndexByte(lineEnds, before[len(before)-1]) >= 0
		if (flow || begins) && isKindOf(head[at+len(key):], such) {
			return true
		}
		before = bytes.TrimRight(head[max(0, at-indented):at], "\"' -")
		ofItem := len(before) == 0 || bytes.IndexByte(lineEnds, before[len(before)-1]) >= 0
		if ofItem && isKindOf(head[at+len(key):], func(kind string) bool { return nearRule(kind) != "" }) {
			return true
		}
	}
}

// isKindOf reports whether such accepts the value after a key kind.
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

// mayDeclare is mayHold for a whole file of JSON, which is cheaper to parse than to search. A file with a syntax
// error counts too: its author may have meant it to declare something.
func mayDeclare(data []byte) bool {
	var says struct {
		Version json.RawMessage `json:"apiVersion"`
		Kind    json.RawMessage `json:"kind"`
	}
	err := json.Unmarshal(bytes.TrimPrefix(data, byteOrderMark), &says)
	_, broken := errors.AsType[*json.SyntaxError](err)
	return broken || err == nil && len(says.Version)+len(says.Kind) > 0 || isSuspicious(data)
}

// Content is the content of a file that may hold resources.
type Content struct {
	Data []byte // nil if the file certainly declares nothing
	Size int64  // of a file that is too large to be decoded, whose Data is not kept; else 0
	Rule bool   // a large one may hold a governance document
	Ours bool   // a large one holds resources of another kind
	Late bool   // its beginning has no resource, so nothing of it is served
	seen sighting
}

// TooLarge is the fault of a file of which only Size is known, with its name for messages.
func (c Content) TooLarge(at string) error {
	return yamldoc.Faults{{File: at, Line: 1, Column: 1, Msg: fmt.Sprintf("the file has %d bytes, more than the %d allowed", c.Size, maxManifest-1)}}
}

// Loader reads files. Both fields are those of a search.
type Loader struct {
	Stopped func() error // why the search has to end, or nil
	Seen    *Seen        // nil: nothing is remembered
}

// Load reads a file that may hold resources, unless its content is remembered. at is its name in messages, which
// may be that of a link.
func (l Loader) Load(at, path string) (Content, error) {
	if err := l.Stopped(); err != nil {
		return Content{}, err
	}
	seen, c, known := l.Seen.look(at, path)
	if known {
		return c, nil
	}
	c, err := l.read(path)
	if err == nil && c.Data == nil {
		l.Seen.keep(seen, c)
	}
	c.seen = seen
	return c, err
}

// Remember remembers that a file was read and holds no resources.
func (l Loader) Remember(c Content) { l.Seen.keep(c.seen, Content{}) }

// read reads a file that may hold resources. If it is too large to be decoded, it is searched to its end for a
// governance document.
func (l Loader) read(path string) (Content, error) {
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
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return Content{}, regularfile.ReadError(err)
		}
		rule, ours, err := l.largeRule(f, maxSearched)
		ours = ours || versionLine().Match(head)
		return Content{Size: max(info.Size(), maxManifest), Rule: rule, Ours: ours}, err
	}
	switch {
	case may, holdsWord(data, ruleWords):
		return Content{Data: data}, nil
	case isSuspicious(data), hasKind(data, func(kind string) bool { return nearRule(kind) != "" }):
		return Content{Data: data, Late: true}, nil
	}
	return Content{}, nil
}

const (
	maxSearched = 1 << 30 // how much of a large file is searched
	maxParsed   = 4 << 20 // and up to which size it is parsed
)

// largeRule reports whether a file that is too large to be decoded may hold a governance document, and, if that is
// known, whether it holds other resources. JSON of any size is parsed, and YAML up to maxParsed. In larger YAML, a
// mention is enough.
func (l Loader) largeRule(f *os.File, most int64) (rule, ours bool, err error) {
	text := bufio.NewReaderSize(&boundedReader{f, l.Stopped, most}, searched)
	if mark, err := text.Peek(len(byteOrderMark)); err == nil && bytes.Equal(mark, byteOrderMark) {
		_, _ = text.Discard(len(mark)) // it is buffered
	}
	j := jsonReader{ByteScanner: text}
	switch err := j.read(); {
	case err == nil, errors.Is(err, io.EOF):
		return j.rule, false, nil
	case errors.Is(err, errTooLong):
		return true, false, nil
	case !errors.Is(err, errNotJSON):
		return false, false, regularfile.ReadError(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return false, false, regularfile.ReadError(err)
	}
	info, err := f.Stat()
	if err != nil {
		return false, false, regularfile.ReadError(err)
	}
	var data []byte
	if err = errTooLong; info.Size() <= maxParsed {
		data, err = io.ReadAll(&boundedReader{f, l.Stopped, maxParsed})
	}
	switch {
	case err == nil:
		rule, ours = l.ruleInYAML(data)
		return rule, ours, l.Stopped()
	case !errors.Is(err, errTooLong):
		return false, false, regularfile.ReadError(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return false, false, regularfile.ReadError(err)
	}
	rule, err = findWord(&boundedReader{f, l.Stopped, math.MaxInt64}, append([]string{"orloj.dev"}, ruleWords...), most)
	if errors.Is(err, errTooLong) {
		return true, false, nil
	}
	return rule, false, err
}

// ruleInYAML reports whether one of the documents of a large file may be a governance
// document, and whether one is another resource. Only what may be either is parsed.
func (l Loader) ruleInYAML(data []byte) (rule, ours bool) {
	data, _, _ = bytes.Cut(data, noText)
	data = plain(data)
	for _, d := range yamldoc.Documents(data) {
		if l.Stopped() != nil {
			return false, false
		}
		if !mayHold(d.Data) {
			continue
		}
		doc := yamldoc.Parse("", d.Data, yamldoc.Options{Hide: true, MaxSize: maxParsed, Reader: func(r io.Reader) io.Reader {
			return &boundedReader{r, l.Stopped, math.MaxInt64}
		}})
		if mayRule(doc, d.Data) {
			return true, ours
		}
		version, _ := doc.Text("apiVersion")
		ours = ours || strings.HasPrefix(version, "orloj.dev/")
	}
	return false, ours
}

// boundedReader returns errTooLong after a number of bytes, and an error when the search is stopped.
type boundedReader struct {
	io.Reader
	stopped func() error
	most    int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if err := b.stopped(); err != nil {
		return 0, err
	}
	n, err := b.Reader.Read(p)
	b.most -= int64(n)
	if b.most < 0 {
		return 0, errTooLong
	}
	return n, err
}

// plain returns a text without the NUL bytes of UTF-16 and UTF-32, if it begins like one of these, with or without
// a byte order mark. Such a text cannot be parsed, but its words can be found.
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
