package records

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/file/wholefile"
	"github.com/orla-project/orla/manifest"
)

func listedTool(source string) manifest.Tool { return manifest.Tool{Name: "cap", Source: source} }

var discard = slog.New(slog.DiscardHandler)

// SPEC D7a: what a capsule said is there at the next start, each project's own.
func TestListsAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "when needed")
	here, there := listedTool("/here/tool.yaml"), listedTool("/there/tool.yaml")
	said := Offered{
		Tools: raws(`{"name":"a","inputSchema":{"type":"object","maximum":12345678901234567890}}`), Prompts: raws(`{"name":"p"}`),
		Resources: raws(`{"uri":"x:"}`), Templates: raws(`{"uriTemplate":"x:{y}"}`), Reads: true, Completes: true, Logs: true,
	}
	lists := NewLists(dir)
	if got, ok := lists.Load(here); ok {
		t.Errorf("before anything was said there is %+v", got)
	}
	lists.Save(here, said, discard)
	other := Offered{Tools: raws(`{"name":"b"}`)}
	lists.Save(there, other, discard)
	for _, again := range []*Lists{lists, NewLists(dir)} {
		if got, ok := again.Load(here); !ok || !reflect.DeepEqual(got, said) {
			t.Errorf("kept is %+v", got)
		}
		if got, ok := again.Load(there); !ok || !reflect.DeepEqual(got, other) {
			t.Errorf("kept of the other is %+v", got)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 {
		t.Errorf("the folder has %v, %v", files, err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil || info.Mode().Perm() != 0o600 || strings.HasPrefix(f.Name(), ".") {
			t.Errorf("%s has mode %v, %v", f.Name(), info.Mode(), err)
		}
	}
}

// SPEC S1: the file of a capsule's lists is as large as they are, whatever is in them.
func TestS1AFileOfListsIsAsLargeAsTheyAre(t *testing.T) {
	const size = 100 << 10
	dir := t.TempDir()
	said := Offered{Prompts: raws(`{"name":"` + strings.Repeat("<", size) + `"}`)}
	NewLists(dir).Save(listedTool("/here/tool.yaml"), said, discard)
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if info, err := files[0].Info(); err != nil || info.Size() > size+1<<10 {
		t.Errorf("the file of %d bytes of lists has %v, %v", size, info, err)
	}
	if got, ok := NewLists(dir).Load(listedTool("/here/tool.yaml")); !ok || !reflect.DeepEqual(got, said) {
		t.Error("it is not read back")
	}
}

// SPEC D7a: Lists that are renewed do not know what was kept, and what a capsule says
// replaces it.
func TestD7aListsAreRenewed(t *testing.T) {
	lists := NewLists(t.TempDir())
	here, there := listedTool("/here/tool.yaml"), listedTool("/there/tool.yaml")
	old, said := Offered{Tools: raws(`{"name":"a"}`)}, Offered{Tools: raws(`{"name":"b"}`)}
	lists.Save(here, old, discard)
	lists.Save(there, old, discard)
	renewed := lists.Renew()
	if got, ok := renewed.Load(here); ok {
		t.Errorf("before anything was said there is %+v", got)
	}
	renewed.Save(here, said, discard)
	for _, l := range []*Lists{renewed, NewLists(lists.dir)} {
		if got, ok := l.Load(here); !ok || !reflect.DeepEqual(got, said) {
			t.Errorf("kept is %+v", got)
		}
	}
	if got, _ := NewLists(lists.dir).Load(there); !reflect.DeepEqual(got, old) {
		t.Errorf("kept of one that said nothing is %+v", got)
	}
}

// What an Orla that was killed was writing goes with the next start.
func TestWhatWasBeingWrittenGoes(t *testing.T) {
	for what, open := range map[string]func(dir string){
		"lists": func(dir string) { NewLists(dir) },
		"holds": func(dir string) { NewHolds(dir) },
	} {
		dir := t.TempDir()
		left := filepath.Join(dir, wholefile.Prefix+"1")
		if err := os.WriteFile(left, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		long := time.Now().Add(-2 * time.Hour)
		if err := os.Chtimes(left, long, long); err != nil {
			t.Fatal(err)
		}
		open(dir)
		if _, err := os.Stat(left); err == nil {
			t.Errorf("%s: it is there still", what)
		}
	}
}

// The files of capsules that are gone go too; those of others stay.
func TestD7aListsOfCapsulesThatAreGoneAreRemoved(t *testing.T) {
	dir, packages := t.TempDir(), t.TempDir()
	manifestOf := func(name string) manifest.Tool {
		source := filepath.Join(packages, name, "tool.yaml")
		if err := os.MkdirAll(filepath.Dir(source), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(source, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return manifest.Tool{Name: name, Source: source}
	}
	served, elsewhere, gone, renamed := manifestOf("served"), manifestOf("elsewhere"), manifestOf("gone"), manifestOf("renamed")
	lists := NewLists(dir)
	for _, tool := range []manifest.Tool{served, elsewhere, gone, renamed} {
		lists.Save(tool, Offered{Tools: raws(`{"name":"a"}`)}, discard)
	}
	foreign, link := key(listedTool("/foreign"))+".json", key(listedTool("/link"))+".json"
	for name, text := range map[string]string{foreign: `{"mine":true}`, "notes.json": `{"tools":[]}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, foreign), filepath.Join(dir, link)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Dir(gone.Source)); err != nil {
		t.Fatal(err)
	}
	renamed.Name = "new"
	lists.Prune([]manifest.Tool{served, renamed})
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	want := []string{key(served) + ".json", key(elsewhere) + ".json", foreign, link, "notes.json"}
	slices.Sort(want)
	if !slices.Equal(left, want) {
		t.Errorf("left is %q, want %q", left, want)
	}
	if len(lists.known) != 1 {
		t.Errorf("in memory are %d", len(lists.known))
	}
}

// A file that is broken, or too large, is as none, and written over.
func TestBrokenListsAreForgotten(t *testing.T) {
	dir := t.TempDir()
	tool := listedTool("/here/tool.yaml")
	path := filepath.Join(dir, key(tool)+".json")
	for _, text := range []string{"", "{", `{"tools":5}`, `[]`, "\x00\x00"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		lists := NewLists(dir)
		if got, ok := lists.Load(tool); ok {
			t.Errorf("of %q there is %+v", text, got)
		}
		want := Offered{Tools: raws(`{"name":"a"}`)}
		lists.Save(tool, want, discard)
		if got, ok := NewLists(dir).Load(tool); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("after %q kept is %+v", text, got)
		}
	}
	if err := os.Truncate(path, maxListFile+1); err != nil { // with a hole, not with bytes
		t.Fatal(err)
	}
	if _, ok := NewLists(dir).Load(tool); ok {
		t.Error("a file that is too large is read")
	}
}

// What cannot be kept is told once, and holds for as long as Orla runs; when it
// can again, it is.
func TestListsThatCannotBeKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lists")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // in the way, also of root
		t.Fatal(err)
	}
	journal := &journal{}
	log := slog.New(slog.NewTextHandler(journal, nil))
	lists := NewLists(dir)
	tool := listedTool("/here/tool.yaml")
	warned := func(n int) {
		t.Helper()
		if got := len(journal.having("cannot store")); got != n {
			t.Errorf("warned %d times, want %d", got, n)
		}
	}
	said := Offered{Tools: raws(`{"name":"a"}`)}
	for range 3 {
		lists.Save(tool, said, log)
	}
	warned(1)
	if got, ok := lists.Load(tool); !ok || !reflect.DeepEqual(got, said) {
		t.Errorf("in memory there is %+v", got)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	lists.Save(tool, said, log)
	if _, ok := NewLists(dir).Load(tool); !ok {
		t.Error("it is not kept when it can be")
	}
	warned(1)
}

// A place where nobody may write, root neither, is told of once.
func TestListsWhereNothingCanBeWritten(t *testing.T) {
	journal := &journal{}
	lists := NewLists("/proc/self/lists")
	for range 3 {
		lists.Save(listedTool("x"), Offered{}, slog.New(slog.NewTextHandler(journal, nil)))
	}
	if n := len(journal.having("cannot store")); n != 1 {
		t.Errorf("warned %d times, want once", n)
	}
}

// Without a folder lists are kept in memory; without Lists they are not.
func TestListsNowhere(t *testing.T) {
	tool := listedTool("/here/tool.yaml")
	said := Offered{Tools: raws(`{"name":"a"}`)}
	var none *Lists
	none.Save(tool, said, discard)
	if got, ok := none.Load(tool); ok {
		t.Errorf("no Lists have %+v", got)
	}
	memory := NewLists("")
	if _, ok := memory.Load(tool); ok {
		t.Error("new Lists have something")
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			memory.Save(tool, said, discard)
			if got, ok := memory.Load(tool); !ok || !reflect.DeepEqual(got, said) {
				t.Errorf("in memory there is %+v", got)
			}
		})
	}
	wg.Wait()
}

// logging is a handler that calls a function for each line.
type logging struct {
	slog.Handler
	each func()
}

func (logging) Enabled(context.Context, slog.Level) bool { return true }

func (l logging) Handle(context.Context, slog.Record) error {
	l.each()
	return nil
}

// SPEC S2: nobody who needs what is remembered waits for a file of a capsule, which may be large, and its disk slow.
func TestS2NobodyWaitsForTheFileOfLists(t *testing.T) {
	inTheWay := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	lists := NewLists(filepath.Join(inTheWay, "lists"))
	met := make(chan struct{})
	go lists.Save(listedTool("/a/tool.yaml"), Offered{Tools: raws(`{"name":"a"}`)}, slog.New(logging{slog.DiscardHandler, func() {
		lists.Load(listedTool("/b/tool.yaml")) // while the file is being dealt with
		close(met)
	}}))
	select {
	case <-met:
	case <-time.After(30 * time.Second):
		t.Fatal("what is remembered is locked while a file is being written")
	}
}
