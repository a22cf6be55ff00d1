package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/orla-project/orla/internal/call/turns"
)

// ParseKey reads a public key, as key.pub has it.
func ParseKey(text string) (note.Verifier, error) { return note.NewVerifier(text) }

// verifierOf returns the verifier of a key that NewSigner has read; nil for one that is not valid.
func verifierOf(public string) note.Verifier {
	v, err := note.NewVerifier(public)
	if err != nil {
		return nil
	}
	return v
}

// Finding is something that is wrong with an audit log.
type Finding struct {
	File string
	Line int // from 1; 0 for the log as a whole
	Text string
}

func (f Finding) String() string {
	switch {
	case f.File == "":
		return f.Text
	case f.Line == 0:
		return f.File + ": " + f.Text
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Text)
}

// Report is the result of a Verifier.
type Report struct {
	Lines    int       // lines that were read
	Calls    int       // those of them that are calls
	First    uint64    // the number of the first line
	Last     uint64    // the number of the last line
	Findings []Finding // the first maxFindings
	More     int       // findings beyond those
	Notes    []Finding // what is not wrong, but to be known
	Signed   uint64    // the number of the last head with a valid signature; 0 for none
	At       time.Time // when that was signed
	Unsigned int       // lines after it
}

// OK reports whether nothing is wrong.
func (r *Report) OK() bool { return len(r.Findings) == 0 }

const maxFindings = 20

// Verifier checks the files of an audit log, one after the other, in the order in which they were written.
type Verifier struct {
	// Key checks the signatures; nil does not check them.
	Key note.Verifier
	// Head is a line of a head that the log must have; nil for none. If Whole is set, the log must
	// not end before it.
	Head  []byte
	Whole bool
	// Stream says that the lines come from the journal, which may have dropped the oldest.
	Stream bool

	report Report
	place
	begun bool
	tail
	previous previous
	head     link // the last head
	goal
	passkeys map[string]owned // those that were registered, by the digests of their public keys
}

// goal is the line of Verifier.Head.
type goal struct {
	wanted  link
	another *Finding // a line with its number that is not it; nil for none, and see goOn
}

// tail are the last lines that were valid.
type tail struct {
	last   link
	before link // the one before it
}

// place is where a Verifier is.
type place struct {
	file string
	line int
}

// previous is the line that was read last.
type previous struct {
	text []byte
	odd  bool // it was not valid, and that was not reported yet
	why  Finding
}

// File checks a file. follow says that it may be growing: if it ends within a line, the rest is waited for,
// for a short time.
func (v *Verifier) File(ctx context.Context, name string, r io.Reader, follow bool) error {
	v.file, v.line = name, 0
	if v.Head != nil && v.wanted.seq == 0 {
		var err error
		if v.wanted, err = linkOf(v.Head); err != nil {
			return fmt.Errorf("the head: %w", err)
		}
		if v.Key != nil {
			if err := checkHead(v.Head, v.Key); err != nil {
				v.find(0, "the stored head is not to be trusted: %v", err)
			}
		}
	}
	return eachLine(ctx, r, follow, func(line []byte, whole bool) {
		v.line++
		v.check(line, whole)
	})
}

// Report returns the result, after the last file.
func (v *Verifier) Report() *Report {
	v.settleOdd()
	if at := v.another; at != nil {
		v.file, v.another = at.File, nil
		v.find(at.Line, "it is not the line that Orla signed as number %d", v.wanted.seq)
	}
	if v.Whole && v.wanted.seq > v.report.Last {
		v.find(0, "the end is cut: Orla signed a head at number %d, and the last number here is %d", v.wanted.seq, v.report.Last)
	}
	return &v.report
}

func (v *Verifier) find(line int, format string, args ...any) {
	if len(v.report.Findings) >= maxFindings {
		v.report.More++
		return
	}
	v.report.Findings = append(v.report.Findings, Finding{v.file, line, fmt.Sprintf(format, args...)})
}

func (v *Verifier) note(format string, args ...any) {
	if len(v.report.Notes) < maxFindings {
		v.report.Notes = append(v.report.Notes, Finding{v.file, v.line, fmt.Sprintf(format, args...)})
	}
}

// settleOdd reports the last line if it was not valid, and no line after it says why.
func (v *Verifier) settleOdd() {
	if !v.previous.odd {
		return
	}
	file := v.file
	v.file = v.previous.why.File
	v.find(v.previous.why.Line, "%s", v.previous.why.Text)
	v.file, v.previous.odd = file, false
}

