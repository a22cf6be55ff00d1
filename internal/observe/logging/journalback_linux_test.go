package logging

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/observe/history"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// journalctl puts a program in the place of journalctl, which prints a text, and messages, and keeps its arguments.
func journalctl(t *testing.T, printed, said string, code int) (arguments func() string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"printed": printed, "said": said} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	testkit.WriteTool(t, dir, "journalctl", fmt.Sprintf("#!/bin/sh\necho \"$@\" >%s/arguments\ncat %[1]s/printed\ncat %[1]s/said >&2\nexit %d\n", dir, code))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("INVOCATION_ID", "") // whatever runs the test
	return func() string { return testkit.ReadFile(t, dir+"/arguments") }
}

var began = time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.UTC)

// journaled is an entry as journalctl prints it.
func journaled(after time.Duration, event, tool string, more ...string) string {
	fields := map[string]any{
		"PRIORITY": "6", "SYSLOG_IDENTIFIER": "orla", "_PID": strconv.Itoa(os.Getpid()), "__REALTIME_TIMESTAMP": strconv.FormatInt(began.Add(after).UnixMicro()+9, 10),
		"MESSAGE": event, "ORLA_MSG": event, "ORLA_TOOL": tool, "ORLA_TIME": began.Add(after).Format(time.RFC3339Nano),
	}
	for i := 0; i < len(more); i += 2 {
		if fields[more[i]] = json.RawMessage(more[i+1]); more[i+1] == "" {
			delete(fields, more[i])
		}
	}
	raw, _ := json.Marshal(fields) // texts
	return string(raw) + "\n"
}

func kept(after time.Duration, event string) history.Line {
	const tool = "notes"
	return history.Line{Time: began.Add(after), Level: slog.LevelInfo, Tool: tool, Event: event, JSON: fmt.Appendf(nil, `{"msg":%q,"tool":%q,"kept":true}`, event, tool)}
}

func linesOf(t *testing.T, q history.Query, last int, kept ...history.Line) (list []string) {
	t.Helper()
	for line := range ReadJournal(t.Context(), q, last, kept) {
		if !json.Valid(line.JSON) {
			t.Errorf("%q is not JSON", line.JSON)
		}
		list = append(list, string(line.JSON))
	}
	return list
}

// SPEC O2: where the log goes to the journal, older lines come from there, as the JSON log has them: numbers as numbers, values
// that are not text as text, and texts as texts.
func TestO2LinesComeFromTheJournal(t *testing.T) {
	asked := journalctl(t, "-- No entries --\n{\n[]\n"+
		journaled(0, "started", "notes", "ORLA_PID", `"12"`, "ORLA_CAUSE", `"first start"`, "ORLA_VERSION", `"1"`)+
		journaled(time.Second, "stderr", "notes", "ORLA_TEXT", `[27,91,109,255]`, "PRIORITY", `"4"`)+
		journaled(2*time.Second, "stderr", "notes", "ORLA_TEXT", `"17"`, "ORLA_TIME", "")+
		journaled(3*time.Second, "x", "other", "ORLA_MSG", "", "MESSAGE", `"{\"time\":\"2026-01-02T03:04:08Z\",\"level\":\"info\",\"msg\":\"stop\",\"tool\":\"notes\"}"`)+
		journaled(3*time.Second, "an approval was decided", "forged", "_PID", `"1"`)+ // of a tool in the same unit
		journaled(3*time.Second, "an approval was decided", "forged", "_PID", "")+
		journaled(4*time.Second, "started", "notes", "ORLA_TEXT", `"`+strings.Repeat("x", maxEntry)+`"`),
		"", 0)
	want := []string{
		`{"time":"2026-01-02T03:04:05.123456789Z","level":"info","msg":"started","cause":"first start","pid":12,"tool":"notes","version":"1"}`,
		`{"time":"2026-01-02T03:04:06.123456789Z","level":"warn","msg":"stderr","text":"\u001b[m` + "\ufffd" + `","tool":"notes"}`,
		`{"time":"2026-01-02T03:04:07.123465Z","level":"info","msg":"stderr","text":"17","tool":"notes"}`,
		`{"time":"2026-01-02T03:04:08Z","level":"info","msg":"stop","tool":"notes"}`,
	}
	if got := linesOf(t, history.Query{Since: began}, 0); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := asked(); !strings.HasPrefix(got, "--output=json --all --no-pager --since=@1767323043 SYSLOG_IDENTIFIER=orla _") {
		t.Errorf("journalctl %s", got)
	}
	if got := linesOf(t, history.Query{Since: began.Add(time.Second), Tools: []string{"notes"}, Events: []string{"stop"}}, 0); !slices.Equal(got, want[3:]) {
		t.Errorf("of one event: %q", got)
	}
}

