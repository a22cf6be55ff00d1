package upgrade

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/capsule/handover"
)

// SPEC Q1: what a program of version 1 has written is read by this one, whole. The file stays as it is for as long as the
// version is read.
func TestQ1ARecordedStateIsRead(t *testing.T) {
	recorded, err := os.ReadFile(filepath.Join("testdata", "state-1.json"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := read(recorded)
	if err != nil {
		t.Fatal(err)
	}
	for name, raw := range d.Parts.Capsules {
		var s handover.State
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatal(err)
		}
		if d.Parts.Capsules[name], err = json.Marshal(s); err != nil {
			t.Fatal(err)
		}
	}
	again, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, lost := range missing("", decoded(t, recorded), decoded(t, again)) {
		t.Errorf("%s is not read", lost)
	}
}

// SPEC Q1: another version is refused.
func TestQ1AnotherVersionIsRefused(t *testing.T) {
	for _, text := range []string{`{"version":2}`, `{}`, `[]`, ``} {
		if d, err := read([]byte(text)); err == nil {
			t.Errorf("%q is read as %+v", text, d)
		}
	}
	if _, err := read([]byte(`{"version":2}`)); !strings.Contains(err.Error(), "version 2") {
		t.Errorf("the error is %q", err)
	}
}

func decoded(t *testing.T, raw []byte) (v any) {
	t.Helper()
	numbers := json.NewDecoder(bytes.NewReader(raw))
	numbers.UseNumber()
	if err := numbers.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// missing returns where has lacks what wanted has, or has something else.
func missing(at string, wanted, has any) (lost []string) {
	switch wanted := wanted.(type) {
	case map[string]any:
		of, _ := has.(map[string]any)
		for key, value := range wanted {
			lost = append(lost, missing(at+"."+key, value, of[key])...)
		}
	case []any:
		of, _ := has.([]any)
		for i, value := range wanted {
			if i >= len(of) {
				return append(lost, at)
			}
			lost = append(lost, missing(at, value, of[i])...)
		}
	default:
		if wanted != has {
			lost = append(lost, at)
		}
	}
	return lost
}
