package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// SPEC-TOOLS 8.8, SPEC B5: an audit log that nobody can append to is an error of the configuration, with its place.
func TestT88APathThatCannotBeAnAuditLog(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("loop", filepath.Join(dir, "loop")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "orla.yaml")
	for log, want := range map[string]string{
		".":             dir + " is a folder, not a file",
		"pipe":          "pipe is a FIFO, not a file",
		"orla.yaml/log": "orla.yaml/log cannot be made: something on the way to it is not a folder",
		"loop":          "too many levels of symbolic links",
		"orla.yaml":     "",
		"new/audit.log": "", // the folder is made
		"journal":       "",
		"none":          "",
	} {
		if err := os.WriteFile(path, []byte("state_dir: state\naudit_log: "+log+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := (&Loader{Path: path}).Load()
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", log, err)
		case want != "" && (err == nil || !strings.HasPrefix(err.Error(), path+":2:12: audit_log: ") || !strings.HasSuffix(err.Error(), want)):
			t.Errorf("%s: %v, want %s", log, err, want)
		}
	}
}
