package results

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/turns"
)

// SPEC S2: a read of a kept answer takes the memory that was counted for it, however many of its
// characters are escaped, and its size is the same for the next read.
func TestS2AReadTakesWhatWasCounted(t *testing.T) {
	for name, text := range map[string]string{"plain": "x", "escaped": "<", "lines": "\n", "control": "\x01\x7f"} {
		t.Run(name, func(t *testing.T) {
			text = strings.Repeat(text, 1<<20)
			s := NewStore()
			defer s.Close()
			id := strings.TrimPrefix(s.keep(Large{text: text}, turns.Owner{Session: "a"}), Prefix)
			a, ok := s.Get(id, "")
			size := a.EncodedSize()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			parts := a.Read("orla://answers/x", size, nil)
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; !ok || took > uint64(size+size/8) {
				t.Errorf("a read that counts as %d bytes takes %d", size, took)
			}
			var read string
			if err := json.Unmarshal(parts[1], &read); err != nil || read != text {
				t.Errorf("the text is another one: %v", err)
			}
			if again, _ := s.Get(id, ""); again.EncodedSize() != size || again.Part(1, 2).EncodedSize() != (Large{text: text[1:3]}).EncodedSize() {
				t.Error("the size is another one the second time, or that of a part is not its own")
			}
		})
	}
}
