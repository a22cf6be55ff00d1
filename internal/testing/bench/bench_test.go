package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/testing/needs"
)

// The program cannot rot unseen: a quick run goes through every section. What
// it measures is not looked at. It runs without the race detector, with which a
// compiler of modules takes ten times as long; TestL1BuildsAreCompared has it.
func TestAQuickRunFillsEveryTable(t *testing.T) {
	t.Parallel()
	needs.Time(t, "builds and starts Orla many times")
	if !needs.More() {
		t.Skip("SKIPPED: it takes 16 s of a processor, and TestL1BuildsAreCompared goes through what all sections share; make long runs it")
	}
	if _, err := cpuOf(os.Getpid()); err != nil {
		t.Skip(err)
	}
	bench := filepath.Join(t.TempDir(), "bench")
	if err := goBuild(t.Context(), "../../..", bench, "./internal/testing/bench"); err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	doc := filepath.Join(t.TempDir(), "doc.md")
	const head, tail = "# Before\n\n", "\n\nAfter.\n"
	if err := os.WriteFile(doc, []byte(head+beginMarker+"\nold\n"+endMarker+tail), 0o600); err != nil {
		t.Fatal(err)
	}

	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), bench, "-quick", "-out", doc)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	if !strings.HasPrefix(got, head+beginMarker) || !strings.HasSuffix(got, endMarker+tail) || strings.Contains(got, "\nold\n") {
		t.Errorf("what stands around the markers is not kept, or what stood between them is:\n%s", got)
	}
	for _, want := range []string{"HTTP, session", "HTTP, client can be asked", "HTTP, stateless", "stdio", "/bin/sh script", "Idle for", "From exec", "arguments of", "capsules at once", "per capsule", "direct", "callback", "native sandbox", "module, warm", "counting", "stand-in of one session", "One client floods", "Many active clients", "An install from", "with dependencies"} {
		if !strings.Contains(stdout.String(), want) || !strings.Contains(got, want) {
			t.Errorf("the tables do not speak of %q", want)
		}
	}
	for _, name := range []string{"cpu.svg", "p50.svg", "memory.svg"} {
		if picture, err := os.ReadFile(filepath.Join(filepath.Dir(doc), name)); err != nil || !bytes.Contains(picture, []byte(">Orla<")) {
			t.Errorf("%s: %v, %.200s", name, err, picture)
		}
		if !strings.Contains(got, "](./"+name+")") {
			t.Errorf("the document does not show %s", name)
		}
	}
	left, err := filepath.Glob(filepath.Join(tmp, "*bench*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in the temporary folder: %v (%v)", left, err)
	}
}

func TestSectionsAreChosenByName(t *testing.T) {
	names := []string{"a", "b", "c"}
	if got, err := choose("c,a", names); err != nil || strings.Join(got, " ") != "c a" {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := choose("", names); err != nil || len(got) != 3 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := choose("a,x", names); err == nil || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("got %v, want an error that names x", err)
	}
}

func TestRewriteRefusesAFileWithoutMarkers(t *testing.T) {
	doc := filepath.Join(t.TempDir(), "doc.md")
	if err := os.WriteFile(doc, []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := rewrite(doc, "", nil); err == nil {
		t.Error("no error")
	}
	if text, err := os.ReadFile(doc); err != nil || string(text) != "mine\n" {
		t.Errorf("the file is now %q (%v)", text, err)
	}
}

func TestRatiosAreTakenRoundByRound(t *testing.T) {
	var order []string
	fixed := func(name string, took ...time.Duration) subject {
		calls := 0
		return subject{
			name: name,
			load: func(n, _ int) ([]time.Duration, error) {
				order = append(order, name)
				calls++
				return []time.Duration{took[min(calls-1, len(took)-1)]}, nil
			},
			cpu: func() (cpu, error) { return cpu{own: time.Duration(calls) * 10}, nil },
		}
	}
	// No budget leaves each turn at one piece of work. The machine is three times as slow in the last round, for both.
	results, err := compare(t.Context(), 0, 1, 1, []subject{fixed("base", 1, 10, 10, 30), fixed("other", 1, 20, 20, 60)})
	if err != nil {
		t.Fatal(err)
	}
	if got := results[1].ratio; got != 2 {
		t.Errorf("ratio %v, want 2", got)
	}
	if got := results[1].p50; got != 20 {
		t.Errorf("p50 %v, want 20", got)
	}
	if got := results[1].against(results[0], results[0]); got != 1 {
		t.Errorf("ratio to twice the baseline %v, want 1", got)
	}
	if got := results[1].cpu.total(); got != 10 {
		t.Errorf("CPU %v for each piece, want 10: the first round is to warm up", got)
	}
	if got, want := strings.Join(order, " "), "base other base other other base base other"; got != want {
		t.Errorf("order %q, want %q", got, want)
	}
}

// SPEC-TOOLS 8.3: what a program does once is in its average, and not in what each of its calls costs more.
func TestT83MoreCPUIsTakenRoundByRound(t *testing.T) {
	for _, shared := range []bool{false, true} {
		using := func(each time.Duration, once int) subject {
			var used time.Duration
			calls := 0
			return subject{
				load: func(n, _ int) ([]time.Duration, error) {
					used += each * time.Duration(n)
					if calls++; calls == once {
						used += time.Second
					}
					return make([]time.Duration, n), nil
				},
				cpu: func() (cpu, error) { return cpu{own: used}, nil }, shared: shared,
			}
		}
		results, err := compare(t.Context(), 0, 4, 1, []subject{using(10, -1), using(13, 3)})
		if err != nil {
			t.Fatal(err)
		}
		if got := results[1]; got.more != 3 || got.cpu.total() < time.Millisecond {
			t.Errorf("shared %t: %v more for each, %v on average; want 3ns and what one round took", shared, got.more, got.cpu.total())
		}
	}
}

// A turn of many at a time is timed whole, whatever each of them took.
func TestTurnsAreTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turning := func(name string, took time.Duration) subject {
			return subject{
				name: name,
				load: func(n, _ int) ([]time.Duration, error) {
					<-time.After(time.Duration(n) * took)
					return make([]time.Duration, n), nil
				},
				cpu: func() (cpu, error) { return cpu{}, nil },
			}
		}
		results, err := compare(t.Context(), time.Second, 4, 2, []subject{turning("base", time.Millisecond), turning("other", 3*time.Millisecond)})
		if err != nil {
			t.Fatal(err)
		}
		if got := results[1]; got.turn != 3*time.Millisecond || got.pace != 3 || results[0].pace != 1 {
			t.Errorf("%v for each, %v times the baseline's; want 3ms and 3", got.turn, got.pace)
		}
	})
}