func (v *Verifier) check(raw []byte, whole bool) {
	v.report.Lines++
	v.report.Unsigned++
	var l Line
	err := json.Unmarshal(raw, &l)
	switch {
	case !whole:
		v.reject(raw, v.unended(raw))
		return
	case err != nil || l.Seq == 0 || l.Event == "":
		v.reject(raw, "it is not a line of an audit log")
		return
	case l.Event == eventTorn && v.torn(&l):
	case l.Event == eventTorn:
		v.settleOdd()
		v.find(v.line, "it describes a line that was cut, and the line before it is another")
	default:
		v.settleOdd()
	}
	v.follows(&l)
	sum := hash(sha256.Sum256(raw))
	v.before, v.last = v.last, link{l.Seq, sum}
	v.previous.text = append(v.previous.text[:0], raw...)
	v.report.Last = l.Seq
	if l.Seq == v.wanted.seq && sum != v.wanted.hash && v.another == nil {
		v.another = &Finding{File: v.file, Line: v.line}
	}
	switch l.Event {
	case eventCall:
		v.report.Calls++
	case eventHead:
		v.signed(&l, raw)
	case eventGap:
		v.find(v.line, "Orla found at a start: %s", l.Why)
	case eventLost:
		v.note("%d calls were made and could not be recorded, and %d were refused", l.Lost, l.Refused)
	case eventApproval:
		v.proved(&l)
	case eventPasskey:
		v.registered(&l)
	case eventRequest, eventStart, eventTorn, eventPin, eventRules, eventArguments:
	default:
		v.find(v.line, "it has the event %q, which this version of Orla does not know", l.Event)
	}
}

// reject notes that a line is not valid. It is reported unless the next line says that it was cut.
func (v *Verifier) reject(raw []byte, text string) {
	v.settleOdd()
	v.previous.odd, v.previous.why = true, Finding{v.file, v.line, text}
	v.previous.text = append(v.previous.text[:0], raw...)
}

// unended says what a line is that has no line end.
func (v *Verifier) unended(raw []byte) string {
	next := appendLine(nil, v.last.seq+1, v.last.hash, nil)
	if n := min(len(raw), len(next)); !v.begun || !bytes.Equal(raw[:n], next[:n]) {
		return "it is cut: it has no line end"
	}
	return fmt.Sprintf("the log ends within line %d, without a signed end: Orla was killed, or stopped while the disk was full, or somebody cut it here; the lines before are whole, and the next start of Orla notes what this one has", v.last.seq+1)
}

// torn reports whether a line that says that the one before it was cut is right.
func (v *Verifier) torn(l *Line) bool {
	if !l.describes(v.previous.text) {
		return false
	}
	v.note("line %d was cut in the middle of a write; Orla noted it at its next start", v.line-1)
	if v.previous.odd {
		v.previous.odd = false
	} else { // only its line end was missing
		v.last = v.before
	}
	return true
}

// follows checks that a line follows the last one.
func (v *Verifier) follows(l *Line) {
	prev, err := parseHash(l.Prev)
	switch {
	case err != nil:
		v.find(v.line, "%v", err)
	case !v.begun:
		v.begun, v.report.First = true, l.Seq
		v.begins(l, prev)
	case l.Seq == v.last.seq+1 && prev == v.last.hash:
	case v.goesOn(l) && v.head.seq == 0 && v.report.First == 1 && l.Seq == 1 && prev == (hash{}):
		v.goOn(l)
		v.note("it begins again: Orla was killed before it had signed anything, and the lines before this one are not linked to what follows; whoever could write them can have changed or removed them")
	case v.goesOn(l) && v.head.seq > 0 && l.Seq == v.head.seq+1 && prev == v.head.hash:
		v.goOn(l)
		v.note("it follows head %d: Orla was killed, and the lines after that head are not linked to what follows; whoever could write them can have changed or removed them", v.head.seq)
	case l.Seq == v.last.seq+1 && v.line > 1:
		v.find(v.line-1, "it was changed, or another line is in its place: line %d has the hash of another", v.line)
	case l.Seq == v.last.seq+1:
		v.find(v.line, "it has the hash of another line than the last one of the file before")
	case l.Seq > v.last.seq+1:
		v.find(v.line, "numbers %d to %d are missing before it", v.last.seq+1, l.Seq-1)
	default:
		v.find(v.line, "it has number %d after number %d: it was inserted, repeated or moved", l.Seq, v.last.seq)
	}
}

// goesOn reports whether a line may be that of a start which does not know the lines after the last head.
func (v *Verifier) goesOn(l *Line) bool {
	return l.Event == eventStart && l.Why != whyRotated && (v.line == 1 || v.Stream)
}

// goOn notes a start from which on Orla gave numbers once more, that of l first. If the number of Head is among them, its line comes after l.
func (v *Verifier) goOn(l *Line) {
	if l.Seq <= v.wanted.seq {
		v.another = nil
	}
}

