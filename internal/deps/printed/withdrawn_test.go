package printed

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// SPEC R2, R4: what each installer says of a version that was withdrawn is understood, on either stream and once.
func TestR4WhatInstallersSayOfWithdrawnVersions(t *testing.T) {
	for line, want := range map[string]Withdrawal{
		"warning: `acme==2.0` is yanked (reason: \"it eats data\")":  {"acme", "2.0", "it eats data"},
		"warning: `acme==2.0` is yanked":                             {"acme", "2.0", ""},
		"npm warn deprecated acme@2.0.0: it eats data":               {"acme", "2.0.0", "it eats data"},
		"npm WARN deprecated @scope/acme@2.0.0-rc.1: use other: now": {"@scope/acme", "2.0.0-rc.1", "use other: now"},
		"WARN  deprecated acme@2.0.0: it eats data":                  {"acme", "2.0.0", "it eats data"},
		"WARNING: The candidate selected for download or install is a yanked version: 'acme' candidate (version 2.0 at http://me:secret@127.0.0.1/acme.whl (from http://me:secret@127.0.0.1/))": {"acme", "2.0", ""},
	} {
		for stream := range 2 {
			lines := Lines{Each: func(string) {}}
			for range 2 {
				lines.Write(stream, []byte(line+"\n"))
			}
			if !slices.Equal(lines.Withdrawn, []Withdrawal{want}) {
				t.Errorf("%q is %+v", line, lines.Withdrawn)
			}
		}
	}
	lines := Lines{Each: func(string) {}}
	for _, line := range []string{"Collecting acme", "warning: `acme==2.0` is old", "npm warn EBADENGINE acme@1", "npm warn deprecated", "a deprecated acme@1.0.0: x"} {
		lines.Write(0, []byte(line+"\n"))
	}
	if len(lines.Withdrawn) > 0 {
		t.Errorf("other lines are %+v", lines.Withdrawn)
	}
	for i := range 1000 { // a publisher may withdraw much, and say much
		fmt.Fprintf(writer{&lines}, "npm warn deprecated a%d@1.0.0: %s\n", i, strings.Repeat("x", 2000))
	}
	if n := len(lines.Withdrawn); n != mostWithdrawn || len(lines.Withdrawn[0].Reason) > longestReason+len("…") {
		t.Errorf("%d versions are kept, with %d bytes", n, len(lines.Withdrawn[0].Reason))
	}
}

type writer struct{ *Lines }

func (w writer) Write(b []byte) (int, error) {
	w.Lines.Write(1, b)
	return len(b), nil
}
