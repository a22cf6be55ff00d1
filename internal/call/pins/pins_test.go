package pins_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/pins"
	"github.com/orla-project/orla/internal/testing/kubetest"
	"github.com/orla-project/orla/manifest"
)

// world is a state folder, and a manifest whose provider is pinned.
type world struct {
	t    *testing.T
	dir  string
	tool manifest.Tool
	log  bytes.Buffer
	api  *kubetest.Objects // has the pins; nil for the folder
	*pins.Store
	of *pins.Provider
}

func newWorld(t *testing.T, pin manifest.Pin) *world {
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "pins")}
	w.tool = manifest.Tool{Name: "notes", Kind: manifest.Capsule, Source: filepath.Join(t.TempDir(), "notes.yaml")}
	w.tool.Runtime.Pin = pin
	w.restart()
	return w
}

// restart is a new process.
func (w *world) restart() {
	w.Close()
	w.Store = pins.NewStore(w.dir, slog.New(slog.NewJSONHandler(&w.log, nil)))
	if w.api != nil {
		share(w.t, w.Store, w.api, func(string) {})
	}
	w.of = w.Of(w.tool)
}

// file returns the path of the only file of pins.
func (w *world) file() string {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.dir, "*.json"))
	if err != nil || len(files) != 1 {
		w.t.Fatalf("%d files of pins, %v", len(files), err)
	}
	return files[0]
}

// list compares tools that have these descriptions, by their names, and returns which of them are held.
func (w *world) list(tools map[string]string) map[string]pins.State {
	all, names := map[string]*mcp.Tool{}, map[string]string{}
	for name, text := range tools {
		all[name], names[name] = &mcp.Tool{Name: name, Description: text, InputSchema: json.RawMessage(`{"type":"object"}`)}, "notes__"+name
	}
	held := w.of.Compare(all, nil)
	w.of.Named(names, nil)
	states := map[string]pins.State{}
	for name := range tools {
		if state, is := held.State(pins.Tool, name); is {
			states[name] = state
		}
	}
	return states
}

func (w *world) holds(when string, tools map[string]string, want map[string]pins.State) {
	w.t.Helper()
	if got := w.list(tools); fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Errorf("%s: held are %v, want %v", when, got, want)
	}
}

type (
	texts  = map[string]string
	states = map[string]pins.State
)

// SPEC N4: the first list is accepted. A changed definition, and a new name, are held until exactly they are approved:
// not at a later list, and not after a restart.
func TestN4WhatIsNotAcceptedIsHeld(t *testing.T) {
	for _, api := range []*kubetest.Objects{nil, new(kubetest.Objects)} {
		t.Run(map[bool]string{true: "folder", false: "replicas"}[api == nil], func(t *testing.T) {
			w := newWorld(t, manifest.PinHold)
			w.api = api
			w.restart()
			whatIsNotAcceptedIsHeld(t, w)
		})
	}
}

