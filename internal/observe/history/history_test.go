package history_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/observe/history"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// line is line i of a tool, as the log has it.
func line(tool, event string, i int) history.Line {
	return history.Line{
		Time: epoch.Add(time.Duration(i) * time.Second), Level: slog.LevelInfo, Tool: tool, Event: event,
		JSON: fmt.Appendf(nil, `{"time":"2026-01-01T00:00:00Z","level":"info","msg":%q,"tool":%q,"i":%d}`, event, tool, i),
	}
}

// number is the i of a line.
func number(t *testing.T, l history.Line) int {
	t.Helper()
	var content struct{ I int }
	if err := json.Unmarshal(l.JSON, &content); err != nil {
		t.Fatalf("%s: %v", l.JSON, err)
	}
	return content.I
}

func numbers(t *testing.T, lines []history.Line) []int {
	t.Helper()
	all := []int{}
	for _, l := range lines {
		all = append(all, number(t, l))
	}
	return all
}

func TestLastAnswersQueries(t *testing.T) {
	h := history.New()
	for i, l := range []struct{ tool, event string }{
		{"", "serving"}, {"a", "state"}, {"b", "state"}, {"a", "call"}, {"a", "stderr"}, {"b", "call"}, {"", "reload"}, {"a", "state"},
	} {
		h.Add(line(l.tool, l.event, i))
	}
	for _, c := range []struct {
		name  string
		query history.Query
		want  []int
	}{
		{"everything", history.Query{}, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{"one tool, its calls in their place", history.Query{Tools: []string{"a"}}, []int{1, 3, 4, 7}},
		{"two tools, in the order in which they spoke", history.Query{Tools: []string{"b", "a"}}, []int{1, 2, 3, 4, 5, 7}},
		{"one tool asked for twice", history.Query{Tools: []string{"b", "b"}, Last: 2}, []int{2, 5}},
		{"the last of one tool", history.Query{Tools: []string{"a"}, Last: 2}, []int{4, 7}},
		{"more than there are", history.Query{Tools: []string{"b"}, Last: 9}, []int{2, 5}},
		{"none", history.Query{Last: -1}, []int{}},
		{"a tool that nobody knows", history.Query{Tools: []string{"c"}}, []int{}},
		{"since", history.Query{Since: epoch.Add(5 * time.Second)}, []int{5, 6, 7}},
		{"events", history.Query{Events: []string{"state", "reload"}}, []int{1, 2, 6, 7}},
		{"the last of those events", history.Query{Events: []string{"state"}, Last: 1, Tools: []string{"b"}}, []int{2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := numbers(t, h.Last(c.query)); !slices.Equal(got, c.want) {
				t.Errorf("got lines %v; want %v", got, c.want)
			}
		})
	}
	want := line("a", "stderr", 4)
	got := h.Last(history.Query{Events: []string{"stderr"}})[0]
	if !got.Time.Equal(want.Time) || got.Level != want.Level || got.Tool != "a" || got.Event != "stderr" || string(got.JSON) != string(want.JSON) {
		t.Errorf("got %+v; want %+v", got, want)
	}
}

// SPEC I3: a busy tool's calls, and their attempts, push out neither why it
// crashed nor another's lines.
func TestCallsPushOutCallsAlone(t *testing.T) {
	h := history.New()
	h.Add(line("busy", "state", 1))
	h.Add(line("quiet", "state", 2))
	h.Add(line("quiet", "call", 3))
	for i := range 10_000 {
		h.Add(line("busy", []string{"call", "attempt"}[i%2], 4+i))
	}
	if got := numbers(t, h.Last(history.Query{Events: []string{"state"}})); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("states %v are left; want both", got)
	}
	if got := numbers(t, h.Last(history.Query{Tools: []string{"quiet"}})); !slices.Equal(got, []int{2, 3}) {
		t.Errorf("lines %v of the quiet tool are left; want both", got)
	}
	busy := numbers(t, h.Last(history.Query{Tools: []string{"busy"}}))
	if len(busy) < 100 || busy[0] != 1 || busy[len(busy)-1] != 10_003 {
		t.Errorf("%d lines, from %d to %d, of the busy tool are left", len(busy), busy[0], busy[len(busy)-1])
	}
}

