package audit_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/observe/audit"
)

// forgedLines are n lines of somebody who has no key, linked to each other. The first has number seq and follows prev.
func forgedLines(seq, n int, prev [sha256.Size]byte) (text []byte) {
	for i := range n {
		event := `"event":"call","caller":"bob","tool":"x","verdict":"allow","outcome":"ok"`
		if i == 0 {
			event = `"event":"start","why":"rotated"`
		}
		line := fmt.Appendf(nil, `{"seq":%d,"prev":"%x","time":"2026-11-26T08:07:28Z",%s}`, seq+i, prev, event)
		prev = sha256.Sum256(line)
		text = append(append(text, line...), '\n')
	}
	return text
}

func (p place) put(t *testing.T, text []byte) {
	t.Helper()
	if err := os.WriteFile(p.path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// What Orla has signed and somebody has written anew while Orla did not run is a gap, also if the file goes on after it.
func TestT88HistoryThatIsWrittenAnewIsAGap(t *testing.T) {
	p := newPlace(t)
	p.write(t, 4) // a start, four calls and a head
	good := p.read(t)
	lines := bytes.SplitAfter(good, []byte("\n"))
	head := readFile(t, headFile(t, p))
	keep := sha256.Sum256(bytes.TrimSuffix(lines[1], []byte("\n")))
	newest := sha256.Sum256(bytes.TrimSuffix(lines[5], []byte("\n")))
	unlinked := append(bytes.Clone(good), forgedLines(7, 2, newest)...)
	unlinked = bytes.Replace(unlinked, []byte(`"why":"rotated"`), []byte(`"why":"whatever"`), 1)
	for name, text := range map[string][]byte{
		"one line more than was signed":    append(bytes.Join(lines[:2], nil), forgedLines(3, 5, keep)...),
		"as many":                          append(bytes.Join(lines[:2], nil), forgedLines(3, 4, keep)...),
		"a file that begins after it":      forgedLines(7, 3, [sha256.Size]byte{1}),
		"a file that begins long after it": forgedLines(107, 3, [sha256.Size]byte{1}),
		"a line after it that is changed":  unlinked,
		"lines before it that are gone":    append(forgedLines(1, 1, [sha256.Size]byte{}), forgedLines(7, 3, newest)...),
		"no line before it":                append([]byte("nothing\n"), forgedLines(7, 3, newest)...),
		"no line is cut":                   append(append(bytes.Clone(good), "x\n"...), bytes.Replace(forgedLines(7, 1, newest), []byte(`"event":"start"`), []byte(`"bytes":2,"sha256":"","event":"torn"`), 1)...),
	} {
		p.put(t, text)
		if err := os.WriteFile(headFile(t, p), head, 0o600); err != nil {
			t.Fatal(err)
		}
		p.write(t, 1)
		text := p.read(t)
		if r := p.verify(t, text); r.OK() || bytes.Count(text, []byte(`"event":"gap"`)) != 1 {
			t.Errorf("%s: the findings are %v, in\n%s", name, r.Findings, text)
		}
	}
}

// kill -9 does not leave a gap: lines that no stored head covers, also with lines that were cut among them.
func TestT88LinesAfterTheNewestHeadAreNoGap(t *testing.T) {
	p := newPlace(t)
	p.write(t, 2)
	signed, head := p.read(t), readFile(t, headFile(t, p))
	p.write(t, 800) // more than is read at once
	text := p.read(t)
	for _, cut := range []int{len(signed) + 1, len(text) - 1, len(text) - 2, len(text)/2 + 7, len(text)} {
		p.put(t, text[:cut])
		for range 2 { // the second start reads back over what the first has noted
			if err := os.WriteFile(headFile(t, p), head, 0o600); err != nil {
				t.Fatal(err)
			}
			p.write(t, 1)
			if now := p.read(t); bytes.Contains(now, []byte(`"event":"gap"`)) {
				t.Fatalf("a file that was cut after %d of %d bytes has a gap:\n%s", cut, len(text), now[cut:])
			}
			p.mustBeOK(t, p.read(t))
		}
	}
	// A file that was rotated has the signed line, and the new one follows it.
	p.put(t, text)
	if err := os.WriteFile(headFile(t, p), head, 0o600); err != nil {
		t.Fatal(err)
	}
	p.put(t, text[len(signed):])
	p.write(t, 1)
	if now := p.read(t); bytes.Contains(now, []byte(`"event":"gap"`)) {
		t.Errorf("a file that follows the signed line has a gap")
	}
}

// A log that begins after the newest head, and does not follow it, is not the one that Orla has signed.
func TestT88ALogAfterTheNewestHeadIsFound(t *testing.T) {
	p := newPlace(t)
	p.write(t, 4)
	good := p.read(t)
	for _, seq := range []int{7, 8, 107} {
		r := p.verify(t, forgedLines(seq, 3, [sha256.Size]byte{1}))
		if r.OK() || !strings.Contains(r.Findings[0].Text, "number 6, which Orla signed, is not before it") {
			t.Errorf("a log that begins with number %d: %v", seq, r.Findings)
		}
	}
	newest := sha256.Sum256(good[bytes.LastIndexByte(good[:len(good)-1], '\n')+1 : len(good)-1])
	if r := p.verify(t, forgedLines(7, 3, newest)); !r.OK() { // nobody has signed what follows
		t.Errorf("a log that follows the newest head: %v", r.Findings)
	}
}

// A file that somebody puts in the place of the one that is written is told in the log, once.
func TestT88AFileInThePlaceOfTheLogIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		var said bytes.Buffer
		opts := p.options()
		opts.Log = slog.New(slog.NewTextHandler(&said, nil))
		l, err := audit.Open(opts)
		if err != nil {
			t.Fatal(err)
		}
		l.Record(callOf(1))
		time.Sleep(2 * time.Minute) // in the bubble
		synctest.Wait()
		if strings.Contains(said.String(), "replaced") {
			t.Errorf("the log is said to be replaced: %s", &said)
		}
		if err := l.Elsewhere(); err != nil {
			t.Errorf("it is where it was: %v", err)
		}
		if err := os.Rename(p.path, p.path+".1"); err != nil {
			t.Fatal(err)
		}
		if l.Elsewhere() == nil {
			t.Error("it was removed, and nobody is told before the next line")
		}
		p.put(t, forgedLines(4, 3, [sha256.Size]byte{1}))
		for i := range 3 {
			l.Record(callOf(i))
			time.Sleep(2 * time.Minute)
		}
		synctest.Wait()
		if n := strings.Count(said.String(), "moved, removed or replaced"); n != 1 {
			t.Errorf("the log says %d times that it was replaced: %s", n, &said)
		}
		l.Close()
	})
}
