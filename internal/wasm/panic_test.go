package wasm_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/wasm"
)

// TestF2APanicOverAModuleFailsItsCalls: the goroutine that compiles belongs to no call,
// so nobody else recovers there. Whoever waits for the module is told, and its place is
// free again.
func TestF2APanicOverAModuleFailsItsCalls(t *testing.T) {
	var log bytes.Buffer
	r := wasm.NewRuntime(wasm.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	defer r.Close()
	r.Curse()
	const more = 3 // than are compiled at once
	for range more {
		if _, err := r.Compile(t.Context(), nothing, wasm.Limits{}); fault.CodeOf(err) != fault.ExecutionFailed {
			t.Fatalf("Compile: %v", err)
		}
	}
	if n := strings.Count(log.String(), "panic=\"for the test\""); n != more || !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("the log has %d panics, want %d: %s", n, more, &log)
	}
}

// nothing is a module without anything in it.
var nothing = []byte("\x00asm\x01\x00\x00\x00")