// The first pieces of work take longer than others, and a turn is filled with those all the same.
func TestTurnsAreFilledAlsoIfTheFirstPiecesAreSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most := 0
		starting := subject{
			load: func(n, _ int) ([]time.Duration, error) {
				if most == 0 {
					time.Sleep(20 * time.Millisecond)
				}
				most = max(most, n)
				time.Sleep(time.Duration(n) * 100 * time.Microsecond)
				return make([]time.Duration, n), nil
			},
			cpu: func() (cpu, error) { return cpu{}, nil },
		}
		if _, err := compare(t.Context(), time.Second, 2, 1, []subject{starting, starting}); err != nil {
			t.Fatal(err)
		}
		if most != 600 {
			t.Errorf("a turn has %d pieces of 100µs, want 600", most)
		}
	})
}

func TestALoadIsMetered(t *testing.T) {
	busy := meteredLoad{load: func(n, _ int) ([]time.Duration, error) {
		before, err := ownCPU()
		for now := before; err == nil && now.since(before).own < 5*time.Millisecond; {
			now, err = ownCPU()
		}
		return make([]time.Duration, n), err
	}}
	for range 2 {
		if _, err := busy.run(5, 1); err != nil {
			t.Fatal(err)
		}
	}
	if got := busy.each(); got < time.Millisecond {
		t.Errorf("%v for each, want a fifth of 5ms at least", got)
	}
}

func TestATurnIsFilled(t *testing.T) {
	if got := fit(2, 4*time.Millisecond, 60*time.Millisecond); got != 30 {
		t.Errorf("got %d pieces of 2ms for 60ms, want 30", got)
	}
	if got := fit(32, time.Second, 60*time.Millisecond); got != 32 {
		t.Errorf("got %d, want no fewer than 32", got)
	}
}

func TestACanceledComparisonEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	idle := subject{
		load: func(int, int) ([]time.Duration, error) { cancel(); return []time.Duration{1}, nil },
		cpu:  func() (cpu, error) { return cpu{}, nil },
	}
	if _, err := compare(ctx, time.Hour, 1, 1, []subject{idle}); err == nil {
		t.Error("no error")
	}
}

func TestLanesDoAllTheWork(t *testing.T) {
	busy := make([]bool, 3)
	took, err := lanes(50, 3, func(lane int) error {
		if busy[lane] {
			t.Errorf("lane %d is used twice at a time", lane)
		}
		busy[lane] = true
		defer func() { busy[lane] = false }()
		return nil
	})
	if err != nil || len(took) != 50 {
		t.Errorf("%d pieces, %v", len(took), err)
	}
	if _, err := lanes(5, 2, func(int) error { return os.ErrInvalid }); err == nil {
		t.Error("an error is lost")
	}
}

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(tc.in); got != tc.want {
			t.Errorf("median: got %v, want %v", got, tc.want)
		}
	}
}

func TestVerdictNamesWhatIsMissed(t *testing.T) {
	if got := verdict(check{"p50", 1.2, 1.25}, check{"CPU", 1.25, 1.25}); got != "met" {
		t.Errorf("got %q", got)
	}
	if got := verdict(check{"p50", 1.3, 1.25}, check{"CPU", 2, 1.25}); got != "MISSED p50, CPU" {
		t.Errorf("got %q", got)
	}
}
