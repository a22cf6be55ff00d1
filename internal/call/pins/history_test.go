package pins_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/pins"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/manifest"
)

// model is what a person would say of pins: which text was accepted for each name.
type model struct {
	accepted map[string]string // nil before the first list
	hold     bool
	broken   bool // the file cannot be read
}

// served says what of a list is served.
func (m *model) served(list texts) []string {
	if m.accepted == nil && !m.broken && len(list) > 0 {
		m.accepted = maps.Clone(list)
	}
	var all []string
	for name, text := range list {
		was, known := m.accepted[name]
		if !m.hold || !m.broken && known && was == text {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// SPEC N4: in random histories of lists, approvals, restarts, changes of the mode and of the file, exactly what a
// small model says is served.
func TestN4RandomHistories(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("SEED=%d", seed)
	histories := 150
	if text := os.Getenv("HISTORIES"); text != "" {
		histories, _ = strconv.Atoi(text)
	}
	for n := range histories {
		if !randomHistory(t, rand.New(rand.NewPCG(seed, uint64(n)))) {
			t.Fatalf("history %d of SEED=%d", n, seed)
		}
	}
}

func randomHistory(t *testing.T, random *rand.Rand) bool {
	dir := t.TempDir()
	w := &world{t: t, dir: dir, tool: manifest.Tool{Name: "notes", Kind: manifest.Capsule, Source: "/nowhere/notes.yaml"}}
	w.tool.Runtime.Pin = manifest.PinHold
	w.restart()
	m := &model{hold: true}
	var list texts
	var shown pins.View // what an operator has looked at last
	var whole bool
	var err error
	var log []string
	note := func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }
	for range 12 + random.IntN(12) {
		switch random.IntN(12) {
		case 0, 1, 2, 3:
			list = texts{}
			for _, name := range []string{"a", "b", "c", "d"} {
				if random.IntN(4) > 0 {
					list[name] = fmt.Sprint(random.IntN(3))
				}
			}
			note("list %v", list)
		case 4:
			w.restart()
			note("restart")
		case 5:
			m.hold = !m.hold
			w.tool.Runtime.Pin = map[bool]manifest.Pin{true: manifest.PinHold, false: manifest.PinWarn}[m.hold]
			w.of = w.Of(w.tool)
			note("hold: %v", m.hold)
		case 6:
			if files, _ := filepath.Glob(filepath.Join(dir, "*.json")); len(files) == 1 && !m.broken {
				if err := os.WriteFile(files[0], []byte("{"), 0o600); err != nil {
					t.Fatal(err)
				}
				m.broken = true
				note("break")
			}
		case 7, 8:
			if whole = random.IntN(2) == 0; whole {
				shown, err = w.Look("notes", nil)
			} else {
				shown, err = w.Look("notes__"+string(rune('a'+random.IntN(4))), nil)
			}
			note("look: %v, %v", itemsOf(shown), err)
		case 9, 10:
			if shown.Provider == "" {
				continue
			}
			name := "notes"
			if !whole {
				if len(shown.Items) == 0 {
					continue
				}
				name = shown.Items[0].Name
			}
			got, err := w.Approve(name, shown.Digest.String(), "uid 0")
			note("approve %s as shown: %v, %v", name, itemsOf(got), err)
			if err == nil {
				for _, i := range got.Items {
					if m.broken || m.accepted == nil {
						m.accepted, m.broken = texts{}, false
					}
					var text struct{ Description string }
					if json.Unmarshal(i.After, &text) != nil {
						t.Fatal(string(i.After))
					}
					m.accepted[i.Own] = text.Description
				}
				if fmt.Sprint(itemsOf(got)) != fmt.Sprint(itemsOf(shown)) {
					t.Errorf("accepted is %v, and shown was %v", itemsOf(got), itemsOf(shown))
				}
			}
		case 11:
			w.Prune([]manifest.Tool{w.tool})
			w.of = w.Of(w.tool)
		}
		want := m.served(list)
		held := w.list(list)
		var got []string
		for name := range list {
			if _, is := held[name]; !is {
				got = append(got, name)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("served is %v, want %v (model %+v), after\n%q", got, want, m, log)
		}
	}
	return !t.Failed()
}

// itemsOf are the definitions of a view.
func itemsOf(v pins.View) (all []string) {
	for _, i := range v.Items {
		all = append(all, i.Own+" "+string(i.After))
	}
	return all
}

// SPEC N4: an Orla that is killed while it writes leaves the definitions that were accepted before or after, whole.
func TestN4KilledBetweenWrites(t *testing.T) {
	if dir := os.Getenv("PINS_WRITE_TO"); dir != "" {
		writeForEver(t, dir)
	}
	w := newWorld(t, manifest.PinHold)
	w.tool.Source = filepath.Join(w.dir, "..", "notes.yaml")
	w.restart()
	w.list(longTexts(0))
	for range needs.Rounds(2, 2) {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestN4KilledBetweenWrites$")
		child.Env = append(os.Environ(), "PINS_WRITE_TO="+w.dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadFull(out, make([]byte, 2+rand.IntN(6))) // so many approvals
		_ = child.Process.Kill()
		_ = child.Wait() // it was killed
		w.restart()
		found := false
		for n := range 3 {
			held := w.list(longTexts(n))
			found = found || len(held) == 0
			for name, state := range held {
				if state == pins.Unknown {
					t.Fatalf("%s cannot be read", name)
				}
			}
		}
		if !found {
			t.Fatal("what is accepted is not a list as a whole")
		}
	}
}

func longTexts(n int) texts {
	list := texts{}
	for i := range 50 {
		list[fmt.Sprint("t", i)] = fmt.Sprintf("%d %01000d", n, i)
	}
	return list
}

// writeForEver approves one list after the other, and writes a byte for each.
func writeForEver(t *testing.T, dir string) {
	w := &world{t: t, dir: dir, tool: manifest.Tool{Name: "notes", Kind: manifest.Capsule, Source: filepath.Join(dir, "..", "notes.yaml")}}
	w.tool.Runtime.Pin = manifest.PinHold
	w.restart()
	for n := 0; ; n++ {
		w.list(longTexts(n % 3))
		if _, err := w.Approve("notes", "", "uid 0"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if _, err := os.Stdout.WriteString("."); err != nil {
			os.Exit(0)
		}
	}
}

// SPEC N4: of two processes that see a first list at the same time, one accepts it, and the other holds what differs.
func TestN4TwoProcessesAndOneFirstList(t *testing.T) {
	w := newWorld(t, manifest.PinHold)
	other := pins.NewStore(w.dir, slog.New(slog.DiscardHandler)).Of(w.tool)
	w.holds("the first", texts{"add": "a"}, states{})
	held := other.Compare(map[string]*mcp.Tool{"add": {Name: "add", Description: "b"}}, nil)
	if state, is := held.State(pins.Tool, "add"); !is || state != pins.Changed {
		t.Errorf("%v %v", state, is)
	}
	if _, err := w.Approve("notes", "", "uid 0"); err != nil {
		t.Error(err)
	}
	// What one accepts, the other sees at its next list.
	w.list(texts{"add": "c"})
	if _, err := w.Approve("notes", "", "uid 0"); err != nil {
		t.Error(err)
	}
	held = other.Compare(map[string]*mcp.Tool{"add": {Name: "add", Description: "c", InputSchema: json.RawMessage(`{"type":"object"}`)}}, nil)
	if state, is := held.State(pins.Tool, "add"); is {
		t.Errorf("what the other has accepted is %v", state)
	}
}

// SPEC N4: the same at the same moment.
func TestN4TwoFirstListsAtOnce(t *testing.T) {
	for range 50 {
		w := newWorld(t, manifest.PinHold)
		var held [2]bool
		var both sync.WaitGroup
		for n := range held {
			p := pins.NewStore(w.dir, slog.New(slog.DiscardHandler)).Of(w.tool)
			both.Go(func() {
				list := map[string]*mcp.Tool{"add": {Name: "add", Description: fmt.Sprint(n)}}
				_, held[n] = p.Compare(list, nil).State(pins.Tool, "add")
			})
		}
		both.Wait()
		if held[0] == held[1] {
			t.Fatalf("held are %v, want one of them", held)
		}
	}
}

// tools makes n tools with schemas of a usual size.
func tools(n int) map[string]*mcp.Tool {
	all := make(map[string]*mcp.Tool, n)
	for i := range n {
		name := fmt.Sprint("tool-", i)
		all[name] = &mcp.Tool{Name: name, Description: fmt.Sprint("does the thing number ", i), InputSchema: json.RawMessage(
			`{"type":"object","required":["path"],"properties":{"path":{"type":"string","description":"The file to read"},"lines":{"type":"integer","minimum":1},"mode":{"enum":["a","b"]}}}`)}
	}
	return all
}

// BenchmarkCompareOneChanged is a list of which the last one had all but one, which is the same pointer then.
func BenchmarkCompareOneChanged(b *testing.B) {
	for _, n := range []int{5_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tool := manifest.Tool{Name: "notes", Kind: manifest.Capsule, Source: "/nowhere/notes.yaml"}
			tool.Runtime.Pin = manifest.PinHold
			p := pins.NewStore(b.TempDir(), slog.New(slog.DiscardHandler)).Of(tool)
			all := tools(n)
			p.Compare(all, nil)
			for i := 0; b.Loop(); i++ {
				all["tool-7"] = &mcp.Tool{Name: "tool-7", Description: fmt.Sprint(i), InputSchema: json.RawMessage(`{"type":"object"}`)}
				p.Compare(all, nil)
			}
		})
	}
}

func BenchmarkCompareUnchanged(b *testing.B) {
	tool := manifest.Tool{Name: "notes", Kind: manifest.Capsule, Source: "/nowhere/notes.yaml"}
	tool.Runtime.Pin = manifest.PinHold
	p := pins.NewStore(b.TempDir(), slog.New(slog.DiscardHandler)).Of(tool)
	p.Compare(tools(10_000), nil)
	again := tools(10_000)
	for b.Loop() {
		p.Compare(again, nil)
		b.StopTimer()
		again = tools(10_000) // a list that was read again
		b.StartTimer()
	}
}
