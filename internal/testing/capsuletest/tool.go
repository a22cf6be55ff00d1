package capsuletest

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/orla-project/orla/manifest"
)

// codeFile is the file of a package that stands for its code: what it holds when
// a process starts is in all that process's answers.
const codeFile = "code.txt"

// Broken is code that does not start: a process that serves exits with code 1,
// and a word on stderr, instead of saying hello.
const Broken = "broken"

// noRaceWait keeps a process with the race detector from waiting a second before
// it exits.
const noRaceWait = "atexit_sleep_ms=0"

// Tool returns the manifest of a capsule that plays a script: as manifest would
// read it from a package whose tool.yaml leaves out what can be left out, with
// what mods change. Its folder is a real one, and its own.
func Tool(t testing.TB, script string, mods ...func(*manifest.Tool)) manifest.Tool {
	t.Helper()
	if scripts[script] == nil {
		t.Fatalf("there is no script %q", script)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tool := manifest.Tool{
		Name:        "capsule",
		Kind:        manifest.Capsule,
		Path:        self,
		Dir:         dir,
		Source:      filepath.Join(dir, "tool.yaml"),
		Version:     "1.2.3",
		Description: "plays the script " + script,
		InputSchema: json.RawMessage(`{"type":"object"}`),
		Run: manifest.Run{
			Env:       map[string]string{scriptVar: script, "GORACE": noRaceWait},
			Arguments: manifest.ArgumentsBoth,
			Output:    manifest.OutputText,
		},
		Runtime: manifest.Runtime{
			Handshake:      manifest.HandshakeHello,
			Protocol:       manifest.ProtocolAuto,
			Start:          manifest.StartEager,
			StartupTimeout: 5 * time.Second,
			Drain:          5 * time.Second,
			StopGrace:      5 * time.Second,
			HotLoad:        manifest.HotLoad{Watch: []string{"./"}, Mode: manifest.HotLoadRestart, Debounce: 100 * time.Millisecond},
			Restart: manifest.Restart{
				Initial: 500 * time.Millisecond, Max: 30 * time.Second, MaxFailures: 8, ResetAfter: 30 * time.Second,
			},
		},
	}
	for _, mod := range mods {
		mod(&tool)
	}
	tool.Run.Env = maps.Clone(tool.Run.Env)
	tool.Run.Env[scriptVar+"_NAME"] = tool.Name
	tool.Run.Env[scriptVar+"_VERSION"] = tool.Version
	for name, text := range map[string]string{codeFile: "1", "tool.yaml": "# the test has made the manifest of this package\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return tool
}

// Set sets a parameter of the script.
func Set(name, value string) func(*manifest.Tool) {
	return func(tool *manifest.Tool) { tool.Run.Env[scriptVar+"_"+name] = value }
}

// SetInt sets a parameter of the script that is a number.
func SetInt(name string, value int) func(*manifest.Tool) { return Set(name, strconv.Itoa(value)) }

// Quick makes all pauses of a capsule short, and its restarts endless.
func Quick(tool *manifest.Tool) {
	tool.Runtime.StopGrace = 200 * time.Millisecond
	tool.Runtime.HotLoad.Debounce = 5 * time.Millisecond
	tool.Runtime.Restart = manifest.Restart{
		Initial: time.Millisecond, Max: 5 * time.Millisecond, MaxFailures: 0, ResetAfter: time.Millisecond,
	}
}

// Alone makes every process of the capsule check that no other is alive, in the
// kernel's own eyes. Overlapped tells what they found.
func Alone(t testing.TB) func(*manifest.Tool) {
	t.Helper()
	return Set("LOCK", filepath.Join(t.TempDir(), "lock"))
}

// Overlapped reports whether two processes of a capsule that is Alone were alive
// at once.
func Overlapped(tool manifest.Tool) bool {
	lock := tool.Run.Env[scriptVar+"_LOCK"]
	_, err := os.Stat(lock + overlapSuffix)
	return lock == "" || err == nil
}

// Save writes the code of a capsule's package as editors do: to a new file, which
// then takes the place of the old one.
func Save(t testing.TB, tool manifest.Tool, code string) {
	t.Helper()
	fresh := filepath.Join(tool.Dir, codeFile+".tmp")
	if err := os.WriteFile(fresh, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, filepath.Join(tool.Dir, codeFile)); err != nil {
		t.Fatal(err)
	}
}

// Read returns what the text of a usual answer says.
func Read(t testing.TB, text string) Answer {
	t.Helper()
	var answer Answer
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("no answer of a script: %v: %.200q", err, text)
	}
	return answer
}
