//go:build !race

package logging_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/observe/history"
	"github.com/orla-project/orla/internal/observe/logging"
	"github.com/orla-project/orla/internal/testing/needs"
)

// SPEC J1: the file and what is kept are one log, in order and without duplicates.
func TestJ1ReadBackJoinsTheFileAndTheHistory(t *testing.T) {
	needs.Time(t, "reads a file many times")
	path := filepath.Join(t.TempDir(), "orla.log")
	begin := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	line := func(second int, tool, text string) history.Line {
		at := begin.Add(time.Duration(second) * time.Second)
		raw := fmt.Sprintf(`{"time":%q,"level":"info","msg":"stderr","tool":%q,"text":%q}`, at.Format(time.RFC3339Nano), tool, text)
		return history.Line{Time: at, Level: slog.LevelInfo, Tool: tool, Event: "stderr", JSON: []byte(raw)}
	}
	var file strings.Builder
	for i := range 5000 { // far more than one step of the search
		fmt.Fprintf(&file, "%s\n", line(i, "mail", fmt.Sprint(i)).JSON)
		if i%100 == 0 {
			file.WriteString("not JSON\n" + strings.Repeat("x", 2000) + "\n")
		}
	}
	file.WriteString(strings.Repeat("y", 3<<20) + "\n") // longer than any line
	fmt.Fprintf(&file, "%s\n", line(5000, "crm", "other").JSON)
	file.WriteString(`{"time":"2026-01-02T17:00:00Z","msg":"stderr","tool":"mail","text":"cut`)
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	short := line(4999, "mail", "4999")
	short.JSON = []byte(`{"shortened":true}`)
	only := line(4990, "mail", "only in the history")
	only.Time = only.Time.Add(time.Millisecond)
	only.JSON = []byte(strings.Replace(string(only.JSON), ":10Z", ":10.001Z", 1))
	kept := []history.Line{only, short, line(6000, "mail", "newest")}

	texts := func(since, last int, tools ...string) (list []string) {
		q := history.Query{Tools: tools, Since: begin.Add(time.Duration(since) * time.Second)}
		for l := range logging.ReadBack(context.Background(), path, q, last, kept) {
			var said struct{ Text string }
			if err := json.Unmarshal(l.JSON, &said); err != nil {
				t.Fatalf("%s: %v", l.JSON, err)
			}
			list = append(list, said.Text)
		}
		return list
	}
	if got, want := texts(4995, 0, "mail"), []string{"only in the history", "4995", "4996", "4997", "4998", "4999", "newest"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := texts(0, 0, "mail"); len(got) != 5002 || got[0] != "0" || got[4991] != "only in the history" {
		t.Errorf("all: %d lines, %q", len(got), got[:min(3, len(got))])
	}
	if got, want := texts(0, 3), []string{"4999", "other", "newest"}; !slices.Equal(got, want) {
		t.Errorf("the last 3: %q, want %q", got, want)
	}
	for i := range 5000 { // wherever it begins
		if i%97 != 0 {
			continue
		}
		if got := texts(i, 0, "mail"); !slices.Contains(got, fmt.Sprint(i)) || slices.Contains(got, fmt.Sprint(i-1)) {
			t.Fatalf("since %d: %q", i, got[:2])
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := texts(0, 0); len(got) != 3 {
		t.Errorf("without the file: %q", got)
	}
}
