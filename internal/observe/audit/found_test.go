//go:build !race

package audit_test

import (
	"bytes"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
)

// Each change of a single byte is found, also without the head in the state folder.
func TestT88EachChangedByteIsFound(t *testing.T) {
	needs.Time(t, "changes each byte")
	p := newPlace(t)
	p.write(t, 2)
	p.write(t, 1)
	text := p.read(t)
	for at := range text {
		for n, to := range []byte{text[at] ^ 1, text[at] ^ 0x20, '\n'} {
			if to == text[at] || n != at%3 && !needs.More() {
				continue
			}
			changed := bytes.Clone(text)
			changed[at] = to
			v := p.verifier(t)
			if err := v.File(t.Context(), "x", bytes.NewReader(changed), false); err != nil {
				t.Fatal(err)
			}
			if v.Report().OK() {
				t.Fatalf("byte %d of %d, %q changed to %q, is not found", at, len(text), text[at], to)
			}
		}
	}
}

// Each cut is found: in a line by itself, and at the end of a line by the head in the state folder.
func TestT88EachCutIsFound(t *testing.T) {
	needs.Time(t, "cuts at each byte")
	p := newPlace(t)
	p.write(t, 2)
	p.write(t, 1)
	text := p.read(t)
	for at := range text {
		if p.verify(t, text[:at]).OK() {
			t.Fatalf("a file cut to %d of %d bytes is not found", at, len(text))
		}
	}
}