func whatIsNotAcceptedIsHeld(t *testing.T, w *world) {
	w.holds("the first list", texts{"add": "a", "find": "f"}, states{})
	changed, want := texts{"add": "a", "find": "g", "wipe": "w"}, states{"find": pins.Changed, "wipe": pins.New}
	for _, when := range []string{"a changed list", "the same list again"} {
		w.holds(when, changed, want)
	}
	w.restart()
	w.holds("after a restart", changed, want)
	w.holds("without the new one", texts{"add": "a", "find": "g"}, states{"find": pins.Changed})
	w.holds("as at first", texts{"add": "a", "find": "f"}, states{})
	w.holds("changed once more", changed, want)

	shown, err := w.Look("notes__find", nil)
	if err != nil || len(shown.Items) != 1 {
		t.Fatalf("%+v, %v", shown, err)
	}
	w.holds("a third definition", texts{"add": "a", "find": "h", "wipe": "w"}, want)
	if _, err := w.Approve("notes__find", shown.Digest.String(), "uid 1"); !errors.Is(err, pins.ErrOutdated) {
		t.Errorf("approved with the digest of another definition: %v", err)
	}
	w.holds("after a refused approval", changed, want)
	if got, err := w.Approve("notes--find", shown.Digest.String(), "uid 1"); err != nil || len(got.Items) != 1 || got.Items[0].State != pins.Changed {
		t.Errorf("%+v, %v", got, err)
	}
	w.holds("find is accepted", changed, states{"wipe": pins.New})
	w.holds("find as it was at first", texts{"add": "a", "find": "f"}, states{"find": pins.Changed})
	w.restart()
	w.holds("after a restart", changed, states{"wipe": pins.New})
	if got, err := w.Approve("notes", "", "uid 1"); err != nil || len(got.Items) != 1 || got.Items[0].Own != "wipe" {
		t.Errorf("%+v, %v", got, err)
	}
	w.holds("all is accepted", changed, states{})
	if got, err := w.Approve("notes", "", "uid 1"); err != nil || len(got.Items) != 0 {
		t.Errorf("accepted twice: %+v, %v", got, err)
	}
	if _, err := w.Approve("notes__none", "", "uid 1"); !errors.Is(err, pins.ErrUnknown) {
		t.Errorf("approved a tool that nobody has: %v", err)
	}
}

// SPEC N4: what comes back after it was gone is compared with what was accepted; an empty list is not the first one.
func TestN4AnEmptyListAcceptsNothing(t *testing.T) {
	w := newWorld(t, manifest.PinHold)
	w.holds("nothing", texts{}, states{})
	w.holds("the first", texts{"add": "a"}, states{})
	w.holds("nothing", texts{}, states{})
	w.restart()
	w.holds("nothing after a restart", texts{}, states{})
	w.holds("another", texts{"add": "b"}, states{"add": pins.Changed})
}

// SPEC N4: under warn all is served, and each change is logged once.
func TestN4ChangesAreToldOnce(t *testing.T) {
	w := newWorld(t, manifest.PinWarn)
	told := func(when string, want int) {
		t.Helper()
		if got := strings.Count(w.log.String(), "a definition is not the accepted one"); got != want {
			t.Errorf("%s: %d lines in the log, want %d:\n%s", when, got, want, w.log.String())
		}
	}
	w.holds("first", texts{"add": "a", "find": "f"}, states{})
	told("the first list", 0)
	for range 3 {
		w.holds("changed", texts{"add": "b", "find": "f", "wipe": "w"}, states{})
	}
	told("a changed and a new one", 2)
	w.list(texts{"add": "c", "find": "f", "wipe": "w"})
	told("changed again", 3)
	if got := w.Problems(); len(got) != 1 || got[0].Severity != manifest.Warning || !strings.Contains(got[0].Err.Error(), "2 definitions that were not accepted: notes__add, notes__wipe (new);") {
		t.Errorf("%+v", got)
	}
	if _, err := w.Approve("notes", "", "uid 0"); err != nil {
		t.Error(err)
	}
	if got := w.Problems(); len(got) != 0 {
		t.Errorf("after all was accepted: %v", got)
	}
	w.list(texts{"add": "c", "find": "f", "wipe": "w"})
	told("accepted", 3)
	for n := range 1000 {
		w.list(texts{"add": fmt.Sprint(n)})
	}
	told("a flood", 100)
}

