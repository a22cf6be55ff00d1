package schema

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// describedTool is the schema of the tools that the bench has.
const describedTool = `{"type":"object","properties":{"text":{"type":"string","description":"What to print."},` +
	`"count":{"type":"integer","description":"How often to print it.","minimum":1}}}`

// SPEC L2, S1: the schemas of most tools are checked without the compiler, as there may be ten thousand of them at a start.
func TestL2APlainSchemaIsNotCompiledBeforeItIsNeeded(t *testing.T) {
	s, err := CompileInput(json.RawMessage(describedTool))
	if err != nil {
		t.Fatal(err)
	}
	if s.source.kept.Load() != nil {
		t.Error("the compiled schema is kept before a call needs it")
	}
	got := testing.AllocsPerRun(100, func() { _, _ = compileInput(json.RawMessage(describedTool)) })
	if got > 150 { // the compiler makes some 400
		t.Errorf("%.0f allocations for a plain schema", got)
	}
	if err := s.Validate(t.Context(), json.RawMessage(`{"count":0}`)); err == nil || !strings.Contains(err.Error(), "count") {
		t.Errorf("a count of 0: %v", err)
	}
}

// SPEC S1, S2: what is remembered of plain schemas is bounded, and is what would be made again.
func TestS2FewInputSchemasAreRemembered(t *testing.T) {
	m := &memory{}
	for i := range maxInputs + 10 {
		raw := json.RawMessage(fmt.Sprintf(`{"type":"object","title":"%d"}`, i))
		s, err := compileInput(raw)
		if err != nil {
			t.Fatal(err)
		}
		m.put(sha256.Sum256(raw), s)
		if len(m.known) > maxInputs || m.get(sha256.Sum256(raw)) != s {
			t.Fatalf("%d schemas are remembered", len(m.known))
		}
	}
	if len(m.known) != 10 {
		t.Errorf("%d schemas are remembered, want those since there was no room", len(m.known))
	}
	large := json.RawMessage(`{"type":"object","title":"` + strings.Repeat("x", maxSchema/2) + `"}`)
	s, err := compileInput(large)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		m.put([sha256.Size]byte{byte(i)}, s)
		if m.bytes > maxInputBytes {
			t.Fatalf("%d bytes are remembered", m.bytes)
		}
	}
	first, _ := CompileInput(json.RawMessage(describedTool))
	if again, err := CompileInput(json.RawMessage(describedTool)); err != nil || again != first {
		t.Errorf("the same schema again: %v", err)
	}
	if _, err := CompileInput(json.RawMessage(`{"type":"string"}`)); err == nil {
		t.Error("a schema that is not one of an object is taken")
	}
}

func BenchmarkCompileInput(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := compileInput(json.RawMessage(describedTool)); err != nil {
			b.Fatal(err)
		}
	}
}
