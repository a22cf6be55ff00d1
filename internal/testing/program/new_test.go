package program

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// orla runs the program in a folder and returns what it prints.
func orla(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(orlaBinary(t), args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "GOFLAGS=-buildvcs=false")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// templateLanguages are the languages of orla new that this machine runs.
func templateLanguages(t *testing.T) []string {
	t.Helper()
	list := []string{"python", "node", "go", "sh"}
	if exec.CommandContext(t.Context(), "node", "-e", "process.exit(process.features.typescript ? 0 : 1)").Run() == nil {
		return append(list, "typescript")
	}
	t.Log("without TypeScript, which this Node does not run")
	return list
}

// SPEC J1: orla new makes a tool in TypeScript only if the Node that is there runs it.
func TestJ1TypeScriptNeedsANewNode(t *testing.T) {
	t.Parallel()
	for version, fits := range map[string]bool{"v20.20.2": false, "v22.17.1": false, "v22.18.0": true, "v23.5.0": false, "v23.6.0": true, "v24.0.0": true} {
		dir := t.TempDir()
		testkit.WriteTool(t, dir, "node", "#!/bin/sh\necho "+version+"\n")
		cmd := exec.CommandContext(t.Context(), orlaBinary(t), "new", "hello", "--lang", "typescript")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir, "PATH="+dir+":/usr/bin:/bin")
		out, err := cmd.CombinedOutput()
		_, made := os.Stat(filepath.Join(dir, "tools", "hello.mts"))
		if (err == nil) != fits || (made == nil) != fits || !fits && !strings.Contains(string(out), "a tool in TypeScript needs node>=22.18") {
			t.Errorf("with Node %s: %v %s", version, err, out)
		}
	}
}

// A new tool is in order, is served as it comes, answers, and is reloaded as it
// is edited (SPEC J1).
func TestNewToolsAnswerAndReload(t *testing.T) {
	t.Parallel()
	needs.Time(t, "compiles tools")
	needs.Programs(t, "python3", "node", "go", "jq")
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "tools"), 0o755); err != nil {
		t.Fatal(err)
	}
	o := serveOrla(t, filepath.Join(dir, "tools"))
	type made struct{ tool, file, lang, kind string }
	var all []made
	for _, lang := range templateLanguages(t) {
		for _, kind := range []string{"simple", "capsule"} {
			name := kind + "-" + lang
			args := []string{"new", name, "--lang", lang}
			m := made{tool: name, lang: lang, kind: kind}
			if kind == "capsule" {
				args = append(args, "--capsule")
				m.tool += "__greet"
			}
			out, err := orla(t, dir, args...)
			if err != nil {
				t.Fatalf("orla %s: %v\n%s", strings.Join(args, " "), err, out)
			}
			if !strings.Contains(out, "Call it: orla call "+m.tool+" --arg name=Ada\n") {
				t.Errorf("orla %s does not say how to call it:\n%s", strings.Join(args, " "), out)
			}
			m.file, _, _ = strings.Cut(out, "\n")
			for line := range strings.Lines(out) {
				if base := filepath.Base(line); strings.HasPrefix(base, "main.") {
					m.file = strings.TrimSpace(line)
				}
			}
			all = append(all, m)
		}
	}
	if out, err := orla(t, dir, "validate"); err != nil || !strings.Contains(out, fmt.Sprintf("%d tools in order, 0 faults", len(all))) {
		t.Fatalf("orla validate: %v\n%s", err, out)
	}
	answers := func(m made, want string) {
		t.Helper()
		testkit.Eventually(t, m.tool+" answers "+want, func() bool {
			a, err := o.call(m.tool, `{"name":"Ada"}`)
			return err == nil && a.Result != nil && !a.Result.IsError && strings.TrimSpace(a.Result.Content[0].Text) == want
		})
	}
	for _, m := range all {
		answers(m, "Hello, Ada!")
	}
	for _, m := range all {
		file := filepath.Join(dir, m.file)
		testkit.WriteTool(t, filepath.Dir(file), filepath.Base(file), strings.Replace(testkit.ReadFile(t, file), "Hello", "Good day", 1))
	}
	for _, m := range all {
		answers(m, "Good day, Ada!")
	}
}

// New capsules say how far they are, and end a call that is cancelled.
func TestNewCapsulesTellProgressAndCancel(t *testing.T) {
	t.Parallel()
	needs.Time(t, "compiles tools")
	needs.Programs(t, "python3", "node", "go", "jq")
	for _, lang := range templateLanguages(t) {
		t.Run(lang, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if out, err := orla(t, dir, "new", "work", "--lang", lang, "--capsule"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			entry, _ := filepath.Glob(filepath.Join(dir, "tools", "work", map[string]string{"go": "run.*", "python": "main.*", "node": "main.*", "typescript": "main.*", "sh": "main.*"}[lang]))
			if len(entry) != 1 {
				t.Fatalf("its entrypoints are %q", entry)
			}
			cmd := exec.Command(entry[0])
			cmd.Dir = filepath.Dir(entry[0])
			cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false")
			cmd.Stderr = os.Stderr
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			over := time.AfterFunc(testkit.Patience, func() { _ = cmd.Process.Kill() }) // a test that waits in a read
			defer over.Stop()
			lines := bufio.NewScanner(out)
			next := func(part string) {
				t.Helper()
				over.Reset(testkit.Patience)
				for lines.Scan() {
					if !json.Valid(lines.Bytes()) {
						t.Errorf("it printed %q", lines.Text())
					}
					if strings.Contains(lines.Text(), part) {
						return
					}
				}
				t.Fatalf("it has not said %s", part)
			}
			say := func(message string) { fmt.Fprintln(in, message) }

			next(`"orla.hello"`)
			say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"count","arguments":{"to":3},"_meta":{"progressToken":1}}}`)
			next(`at 2`)
			next(`counted to 3`)
			say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"count","arguments":{"to":100000},"_meta":{"progressToken":2}}}`)
			next(`at 1`)
			say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
			say(`{"jsonrpc":"2.0","id":3,"method":"none"}`)
			next(`-32601`)
			if err := in.Close(); err != nil {
				t.Fatal(err)
			}
			for lines.Scan() {
				if strings.Contains(lines.Text(), "counted") {
					t.Errorf("a cancelled call is answered: %s", lines.Text())
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

// What people begin with is as the formatters have it.
func TestNewGoToolsAreFormatted(t *testing.T) {
	needs.Time(t, "compiles a tool")
	t.Parallel()
	needs.Programs(t, "gofmt", "go")
	dir := t.TempDir()
	for _, args := range [][]string{{"new", "one", "--lang", "go"}, {"new", "many", "--lang", "go", "--capsule"}} {
		if out, err := orla(t, dir, args...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if out, err := exec.Command("gofmt", "-l", dir).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("gofmt: %v: %s", err, out)
	}
	vet := exec.Command("go", "vet", ".")
	vet.Dir = filepath.Join(dir, "tools", "many")
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("go vet: %v\n%s", err, out)
	}
}