// SPEC I3: nor does what a talkative tool writes to stderr push out why it
// crashed, or what happened to another.
func TestStderrPushesOutStderrAlone(t *testing.T) {
	h := history.New()
	h.Add(line("talks", "state", 1))
	h.Add(line("quiet", "state", 2))
	h.Add(line("talks", "call", 3))
	for i := range 10_000 {
		h.Add(line("talks", "stderr", 4+i))
	}
	if got := numbers(t, h.Last(history.Query{Events: []string{"state", "call"}})); !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("of all, lines %v are left; want all three", got)
	}
	talks := numbers(t, h.Last(history.Query{Tools: []string{"talks"}}))
	if len(talks) < 100 || talks[0] != 1 || talks[1] != 3 || talks[len(talks)-1] != 10_003 {
		t.Errorf("%d lines, from %d to %d, of the talkative tool are left", len(talks), talks[0], talks[len(talks)-1])
	}
}

// held is what a History takes after fill, in bytes.
func held(fill func(*history.History)) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	h := history.New()
	fill(h)
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(h)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// A tool that has gone is forgotten once there are too many others, and one
// that still speaks is not.
func TestTheToolSilentForLongestIsForgotten(t *testing.T) {
	h := history.New()
	h.Add(line("gone", "state", 0))
	for i := range 10_000 {
		h.Add(line(fmt.Sprint(i), "state", i))
		if i%1000 == 0 {
			h.Add(line("speaks", "state", i))
		}
	}
	if got := h.Last(history.Query{Tools: []string{"gone"}}); len(got) != 0 {
		t.Errorf("%d lines of a tool that has gone", len(got))
	}
	if got := h.Last(history.Query{Tools: []string{"speaks"}}); len(got) != 10 {
		t.Errorf("%d lines of a tool that speaks; want 10", len(got))
	}
}

func TestNoToolHasALongName(t *testing.T) {
	h := history.New()
	long := strings.Repeat("x", 100)
	h.Add(history.Line{Tool: long, Event: strings.Repeat("y", 1000), JSON: []byte("{}")})
	if got := h.Last(history.Query{Tools: []string{long}}); len(got) != 0 {
		t.Error("a name that is not a tool has its own history")
	}
	if got := h.Last(history.Query{}); len(got) != 1 {
		t.Error("the line is lost")
	}
}

// Adding a line to what is full costs no memory.
func TestAddAllocatesNothing(t *testing.T) {
	h := history.New()
	l := line("tool", "call", 1)
	add := func() { h.Add(l) }
	for range 5000 {
		add()
	}
	if got := testing.AllocsPerRun(1000, add); got > 0 {
		t.Errorf("%v allocations for a line", got)
	}
}

// What follows begins where what was kept ends, however many add meanwhile.
func TestFollowMissesNothing(t *testing.T) {
	h := history.New()
	const writers, each = 4, 200 // fewer than are kept
	var adding sync.WaitGroup
	for w := range writers {
		adding.Go(func() {
			for i := range each {
				h.Add(line(fmt.Sprint(w), "state", i))
			}
		})
	}
	var reading sync.WaitGroup
	for range 3 {
		reading.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			next := map[string]int{}
			for l, lost := range h.Follow(ctx, history.Query{}) {
				if i := number(t, l); lost != 0 || i != next[l.Tool] {
					t.Errorf("line %d of %s, with %d lost; want line %d", i, l.Tool, lost, next[l.Tool])
				}
				next[l.Tool]++
				if len(next) == writers && !slices.ContainsFunc([]string{"0", "1", "2", "3"}, func(w string) bool { return next[w] < each }) {
					return
				}
			}
			t.Errorf("it ended after %v", next)
		})
	}
	adding.Wait()
	reading.Wait()
}

