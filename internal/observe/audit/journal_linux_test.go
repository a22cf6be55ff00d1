package audit_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/observe/audit"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// journald takes entries as journald does, by its native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL).
type journald struct {
	t    *testing.T
	path string

	mu      sync.Mutex // guards the fields that follow
	entries []map[string]string
	conn    *net.UnixConn
}

// start begins to take entries.
func (j *journald) start() {
	j.t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: j.path, Net: "unixgram"})
	if err != nil {
		j.t.Fatal(err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.conn = conn
	go func() {
		entry := make([]byte, 1<<20)
		for {
			n, err := conn.Read(entry)
			if err != nil {
				return
			}
			fields := fieldsOf(j.t, bytes.Clone(entry[:n]))
			j.mu.Lock()
			j.entries = append(j.entries, fields)
			j.mu.Unlock()
		}
	}()
}

func (j *journald) stop() {
	j.mu.Lock()
	defer j.mu.Unlock()
	_ = j.conn.Close()
	_ = os.Remove(j.path)
}

// messages returns what journalctl -o cat would print of the audit log, when there are n lines.
func (j *journald) messages(n int) (text []byte) {
	j.t.Helper()
	testkit.Eventually(j.t, "the lines are in the journal", func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		return len(j.entries) >= n
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, entry := range j.entries {
		if len(entry) != 3 || entry["SYSLOG_IDENTIFIER"] != "orla-audit" || entry["PRIORITY"] != "6" {
			j.t.Errorf("an entry is %q", entry)
		}
		text = append(append(text, entry["MESSAGE"]...), '\n')
	}
	return text
}

func fieldsOf(t *testing.T, entry []byte) map[string]string {
	all := map[string]string{}
	for len(entry) > 0 {
		line, rest, ended := bytes.Cut(entry, []byte("\n"))
		if !ended {
			t.Errorf("%q has no end", line)
			return nil
		}
		name, value, short := bytes.Cut(line, []byte("="))
		if !short {
			size := binary.LittleEndian.Uint64(rest)
			value, rest = rest[8:8+size], rest[8+size+1:]
		}
		all[string(name)] = string(value)
		entry = rest
	}
	return all
}

// stream checks what is in the journal.
func (p place) stream(t *testing.T, text []byte) *audit.Report {
	t.Helper()
	head, err := audit.LastHead(p.state, p.path)
	if err != nil || head == nil {
		t.Fatalf("there is no head: %v", err)
	}
	v := p.verifier(t)
	v.Head, v.Whole, v.Stream = head, true, true
	if err := v.File(t.Context(), "journal", bytes.NewReader(text), false); err != nil {
		t.Fatal(err)
	}
	return v.Report()
}

// inJournal starts a stand-in for journald, and returns the place of an audit log in it, with its options.
func inJournal(t *testing.T) (*journald, place, audit.Options) {
	t.Helper()
	dir := t.TempDir()
	j := &journald{t: t, path: filepath.Join(dir, "socket")}
	j.start()
	t.Cleanup(j.stop)
	p := place{audit.Journal, filepath.Join(dir, "state")}
	options := p.options()
	options.Journal = j.path
	return j, p, options
}

// SPEC-TOOLS 8.8: in the journal, the lines are one chain over several runs of Orla; a change, a line that is missing and a
// cut end show. While journald is away no call is made, and the lines that wait reach the next one.
func TestT88TheJournal(t *testing.T) {
	j, p, options := inJournal(t)
	open := func() *audit.Log {
		l, err := audit.Open(options)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := open()
	large := callOf(0)
	large.Args = []byte(`{"text":"` + strings.Repeat("two\\nlines ", 1000) + `"}`)
	l.SetFull(true)
	l.Record(large)
	l.Record(callOf(1))
	l.Close() // start, 2 calls, head
	l = open()
	l.Record(callOf(2))
	j.messages(4 + 2)

	j.stop()
	l.Record(callOf(3)) // was under way
	testkit.Eventually(t, "calls are refused", func() bool { return l.Err() != nil })
	l.Refused()
	j.start()
	testkit.Eventually(t, "calls are made again", func() bool { return l.Err() == nil })
	l.Close()

	text := j.messages(4 + 5) // start, 2 calls, lost, head
	r := p.stream(t, text)
	if !r.OK() || r.Calls != 4 || r.Last != 9 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0].Text, "1 were refused") {
		t.Errorf("%+v\n%s", r, text)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	for name, changed := range map[string][]byte{
		"a change":       bytes.Replace(text, []byte("hello2"), []byte("hello9"), 1),
		"a missing line": append(bytes.Join(lines[:5], nil), bytes.Join(lines[6:], nil)...),
		"a cut end":      bytes.Join(lines[:8], nil),
	} {
		if r := p.stream(t, changed); r.OK() {
			t.Errorf("%s: %+v", name, r)
		}
	}
	// journald has dropped the oldest ones.
	if r := p.stream(t, bytes.Join(lines[2:], nil)); !r.OK() || r.Calls != 3 {
		t.Errorf("without the oldest lines: %+v", r)
	}
}

// SPEC-TOOLS 8.8: without a journald Orla does not start.
func TestT88NoJournal(t *testing.T) {
	dir := t.TempDir()
	options := place{audit.Journal, filepath.Join(dir, "state")}.options()
	options.Journal = filepath.Join(dir, "socket")
	began := time.Now()
	if l, err := audit.Open(options); err == nil {
		l.Close()
		t.Error("it is open")
	} else if took := time.Since(began); took > testkit.Patience {
		t.Errorf("%v after %s", err, took)
	}
}

// SPEC-TOOLS 8.8: every user may write to the journal by the name of the audit log, so what people are told to run takes the lines of
// Orla's user alone.
func TestT88TheJournalIsCheckedForOneUser(t *testing.T) {
	if !strings.Contains(audit.VerifyJournal, " _UID=") {
		t.Errorf("%s takes lines of every user", audit.VerifyJournal)
	}
	for _, file := range []string{"../../../docs/AUDIT.md", "../../console/page/audit.js"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "journalctl -t"); n != 1 || !strings.Contains(string(text), audit.VerifyJournal) {
			t.Errorf("%s has %d commands for the journal; want %s", file, n, audit.VerifyJournal)
		}
	}
}

// SPEC-TOOLS 8.8: an Orla that was killed before it had signed anything leaves lines in the journal to which the next start is
// not linked. That is said, and is not a fault. The same is one later, when something was signed.
func TestT88AKillBeforeTheFirstHead(t *testing.T) {
	j, p, options := inJournal(t)
	run := func(n int) {
		l, err := audit.Open(options)
		if err != nil {
			t.Fatal(err)
		}
		l.Record(callOf(n))
		l.Close() // start, call, head
	}
	run(0)
	killed := bytes.Join(bytes.SplitAfter(j.messages(3), []byte("\n"))[:2], nil)
	if err := os.Remove(filepath.Join(p.state, "audit", audit.Journal+".head")); err != nil {
		t.Fatal(err)
	}
	run(1)
	next := bytes.Join(bytes.SplitAfter(j.messages(6), []byte("\n"))[3:6], nil)
	r := p.stream(t, bytes.Join([][]byte{killed, killed, next}, nil))
	if !r.OK() || r.Calls != 3 || r.Last != 3 || len(r.Notes) != 2 || !strings.Contains(r.Notes[0].Text, "before it had signed anything") {
		t.Errorf("%+v", r)
	}
	long := bytes.SplitAfter(killed, []byte("\n"))
	sum := sha256.Sum256(bytes.TrimSuffix(long[1], []byte("\n")))
	line := bytes.Replace(long[1], []byte(`{"seq":2,`), []byte(`{"seq":3,`), 1)
	at := bytes.Index(line, []byte(`"prev":"`)) + len(`"prev":"`)
	copy(line[at:], hex.EncodeToString(sum[:]))
	killed3 := append(bytes.Clone(killed), line...) // as many as there are up to the newest head
	if r := p.stream(t, append(bytes.Clone(killed3), next...)); !r.OK() || r.Calls != 3 {
		t.Errorf("as many lines: %+v", r)
	}
	if r := p.stream(t, killed3); len(r.Findings) != 1 || r.Findings[0].Line != 3 || !strings.Contains(r.Findings[0].Text, "not the line that Orla signed as number 3") {
		t.Errorf("without the next start: %+v", r)
	}
	for name, text := range map[string][]byte{
		"again after a head": bytes.Join([][]byte{next, killed, next}, nil),
		"a line again":       bytes.Join([][]byte{killed[:bytes.IndexByte(killed, '\n')+1], killed[bytes.IndexByte(killed, '\n')+1:], killed[bytes.IndexByte(killed, '\n')+1:], next}, nil),
	} {
		if r := p.stream(t, text); r.OK() {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