// SPEC N4: while what was accepted cannot be read, nothing of the server is served under hold, and the file stays.
func TestN4AnUnreadableFileHoldsAll(t *testing.T) {
	for name, harm := range map[string]func(path string, raw []byte) error{
		"empty":           func(path string, _ []byte) error { return os.WriteFile(path, nil, 0o600) },
		"cut":             func(path string, raw []byte) error { return os.WriteFile(path, raw[:len(raw)/2], 0o600) },
		"an empty object": func(path string, _ []byte) error { return os.WriteFile(path, []byte("{}"), 0o600) },
		"another format": func(path string, raw []byte) error {
			return os.WriteFile(path, bytes.Replace(raw, []byte(`"format":1`), []byte(`"format":2`), 1), 0o600)
		},
		"another definition": func(path string, raw []byte) error {
			return os.WriteFile(path, bytes.Replace(raw, []byte(`"description":"a"`), []byte(`"description":"b"`), 1), 0o600)
		},
		"a short digest": func(path string, raw []byte) error {
			return os.WriteFile(path, bytes.Replace(raw, []byte(`"sha256:`), []byte(`"sha256:00`), 1), 0o600)
		},
		"a folder": func(path string, _ []byte) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		"a link to nothing": func(path string, _ []byte) error {
			return errors.Join(os.Remove(path), os.Symlink(path+".gone", path))
		},
		"a link to what it was": func(path string, _ []byte) error {
			return errors.Join(os.Rename(path, path+".old"), os.Symlink(path+".old", path))
		},
		"a link to nowhere": func(path string, _ []byte) error {
			return errors.Join(os.Remove(path), os.Symlink(path, path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, manifest.PinHold)
			w.list(texts{"add": "a", "find": "f"})
			path := w.file()
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := harm(path, raw); err != nil {
				t.Fatal(err)
			}
			for _, when := range []string{"while it runs", "after a restart", "after another list"} {
				if when == "after a restart" {
					w.restart()
				}
				w.holds(when, texts{"add": "a", "find": when}, states{"add": pins.Unknown, "find": pins.Unknown})
				if got := w.Problems(); len(got) != 1 || got[0].Severity != manifest.Fault || !strings.Contains(got[0].Err.Error(), path) {
					t.Errorf("%s: the problems do not name the file: %v", when, got)
				}
			}
			if _, err := w.Approve("notes__add", "", "uid 0"); !errors.Is(err, pins.ErrRefused) {
				t.Errorf("one of them was approved: %v", err)
			}
			w.tool.Runtime.Pin = manifest.PinWarn
			w.restart()
			w.holds("under warn", texts{"add": "a", "find": "x"}, states{})
			w.tool.Runtime.Pin = manifest.PinHold
			w.restart()
			w.holds("under hold again", texts{"add": "a", "find": "x"}, states{"add": pins.Unknown, "find": pins.Unknown})
			if name == "a folder" {
				return // nobody can write there
			}
			if _, err := w.Approve("notes", "", "uid 0"); err != nil {
				t.Fatal(err)
			}
			w.holds("after the approval of all", texts{"add": "a", "find": "x"}, states{})
			w.restart()
			w.holds("after a restart", texts{"add": "a", "find": "y"}, states{"find": pins.Changed})
		})
	}
}

