package watch

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

func TestLimitHint(t *testing.T) {
	tests := []struct {
		err  error
		want string
	}{
		{syscall.ENOSPC, "max_user_watches"},
		{syscall.EMFILE, "max_user_instances"},
		{syscall.ENFILE, "file-max"},
		{syscall.ENOSYS, ""},
	}
	for _, tt := range tests {
		got := limitHint(fmt.Errorf("watch: %w", tt.err))
		if !strings.Contains(got, tt.want) || (tt.want == "") != (got == "") {
			t.Errorf("limitHint(%v) = %q, want it to name %q", tt.err, got, tt.want)
		}
	}
}

func TestIgnored(t *testing.T) {
	tests := []struct {
		path  string
		isDir bool
		want  bool
	}{
		{"pkg/node_modules", true, true},
		{"venv", true, true},
		{"venv", false, false}, // a tool of that name
		{".git", false, true},
		{"a/.tool.py.swp", false, true},
		{"#tool#", false, true},
		{"#", false, false},
		{"4913", false, true},
		{"tool.py", false, false},
		{".env", false, false},
		{"tmp", true, false},
	}
	for _, tt := range tests {
		if got := Ignored(tt.path, tt.isDir); got != tt.want {
			t.Errorf("Ignored(%q, %v) = %v, want %v", tt.path, tt.isDir, got, tt.want)
		}
	}
}

func TestWithin(t *testing.T) {
	tests := []struct {
		path, dir string
		want      bool
	}{
		{"a/b", "a", true},
		{"a/b/c", "a", true},
		{"a", "a", true},
		{"ab", "a", false},
		{"a", "a/b", false},
		{"a", ".", true},
		{".", ".", true},
		{".", "a", false},
	}
	for _, tt := range tests {
		if got := within(tt.path, tt.dir); got != tt.want {
			t.Errorf("within(%q, %q) = %v, want %v", tt.path, tt.dir, got, tt.want)
		}
	}
}