// SPEC O2: whoever reads lines of the journal slowly keeps nobody else from them.
func TestO2SlowReadersOfTheJournalKeepNobodyFromIt(t *testing.T) {
	journalctl(t, journaled(0, "a", "notes")+journaled(time.Second, "b", "notes"), "", 0)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range maxCounting + 1 {
		for _, last := range []int{0, 2} {
			next, stop := iter.Pull(ReadJournal(ctx, history.Query{Since: began}, last, nil))
			defer stop()
			if _, ok := next(); !ok {
				t.Fatalf("the newest %d: nothing came", last)
			}
		}
	}
}

// SPEC O2: lines that Orla keeps and those of the journal come once each, in the order of their times; of the newest, journalctl
// prints the newest first.
func TestO2TheJournalAndTheHistoryAreJoined(t *testing.T) {
	entries := []string{
		journaled(0, "a", "notes"), journaled(2*time.Second, "c", "notes"), journaled(3*time.Second, "e", "notes"), journaled(3*time.Second-1, "d", "notes"),
	}
	memory := []history.Line{
		kept(time.Second, "b"), kept(2*time.Second, "c"), kept(3*time.Second-1, "d"), kept(3*time.Second, "e"), kept(4*time.Second, "f"),
	}
	events := func(list []string) (all string) {
		for _, line := range list {
			var l struct{ Msg string }
			_ = json.Unmarshal([]byte(line), &l) // linesOf has checked it
			all += l.Msg
		}
		return all
	}
	journalctl(t, strings.Join(entries, ""), "", 0)
	if got := events(linesOf(t, history.Query{Since: began}, 0, memory...)); got != "abcdef" {
		t.Errorf("all: %s", got)
	}
	slices.Reverse(entries)
	asked := journalctl(t, strings.Join(entries, ""), "", 0)
	for last, want := range map[int]string{1: "f", 2: "ef", 3: "def", 5: "bcdef", 6: "abcdef", 10: "abcdef"} {
		if got := events(linesOf(t, history.Query{Since: began}, last, memory...)); got != want {
			t.Errorf("the last %d: %s, want %s", last, got, want)
		}
	}
	if got := asked(); !strings.HasPrefix(got, "--reverse ") {
		t.Errorf("journalctl %s", got)
	}
}

// SPEC O2: if the journal cannot be read, the lines that Orla keeps come with one that says why, and what to do.
func TestO2AJournalThatCannotBeRead(t *testing.T) {
	memory := kept(0, "a")
	for _, c := range []struct {
		said string
		code int
		want string
	}{
		{"No journal files were opened due to insufficient permissions.\n", 1, "SupplementaryGroups=systemd-journal"},
		{"Hint: You are currently not seeing messages from other users and the system.\n", 0, "may not read the journal"},
		{"Failed to open files: Bad message\n", 1, "Bad message"},
	} {
		journalctl(t, "", c.said, c.code)
		for _, last := range []int{0, 5} {
			got := linesOf(t, history.Query{Since: began}, last, memory)
			if len(got) != 2 || got[0] != string(memory.JSON) || !strings.Contains(got[1], c.want) || !strings.Contains(got[1], `"level":"warn"`) {
				t.Errorf("%s: %q", c.said, got)
			}
		}
	}
	t.Setenv("PATH", t.TempDir())
	if got := linesOf(t, history.Query{Since: began}, 0, memory); len(got) != 2 || !strings.Contains(got[1], "journalctl is not installed") {
		t.Errorf("without journalctl: %q", got)
	}
}

// SPEC O2: a reader that has enough ends journalctl.
func TestO2ReadingTheJournalEndsWithItsReader(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "entry"), []byte(journaled(0, "a", "notes")), 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.WriteTool(t, dir, "journalctl", "#!/bin/sh\nwhile cat "+dir+"/entry; do :; done 2>/dev/null\n")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for range ReadJournal(t.Context(), history.Query{Since: began}, 0, nil) {
		break
	}
	if got := linesOf(t, history.Query{Since: began}, 3); len(got) != 3 {
		t.Errorf("%d lines", len(got))
	}
}
