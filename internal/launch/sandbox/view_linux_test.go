//go:build amd64 || arm64

package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/launch/shim"
)

// TestT72View: what is seen of the machine is seen at the same path, what is
// outside before what is inside, each in a folder that is there by then.
func TestT72View(t *testing.T) {
	top := t.TempDir()
	for _, dir := range []string{"pkg/sub", "other"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil { //nolint:gosec // as packages are
			t.Fatal(err)
		}
	}
	if err := os.Symlink("pkg", filepath.Join(top, "link")); err != nil {
		t.Fatal(err)
	}
	pkg, sub, link := filepath.Join(top, "pkg"), filepath.Join(top, "pkg/sub"), filepath.Join(top, "link")
	v, err := newView([]string{pkg, sub, link, pkg + "/", "/usr/bin", "/nowhere"}, []string{top, "/nowhere"})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		pkg: true, sub: true, link: true, pkg + "/x": true, filepath.Join(top, "other"): false, pkg + "age": false, top: false,
		"/usr/bin/env": true, "/bin/sh": true, "/etc/shadow": false, "/etc": false, "/": false, "": false, "/root": false, "/var": false, "/run": false, "/home": false, "/nowhere": false,
	} {
		if got := v.sees(path); got != want {
			t.Errorf("sees(%q) = %t", path, got)
		}
	}
	there := []string{"/"}
	var binds []string
	for _, e := range v.entries() {
		inside := slices.Contains(there, filepath.Dir(e.Path)) || slices.ContainsFunc(binds, func(dir string) bool { return under(e.Path, dir) })
		if !inside {
			t.Errorf("%c %s: there is no folder for it", e.Kind, e.Path)
		}
		switch e.Kind { //nolint:exhaustive // the rest makes nothing that something can be in
		case shim.Folder:
			there = append(there, e.Path)
		case shim.Bind:
			binds = append(binds, e.Path)
			if e.Data == "/" || under(e.Path, "/etc") && strings.Contains(e.Path, "shadow") {
				t.Errorf("%s shows %s", e.Path, e.Data)
			}
		}
	}
	if i, j := slices.Index(binds, pkg), slices.Index(binds, sub); i < 0 || j >= 0 && j < i {
		t.Errorf("%s comes after %s: %q", pkg, sub, binds)
	}
}

// TestM7HidesFiles: a file of Orla's own in a folder that a process can change is hidden as a folder is, after what shows it.
func TestM7HidesFiles(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	token, link := filepath.Join(top, "token"), filepath.Join(top, "link")
	if err := os.WriteFile(token, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("token", link); err != nil {
		t.Fatal(err)
	}
	v, err := newView(nil, nil)
	if err == nil {
		err = v.open(Options{Writes: []string{top}, Hidden: []string{link}}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	entries := v.entries()
	shown := slices.IndexFunc(entries, func(e shim.Entry) bool { return e.Kind == shim.Share && e.Path == top })
	covered := slices.IndexFunc(entries, func(e shim.Entry) bool {
		return e.Kind == shim.Device && e.Path == token && e.Data == "/dev/null"
	})
	if v.sees(token) || shown < 0 || covered < shown {
		t.Errorf("the folder is shown by entry %d, and the file covered by %d", shown, covered)
	}
}

// TestT72ShowsAllSettings: what an operator shows wins over what a sandbox has of its own.
func TestT72ShowsAllSettings(t *testing.T) {
	v, err := newView([]string{"/etc"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range v.entries() {
		if e.Path != "/etc" && under(e.Path, "/etc") {
			t.Errorf("%c %s is made in a folder of the machine's", e.Kind, e.Path)
		}
	}
}

func TestShebang(t *testing.T) {
	for text, want := range map[string][2]string{
		"":                                  {},
		"echo":                              {},
		"#!":                                {},
		"#!/bin/sh\n":                       {"/bin/sh", ""},
		"#! /bin/sh -e\n":                   {"/bin/sh", ""},
		"#!/usr/bin/env python3\nx":         {"/usr/bin/env", "python3"},
		"#!/usr/bin/env -S A=b node --x\ny": {"/usr/bin/env", "node"},
		"#!/usr/bin/env\n":                  {"/usr/bin/env", ""},
	} {
		path := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if a, b := shebang(path); [2]string{a, b} != want {
			t.Errorf("%q: %q, %q; want %q", text, a, b, want)
		}
	}
}