// SPEC N4: what cannot be kept is not accepted, so that nothing is accepted twice.
func TestN4NothingIsServedThatCannotBeKept(t *testing.T) {
	for _, dir := range []string{"", "/proc/self/pins"} {
		w := newWorld(t, manifest.PinHold)
		w.dir = dir
		w.restart()
		w.holds("hold", texts{"add": "a"}, states{"add": pins.Unknown})
		if got := w.Problems(); len(got) != 1 || got[0].Severity != manifest.Fault {
			t.Errorf("%q: %v", dir, got)
		}
		w.tool.Runtime.Pin = manifest.PinWarn
		w.restart()
		w.holds("warn", texts{"add": "a"}, states{})
		w.list(texts{"add": "b"})
		if got := w.Problems(); len(got) != 1 || got[0].Severity != manifest.Warning {
			t.Errorf("%q: under warn: %v", dir, got)
		}
	}
	// What could not be kept is, when it can be.
	held := newWorld(t, manifest.PinHold)
	if err := os.WriteFile(held.dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	held.holds("without a folder", texts{"add": "a"}, states{"add": pins.Unknown})
	if err := os.Remove(held.dir); err != nil {
		t.Fatal(err)
	}
	held.holds("with one", texts{"add": "b"}, states{})
	held.holds("changed", texts{"add": "a"}, states{"add": pins.Changed})
	// A folder that can be written again: what was the first list stays it.
	w := newWorld(t, manifest.PinWarn)
	blocker := w.dir
	if err := os.WriteFile(blocker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.list(texts{"add": "a", "find": "f"})
	if err := os.Remove(blocker); err != nil {
		t.Fatal(err)
	}
	later := texts{"add": "b", "find": "f", "wipe": "w"}
	w.list(later)
	w.tool.Runtime.Pin = manifest.PinHold
	w.restart()
	w.holds("after the folder is back", later, states{"add": pins.Changed, "wipe": pins.New})
}

// SPEC N4: a process that only looks accepts nothing for others.
func TestN4AFrozenStoreWritesNothing(t *testing.T) {
	w := newWorld(t, manifest.PinHold)
	w.Store = pins.NewStore(w.dir, slog.New(slog.DiscardHandler))
	w.Freeze()
	w.of = w.Of(w.tool)
	w.holds("the first list", texts{"add": "a"}, states{})
	w.holds("changed", texts{"add": "b"}, states{"add": pins.Changed})
	if _, err := w.Approve("notes", "", "uid 0"); !errors.Is(err, pins.ErrRefused) {
		t.Error("it has accepted something", err)
	}
	if _, err := os.Stat(w.dir); err == nil {
		t.Error("it has made the folder")
	}
}

// SPEC N4: a manifest that moves within its folder, or has another version, has the pins that it had. Another folder,
// and another name, has others.
func TestN4WhoseTheyAre(t *testing.T) {
	dir := t.TempDir()
	source := func(path string) manifest.Tool {
		tool := manifest.Tool{Name: "notes", Kind: manifest.Capsule, Source: filepath.Join(dir, path)}
		tool.Runtime.Pin = manifest.PinHold
		return tool
	}
	s := pins.NewStore("", slog.New(slog.DiscardHandler))
	first := s.Of(source("a.yaml"))
	if s.Of(source("b.yaml")) != first || s.Of(source("notes/1.0.0/tool.yaml")) == nil {
		t.Error("another name of the file is another provider")
	}
	if s.Of(source("notes/1.0.0/tool.yaml")) != s.Of(source("notes/1.1.0/tool.yaml")) {
		t.Error("another version is another provider")
	}
	other := source("a.yaml")
	other.Name = "other"
	if s.Of(other) == first || s.Of(source("sub/a.yaml")) == first {
		t.Error("another provider has the same pins")
	}
	for _, mod := range []func(*manifest.Tool){
		func(t *manifest.Tool) { t.Runtime.Pin = manifest.PinOff },
		func(t *manifest.Tool) { t.Runtime.Pin = "" },
		func(t *manifest.Tool) { t.Runtime.Declared = true },
		func(t *manifest.Tool) { t.Kind = manifest.Simple },
	} {
		tool := source("a.yaml")
		if mod(&tool); s.Of(tool) != nil {
			t.Errorf("%+v is pinned", tool.Runtime)
		}
	}
	var none *pins.Store
	if none.Of(source("a.yaml")) != nil || none.Problems() != nil || none.All(nil) != nil {
		t.Error("a nil Store pins something")
	}
}

// SPEC N4: the pins of a manifest that is gone are kept for 90 days after it was last served.
func TestN4PinsOfWhatIsGoneAreCollected(t *testing.T) {
	for _, c := range []struct {
		name   string
		days   int
		exists bool
		served bool
		kept   bool
	}{
		{"gone for long, and served until now", 500, false, false, true},
		{"gone for long", 91, false, false, false},
		{"gone", 89, false, false, true},
		{"not served for long, and not gone", 500, true, false, true},
		{"served", 500, false, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, manifest.PinHold)
			w.list(texts{"add": "a"})
			path := w.file()
			old := time.Now().AddDate(0, 0, -c.days)
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
			if c.exists {
				if err := os.WriteFile(w.tool.Source, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if c.name != "gone for long, and served until now" {
				w.restart()
				w.Store = pins.NewStore(w.dir, slog.New(slog.DiscardHandler)) // one that has not served it
			}
			var tools []manifest.Tool
			if c.served {
				tools = append(tools, w.tool)
			}
			w.Prune(tools)
			info, err := os.Stat(path)
			if (err == nil) != c.kept {
				t.Fatalf("%v, want it kept: %v", err, c.kept)
			}
			if locks, _ := filepath.Glob(filepath.Join(w.dir, "*.lock")); (len(locks) == 1) != c.kept {
				t.Errorf("there are the locks %q", locks)
			}
			if c.served && time.Since(info.ModTime()) > time.Hour {
				t.Error("it is not noted that it is served")
			}
			if w.of = w.Of(w.tool); c.kept { // it is served again
				w.holds("afterwards", texts{"add": "b"}, states{"add": pins.Changed})
			}
		})
	}
}

// SPEC N4: what refuses a call says what the operator does.
func TestN4RefusalsSayWhatToDo(t *testing.T) {
	w := newWorld(t, manifest.PinHold)
	w.list(texts{"add": "a"})
	changed := map[string]*mcp.Tool{"add": {Name: "add"}, "wipe": {Name: "wipe"}}
	held := w.of.Compare(changed, nil)
	for own, want := range map[string]string{
		"add":  "the definition of the tool notes__add has changed since it was accepted; the operator looks at it with orla pins diff notes__add, and accepts it with orla pins approve notes__add",
		"wipe": "the tool notes__wipe is new since the list of notes was accepted;",
	} {
		err := held.Refusal(pins.Tool, own, "notes__"+own)
		if fault.CodeOf(err) != fault.PermissionDenied || !strings.HasPrefix(fault.From(err).Reason, "tool_permission_denied: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", own, err)
		}
	}
	if err := os.WriteFile(w.file(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	held = w.of.Compare(changed, nil)
	if err := held.Refusal(pins.Tool, "add", "notes__add"); held.Unusable() == nil || !strings.Contains(err.Error(), "orla status") {
		t.Errorf("%v, %v", held.Unusable(), err)
	}
}

// SPEC N4: the digest of one definition is good for it alone, and that of a provider for all that it lists.
func TestN4DigestsOfApprovals(t *testing.T) {
	w := newWorld(t, manifest.PinHold)
	w.list(texts{"a": "1", "b": "1"})
	w.list(texts{"a": "2", "b": "2"})
	digest := func(name string) string {
		t.Helper()
		v, err := w.Look(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		return v.Digest.String()
	}
	all, one := digest("notes"), digest("notes__a")
	for name, bad := range map[string][]string{"notes": {one, "sha256:", "x"}, "notes__a": {all, digest("notes__b"), one[:30]}} {
		for _, d := range bad {
			if _, err := w.Approve(name, d, "uid 0"); !errors.Is(err, pins.ErrOutdated) {
				t.Errorf("%s was approved with %s: %v", name, d, err)
			}
		}
	}
	if _, err := w.Approve("notes__a", one, "uid 0"); err != nil {
		t.Error(err)
	}
	if all == digest("notes") {
		t.Error("the digest of all is the same when there is less")
	}
	if _, err := w.Approve("notes", digest("notes__b"), "uid 0"); err != nil { // the only one that is left
		t.Error(err)
	}
	w.holds("afterwards", texts{"a": "2", "b": "2"}, states{})
}

// SPEC N2, N4: nobody waits for the pins of another provider, which may be many.
func TestN2NobodyWaitsForThePinsOfAnother(t *testing.T) {
	w := newWorld(t, manifest.PinHold)
	other := w.tool
	other.Name = "other"
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w.list(texts{"a": "1"})
	locks, err := filepath.Glob(filepath.Join(w.dir, "*.lock"))
	if err != nil || len(locks) != 1 {
		t.Fatalf("%q, %v", locks, err)
	}
	held, err := os.OpenFile(locks[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	w.of = w.Of(other)
	w.holds("while the pins of another are written", texts{"b": "1"}, nil)
	if w.of.Troubled() {
		t.Error("they are not stored")
	}
}
