package regularfile_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/file/regularfile"
)

// SPEC S2: a file that Orla keeps is neither waited for nor looked for elsewhere, whatever is in its place.
func TestS2WhatOrlaKeepsIsAFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("file"), []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(at("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", at("link")); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	for path, want := range map[string]string{
		at("fifo"): "not a regular file but a FIFO", at("link"): "not a regular file but a link", at("socket"): "not a regular file but a socket",
		dir: "not a regular file but a folder", "/dev/null": "not a regular file but a device",
	} {
		if _, err := regularfile.ReadOwn(path, 10); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("ReadOwn of %s: %v, want %q", path, err, want)
		}
		if f, err := regularfile.OpenLock(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("OpenLock of %s: %v, %v, want %q", path, f, err, want)
		}
	}
	if got, err := regularfile.ReadOwn(at("file"), 10); string(got) != "0123456789" || err != nil {
		t.Errorf("ReadOwn = %q, %v", got, err)
	}
	if _, err := regularfile.ReadOwn(at("file"), 9); err == nil {
		t.Error("a file over the limit is read")
	}
	if _, err := regularfile.ReadOwn(at("none"), 9); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("one that does not exist: %v", err)
	}
	f, err := regularfile.OpenLock(at("lock"))
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
}
