package audit_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/observe/audit"
	"github.com/orla-project/orla/internal/testing/leaks"
	"github.com/orla-project/orla/internal/testing/needs"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// place is where a test has its audit log.
type place struct{ path, state string }

func newPlace(t *testing.T) place {
	t.Helper()
	dir := t.TempDir()
	return place{filepath.Join(dir, "audit.log"), filepath.Join(dir, "state")}
}

func (p place) options() audit.Options {
	return audit.Options{Path: p.path, StateDir: p.state, Log: slog.New(slog.DiscardHandler)}
}

func (p place) open(t *testing.T) *audit.Log {
	t.Helper()
	l, err := audit.Open(p.options())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// write writes n calls in one run of Orla.
func (p place) write(t *testing.T, n int) {
	t.Helper()
	l := p.open(t)
	for i := range n {
		l.Record(callOf(i))
	}
	l.Close()
}

func callOf(i int) *audit.Call {
	return &audit.Call{
		Caller: "ci", Tool: fmt.Sprintf("hello%d", i), Target: "hello", Decision: audit.Decision{Verdict: audit.Allow, Class: "read"},
		Outcome: audit.OK, Took: 1234 * time.Microsecond, ID: "ID", Args: []byte(`{"b": 1, "a": "x"}`),
	}
}

func (p place) read(t *testing.T) []byte {
	t.Helper()
	return readFile(t, p.path)
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// verify checks texts as the files of the log, the last of which is the one that is written.
func (p place) verify(t *testing.T, texts ...[]byte) *audit.Report {
	t.Helper()
	head, err := audit.LastHead(p.state, p.path)
	if err != nil {
		t.Fatal(err)
	}
	v := p.verifier(t)
	v.Head, v.Whole = head, true
	for i, text := range texts {
		if err := v.File(t.Context(), fmt.Sprint("file", i), bytes.NewReader(text), false); err != nil {
			t.Fatal(err)
		}
	}
	return v.Report()
}

// verifier checks signatures, and knows nothing else.
func (p place) verifier(t *testing.T) *audit.Verifier {
	t.Helper()
	text, err := audit.PublicKey(p.state)
	if err != nil {
		t.Fatal(err)
	}
	key, err := audit.ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return &audit.Verifier{Key: key}
}

func (p place) mustBeOK(t *testing.T, texts ...[]byte) *audit.Report {
	t.Helper()
	r := p.verify(t, texts...)
	if !r.OK() {
		t.Errorf("a log that nobody changed has findings: %v\n%s", r.Findings, bytes.Join(texts, []byte("--\n")))
	}
	return r
}

func TestT88AnUntouchedLogVerifies(t *testing.T) {
	p := newPlace(t)
	p.write(t, 3)
	p.write(t, 2)
	r := p.mustBeOK(t, p.read(t))
	// Two starts, five calls, two heads.
	if r.Lines != 9 || r.Calls != 5 || r.First != 1 || r.Last != 9 || r.Signed != 9 || r.Unsigned != 0 {
		t.Errorf("the report is %+v", *r)
	}
	info, err := os.Stat(p.path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
	if info, err = os.Stat(filepath.Join(p.state, "audit", "key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key has mode %v, %v", info.Mode(), err)
	}
}

func TestT88EachLineThatIsDeletedInsertedOrSwappedIsFound(t *testing.T) {
	p := newPlace(t)
	p.write(t, 3)
	p.write(t, 2)
	lines := bytes.SplitAfter(p.read(t), []byte("\n"))
	lines = lines[:len(lines)-1]
	mustFind := func(what string, changed ...[]byte) {
		t.Helper()
		r := p.verify(t, bytes.Join(changed, nil))
		if r.OK() {
			t.Errorf("%s is not found", what)
			return
		}
	}
	for i := range lines {
		mustFind(fmt.Sprint("deleted line ", i+1), append(append([][]byte{}, lines[:i]...), lines[i+1:]...)...)
		for j := range lines {
			inserted := append(append(append([][]byte{}, lines[:j]...), lines[i]), lines[j:]...)
			mustFind(fmt.Sprintf("line %d again before line %d", i+1, j+1), inserted...)
			if i != j {
				swapped := append([][]byte{}, lines...)
				swapped[i], swapped[j] = swapped[j], swapped[i]
				mustFind(fmt.Sprintf("swapped lines %d and %d", i+1, j+1), swapped...)
			}
		}
		mustFind(fmt.Sprintf("line %d again at the end", i+1), append(append([][]byte{}, lines...), lines[i])...)
	}
	r := p.verify(t, bytes.Join(append(append([][]byte{}, lines[:3]...), lines[4:]...), nil))
	if len(r.Findings) == 0 || r.Findings[0].Line != 4 || !strings.Contains(r.Findings[0].Text, "numbers 4 to 4 are missing") {
		t.Errorf("the finding is %v", r.Findings)
	}
}

// An end without a signature is told from one that was cut although Orla signed it, and from a line of nobody.
func TestT88AnEndWithoutASignature(t *testing.T) {
	p := newPlace(t)
	p.write(t, 3)
	text := p.read(t)
	last := bytes.LastIndexByte(text[:len(text)-1], '\n') + 1
	line := appendedLine(t, p)
	for name, one := range map[string]struct {
		end  []byte
		want string
	}{
		"a write that was cut": {line[:len(line)/2], "the log ends within line 6, without a signed end"},
		"a byte of it":         {line[:1], "the log ends within line 6, without a signed end"},
		"of another chain":     {[]byte(`{"seq":9,"prev":"00`), "it is cut: it has no line end"},
	} {
		r := p.verify(t, append(slices.Clone(text), one.end...))
		if len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Text, one.want) {
			t.Errorf("%s: %v", name, r.Findings)
		}
	}
	if r := p.verify(t, text[:last]); len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Text, "the end is cut: Orla signed") {
		t.Errorf("a signed end that is gone: %v", r.Findings)
	}
}

// appendedLine returns the line that a next start of Orla would append to a log, and leaves the log as it is.
func appendedLine(t *testing.T, p place) []byte {
	t.Helper()
	state := p.state + ".copy"
	if err := os.CopyFS(state, os.DirFS(p.state)); err != nil {
		t.Fatal(err)
	}
	text := p.read(t)
	next := place{p.path, p.state}
	next.write(t, 0)
	line := bytes.TrimPrefix(next.read(t), text)
	if err := errors.Join(os.RemoveAll(p.state), os.Rename(state, p.state), os.WriteFile(p.path, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	return line[:bytes.IndexByte(line, '\n')]
}

// A write that was cut stays, a line of its own says so, and the log verifies.
func TestT88ACutWriteIsNotedAndStays(t *testing.T) {
	p := newPlace(t)
	p.write(t, 3)
	whole := p.read(t)
	l := p.open(t)
	l.Record(callOf(9))
	l.Close()
	longer := p.read(t)
	start := bytes.IndexByte(longer[len(whole):], '\n') + 1 + len(whole) // of the call
	end := bytes.IndexByte(longer[start:], '\n') + start
	for _, at := range []int{start, start + 1, start + 40, end - 1, end} { // up to the whole line without its end
		q := newPlace(t)
		if err := os.CopyFS(q.state, os.DirFS(p.state)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(q.state, "audit", "key"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(headFile(t, q)); err != nil { // as it was before the last stop
			t.Fatal(err)
		}
		if err := os.WriteFile(q.path, longer[:at], 0o600); err != nil {
			t.Fatal(err)
		}
		q.write(t, 1)
		text := q.read(t)
		if !bytes.HasPrefix(text, longer[:at]) {
			t.Fatalf("cut at %d: the file was changed and not only continued", at)
		}
		r := q.mustBeOK(t, text)
		if torn := at > start; torn != bytes.Contains(text, []byte(`"event":"torn"`)) || torn != (len(r.Notes) == 1) {
			t.Errorf("cut at %d: notes %v\n%s", at, r.Notes, text)
		}
		// What the line says of the fragment is held to.
		if at > start+2 {
			text[start+2] ^= 1
			if q.verify(t, text).OK() {
				t.Errorf("cut at %d: a change of the fragment is not found", at)
			}
		}
	}
}

// headFile returns where the state folder has the newest head. The state of another place has another name.
func headFile(t *testing.T, p place) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(p.state, "audit", "*.head"))
	if err != nil || len(found) != 1 {
		t.Fatalf("heads: %v, %v", found, err)
	}
	return found[0]
}

// What was removed while Orla did not run is written down at its start, and stays a finding.
func TestT88AGapIsWrittenDownAtTheStart(t *testing.T) {
	p := newPlace(t)
	p.write(t, 3)
	lines := bytes.SplitAfter(p.read(t), []byte("\n"))
	if err := os.WriteFile(p.path, bytes.Join(lines[:2], nil), 0o600); err != nil {
		t.Fatal(err)
	}
	p.write(t, 1)
	r := p.verify(t, p.read(t))
	if len(r.Findings) != 1 || r.Findings[0].Line != 3 || !strings.Contains(r.Findings[0].Text, "lines 3 to 5 are missing") {
		t.Errorf("the findings are %v", r.Findings)
	}
}

// The line that tells of calls that were refused is in the file that was written then, not before the first line of the next one.
func TestT88WhatWasRefusedBeforeARotationIsInTheOldFile(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	l.Refused()
	if err := os.Rename(p.path, p.path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	l.Close()
	first, second := readFile(t, p.path+".1"), p.read(t)
	p.mustBeOK(t, first, second)
	p.mustBeOK(t, second)
	if !bytes.Contains(first, []byte(`"event":"lost","lost":0,"refused":1`)) {
		t.Errorf("the old file has no line about it: %s", first)
	}
}

func TestT88RotationContinuesTheChain(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	l.Record(callOf(0))
	if err := l.Reopen(); err != nil { // nothing was moved
		t.Fatal(err)
	}
	if err := os.Rename(p.path, p.path+".1"); err != nil {
		t.Fatal(err)
	}
	l.Record(callOf(1))
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	l.Record(callOf(2))
	l.Close()
	first, second := readFile(t, p.path+".1"), p.read(t)
	r := p.mustBeOK(t, first, second)
	if r.Calls != 3 || r.Unsigned != 0 || len(r.Notes) != 0 {
		t.Errorf("the report is %+v", *r)
	}
	if !bytes.Contains(bytes.SplitAfter(second, []byte("\n"))[0], []byte(`"event":"start","why":"rotated"`)) {
		t.Errorf("the new file begins with %s", second)
	}
	if r := p.mustBeOK(t, second); len(r.Notes) != 1 || r.First == 1 {
		t.Errorf("the new file alone: %+v", *r)
	}
	if p.verify(t, second, first).OK() || p.verify(t, first[:bytes.LastIndexByte(first[:len(first)-1], '\n')+1], second).OK() {
		t.Error("files out of order, or a file without its end, are not found")
	}
	// Nobody writes after the end of a file that was rotated.
	whole := bytes.Split(bytes.TrimSuffix(first, []byte("\n")), []byte("\n"))
	last := whole[len(whole)-1]
	forged := fmt.Appendf(nil, `{"seq":%d,"prev":"%x","time":"2026-11-26T08:07:28Z","event":"call","caller":"bob","tool":"x","verdict":"allow","outcome":"ok","call_id":"A","duration_ms":1,"args_sha256":"%[2]x"}`+"\n",
		len(whole)+1, sha256.Sum256(last))
	if p.verify(t, append(bytes.Clone(first), forged...), second).OK() {
		t.Error("a line after the end of a rotated file is not found")
	}
	// The next start continues in the new file.
	p.write(t, 1)
	p.mustBeOK(t, first, p.read(t))
}

func TestT88TwoOrlasDoNotWriteOneFile(t *testing.T) {
	needs.Time(t, "starts its program again")
	p := newPlace(t)
	l := p.open(t)
	defer l.Close()
	other := place{p.path, t.TempDir()}.options()
	if _, err := audit.Open(other); err == nil || !strings.Contains(err.Error(), "another Orla writes this audit log") {
		t.Errorf("a second Orla with another state folder: %v", err)
	}
}

func TestT88ParallelCallsAreOneChain(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	var calls sync.WaitGroup
	const workers, each = 8, 5000 // more than one head
	for w := range workers {
		calls.Go(func() {
			for i := range each {
				l.Record(callOf(w*each + i))
			}
		})
	}
	calls.Wait()
	l.Close()
	if r := p.mustBeOK(t, p.read(t)); r.Calls != workers*each || r.Unsigned != 0 {
		t.Errorf("the report is %+v", *r)
	}
	if heads := bytes.Count(p.read(t), []byte(`"event":"head"`)); heads < 2 { // one of them is that of the stop
		t.Errorf("%d heads", heads)
	}
}

func TestT88OddFilesAreRefused(t *testing.T) {
	p := newPlace(t)
	for name, prepare := range map[string]func() error{
		"a folder":     func() error { return os.Mkdir(p.path, 0o700) },
		"foreign text": func() error { return os.WriteFile(p.path, []byte("not an audit log\n"), 0o600) },
	} {
		if err := os.RemoveAll(p.path); err != nil {
			t.Fatal(err)
		}
		if err := prepare(); err != nil {
			t.Fatal(err)
		}
		if l, err := audit.Open(p.options()); err == nil {
			l.Close()
			t.Errorf("%s was opened", name)
		}
	}
	if err := os.RemoveAll(p.path); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(p.state, "audit", "key"), 0o644); err != nil {
		t.Fatal(err)
	}
	if l, err := audit.Open(p.options()); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		if err == nil {
			l.Close()
		}
		t.Errorf("a key that others can read: %v", err)
	}
}

func TestT88ShowSelects(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	for i := range 4 {
		c := callOf(i)
		if i == 2 {
			c.Caller, c.Verdict = "ada", audit.Deny
		}
		l.Record(c)
	}
	l.Close()
	for name, test := range map[string]struct {
		audit.Selection
		want string
	}{
		"all":       {audit.Selection{}, "hello0 hello1 hello2 hello3"},
		"a caller":  {audit.Selection{Caller: "ada"}, "hello2"},
		"a verdict": {audit.Selection{Verdict: audit.Allow}, "hello0 hello1 hello3"},
		"a tool":    {audit.Selection{Tool: "hello3"}, "hello3"},
		"a target":  {audit.Selection{Tool: "hello"}, "hello0 hello1 hello2 hello3"},
		"later":     {audit.Selection{Since: time.Now().Add(time.Hour)}, ""},
	} {
		var got []string
		odd, err := test.Show(t.Context(), io.MultiReader(strings.NewReader("odd\n"), bytes.NewReader(p.read(t))), func(l *audit.Line, _ []byte) error {
			got = append(got, l.Tool)
			return nil
		})
		if err != nil || odd != 1 || strings.Join(got, " ") != test.want {
			t.Errorf("%s: got %v, %d odd lines, %v; want %s", name, got, odd, err, test.want)
		}
	}
}