// begins checks the first line of all.
func (v *Verifier) begins(l *Line, prev hash) {
	begins := l.Event == eventTorn || l.Event == eventStart && (l.Why == whyNew || l.Why == whyRotated)
	switch wanted := v.wanted; {
	case wanted.seq > 0 && (l.Seq > wanted.seq+1 || l.Seq == wanted.seq+1 && prev != wanted.hash):
		v.find(v.line, "the log begins with number %d here, and number %d, which Orla signed, is not before it; give the older files too", l.Seq, wanted.seq)
	case l.Seq == 1 && prev != (hash{}):
		v.find(v.line, "it is number 1, and says that a line is before it")
	case !begins && !v.Stream:
		v.find(v.line, "no file begins with such a line: what was before it is missing")
	case l.Seq > 1:
		v.note("the log begins with number %d; what was before it is not checked", l.Seq)
	}
}

// signed checks a head.
func (v *Verifier) signed(l *Line, raw []byte) {
	v.head = v.last
	if v.Key == nil {
		return
	}
	if err := checkHead(raw, v.Key); err != nil {
		v.find(v.line, "%v", err)
		return
	}
	v.report.Signed, v.report.At, v.report.Unsigned = l.Seq, l.Time, 0
}

// Selection chooses lines. Its zero value chooses all calls and requests, and all decisions of people.
type Selection struct {
	Caller, Tool, Verdict string // "" for all; Tool is the client's name for it or for a prompt, a URI, or the target
	Since                 time.Time
}

// Show calls each with the calls, the requests and the decisions of a file that a Selection chooses, and with the line that each of them is,
// without checking them. It returns how many lines are not lines of an audit log.
func (s Selection) Show(ctx context.Context, r io.Reader, each func(l *Line, raw []byte) error) (odd int, _ error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := eachLine(ctx, r, false, func(raw []byte, _ bool) {
		var l Line
		if err := json.Unmarshal(raw, &l); err != nil {
			odd++
			return
		}
		if !s.has(&l) {
			return
		}
		if err := each(&l, raw); err != nil {
			cancel(err)
		}
	})
	return odd, err
}

// IsApproval reports whether a line is about a call that needs an approval.
func (l *Line) IsApproval() bool { return l.Event == eventApproval }

// IsPin reports whether a line is that of a definition that an operator has accepted.
func (l *Line) IsPin() bool { return l.Event == eventPin }

// IsNoRules reports whether a line is that of rules that are gone, which an operator has accepted.
func (l *Line) IsNoRules() bool { return l.Event == eventRules }

// IsRequest reports whether a line is that of a request other than a call.
func (l *Line) IsRequest() bool { return l.Event == eventRequest }

// Asked is what a line is about: a tool, a prompt or a resource, by the name that clients use.
func (l *Line) Asked() string { return cmp.Or(l.Tool, l.Prompt, l.URI) }

// IsArguments reports whether a line is that of an operator who has arguments kept, or not any more.
func (l *Line) IsArguments() bool { return l.Event == eventArguments }

func (s Selection) has(l *Line) bool {
	return (l.Event == eventCall || l.IsRequest() || l.IsApproval() || l.IsPin() || l.IsNoRules() || l.IsArguments()) && (s.Caller == "" || cut(s.Caller) == l.Caller) && (s.Verdict == "" || s.Verdict == l.Verdict) &&
		(s.Tool == "" || cut(s.Tool) == l.Asked() || cut(s.Tool) == l.Target) && !l.Time.Before(s.Since)
}

// eachLine calls each with the lines of r, without their line ends. whole is false for the last one if it has
// none, and for one that is longer than lines are, of which each gets the beginning. It stops when ctx ends, with
// its cause.
func eachLine(ctx context.Context, r io.Reader, follow bool, each func(line []byte, whole bool)) error {
	r, end := turns.Pieces(ctx, r)
	defer end()
	in := bufio.NewReaderSize(r, 2*maxLine)
	var held []byte // the beginning of a line whose end is waited for
	for tries := 0; ; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		line, err := in.ReadSlice('\n')
		if len(held) > 0 {
			line = append(held, line...)
		}
		switch {
		case err == nil && len(line) <= 2*maxLine:
			each(bytes.TrimSuffix(line, []byte("\n")), true)
			held, tries = held[:0], 0
		case err == nil || errors.Is(err, bufio.ErrBufferFull):
			each(line, false)
			if held = held[:0]; err != nil {
				err = skipLine(in)
			}
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
		case !errors.Is(err, io.EOF):
			return err
		case len(line) == 0:
			return context.Cause(ctx)
		case follow && tries < growTries:
			tries++
			held = append([]byte(nil), line...)
			<-time.After(growPause)
		default:
			each(line, false)
			return context.Cause(ctx)
		}
	}
}

// How often, and how long, the end of a line is waited for that is being written.
const (
	growTries = 10
	growPause = 20 * time.Millisecond
)

func skipLine(in *bufio.Reader) error {
	for {
		_, err := in.ReadSlice('\n')
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}