// A follower that does not take its lines loses some, is told how many, and
// holds nobody up.
func TestSlowFollowerIsToldWhatItLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := history.New()
		ctx, cancel := context.WithCancel(t.Context())
		const lines = 20_000
		var got, lost int
		began, goOn, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			for _, dropped := range h.Follow(ctx, history.Query{Tools: []string{"a"}}) {
				if got++; got == 1 {
					close(began)
					<-goOn
				}
				lost += dropped
			}
		}()
		synctest.Wait() // it follows
		h.Add(line("a", "state", 0))
		<-began
		for i := range lines {
			h.Add(line("a", "state", i))
			h.Add(line("b", "state", i))
		}
		close(goOn)
		synctest.Wait()
		h.Add(line("a", "state", lines)) // it is told with the next one
		synctest.Wait()
		cancel()
		<-over
		if got+lost != lines+2 || lost == 0 || got < 1000 {
			t.Errorf("%d lines came and %d were lost; want %d in all", got, lost, lines+2)
		}
	})
}

func TestFollowSelects(t *testing.T) {
	h := history.New()
	for i := range 5 {
		h.Add(line("a", "state", i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []int
	for l := range h.Follow(ctx, history.Query{Tools: []string{"a"}, Last: 2, Events: []string{"state"}}) {
		got = append(got, number(t, l))
		if len(got) == 2 {
			h.Add(line("b", "state", 5))
			h.Add(line("a", "call", 6))
			h.Add(line("a", "state", 7))
		}
		if len(got) == 3 {
			break
		}
	}
	if !slices.Equal(got, []int{3, 4, 7}) {
		t.Errorf("got lines %v; want the last two, and the one that came", got)
	}
	cancel()
	for range h.Follow(ctx, history.Query{}) {
		t.Error("a line after the end")
	}
}

// A capsule may offer tools after somebody has begun to follow it.
func TestFollowHearsOfWhatComesUp(t *testing.T) {
	h := history.New()
	h.Add(line("old", "state", 1))
	h.Add(line("new", "state", 2))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var got []int
	for l := range h.Follow(ctx, history.Query{Tools: []string{"old"}, Also: func(tool string) bool { return tool == "new" }}) {
		if got = append(got, number(t, l)); len(got) == 1 {
			h.Add(line("other", "call", 3))
			h.Add(line("new", "call", 4))
		} else {
			leave()
		}
	}
	if !slices.Equal(got, []int{1, 4}) {
		t.Errorf("lines %v; want 1 and 4", got)
	}
}

func TestLongLinesAreShortened(t *testing.T) {
	h := history.New()
	h.Add(history.Line{Tool: "a", Event: "stderr", JSON: fmt.Appendf(nil, `{"msg":"stderr","text":%q,"after":1}`, strings.Repeat("é\n", 50_000))})
	got := h.Last(history.Query{Tools: []string{"a"}})[0].JSON
	var content struct {
		Msg, Text string
		Cut       int `json:"cut_bytes"`
	}
	if err := json.Unmarshal(got, &content); err != nil || len(got) > 20<<10 {
		t.Fatalf("%d bytes of JSON: %v", len(got), err)
	}
	if content.Msg != "stderr" || !strings.HasSuffix(content.Text, "…") || len(content.Text) < 15_000 || content.Cut < 100_000 {
		t.Errorf("%s with a text of %d bytes, and %d cut", content.Msg, len(content.Text), content.Cut)
	}
}

func BenchmarkAdd(b *testing.B) {
	h := history.New()
	l := line("tool", "call", 1)
	b.ReportAllocs()
	for b.Loop() {
		h.Add(l)
	}
}

// O4: a follower with a pace looks at what is new at most so often, and at once after a while without lines.
func TestO4AFollowerKeepsItsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := history.New()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var at []time.Duration
		began := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range h.Follow(ctx, history.Query{Last: -1, Pace: 100 * time.Millisecond}) {
				at = append(at, time.Since(began))
			}
		}()
		synctest.Wait()
		for range 30 {
			h.Add(history.Line{Time: time.Now(), Event: "e", JSON: []byte(`{}`)})
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		cancel()
		<-done
		times := slices.Compact(slices.Clone(at))
		if want := []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond}; len(at) < 20 || !slices.Equal(times[:3], want) {
			t.Errorf("%d lines, at %v; want them at %v", len(at), times, want)
		}
	})
}
