package program

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// installs is a runtime.setup that installs the version of acme that requirements.txt names, once somebody has written
// to the pipe GATE.
const installs = `setup:
  - sh
  - -c
  - |
    echo looking for acme
    cat 'GATE' >/dev/null
    if grep -q broken requirements.txt; then echo there is no such version >&2; exit 1; fi
    python3 -m venv --without-pip "$ORLA_ENV" && sed 's/.*==/version = /' requirements.txt >"$(echo "$ORLA_ENV"/lib/python3*/site-packages)/acme.py"
`

// needing is a capsule with dependencies.
type needing struct {
	*pack
	gate, runtime string
}

// newNeeding writes the capsule live, which answers with the version of acme, and the one in code.py.
func newNeeding(t *testing.T, tools, runtime string) *needing {
	t.Helper()
	n := &needing{gate: filepath.Join(t.TempDir(), "gate")}
	if err := syscall.Mkfifo(n.gate, 0o600); err != nil {
		t.Fatal(err)
	}
	main := strings.NewReplacer("#!PYTHON -SEB", "#!/usr/bin/env python3", "NAME", "live").Replace(capsuleMain)
	n.runtime = strings.ReplaceAll(installs, "GATE", n.gate) + runtime
	n.pack = newPack(t, tools, "live", n.runtime, map[string]string{
		"main.py": main, "requirements.txt": "acme==1\n", "mine.py": "version = 1\n",
		"answer.py": "import acme, mine\n" + says(`"%s %s" % (acme.version, mine.version)`),
	})
	return n
}

// open lets one build go on.
func (n *needing) open() {
	n.t.Helper()
	if err := os.WriteFile(n.gate, []byte("x"), 0); err != nil {
		n.t.Fatal(err)
	}
}

// serveNeeding serves with a Python in PATH that is not a script that looks for one.
func serveNeeding(t *testing.T, tools, state string) *running {
	t.Helper()
	interpreter, err := python()
	if err != nil {
		needs.Missing(t, "no python3: %v", err)
	}
	return serveCapsules(t, tools, patient+"state_dir: "+state+"\n", "PATH="+filepath.Dir(interpreter)+":"+os.Getenv("PATH"))
}

// SPEC R4: packages are installed before the first start, which calls wait for. A change of the declared dependencies
// and of code together is one reload, and the old process serves until the new packages are there. A failed
// install leaves the process, which is started again with the packages that it had.
func TestR4TheLifeOfACapsuleWithDependencies(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	n := newNeeding(t, tools, "hot_load: {debounce_ms: 500}\n") // on a busy machine two files are not saved within 20 ms
	o := serveNeeding(t, tools, t.TempDir())
	log := o.follow()
	answered := make(chan string, 1)
	go func() { answered <- o.mustCall("live") }()
	log.next("installing dependencies", nil)
	n.open()
	log.next("state", is("live", "READY"))
	if got := <-answered; got != "1 1" {
		t.Errorf("the first answer is %q", got)
	}

	load, stop := press(t, []caller{o.session("live"), o.session("live")}, lossless)
	n.save("mine.py", "version = 2\n")
	n.save("requirements.txt", "acme==2\n")
	log.next("installing dependencies", nil)
	if got := o.mustCall("live"); got != "1 1" {
		t.Errorf("during the install it answers %q", got)
	}
	n.open()
	log.next("state", is("live", "RELOADING"))
	log.next("state", is("live", "READY"))
	if got := o.mustCall("live"); got != "2 2" {
		t.Errorf("after the install it answers %q", got)
	}
	stop()
	if reloads := o.count("state", is("live", "RELOADING")); reloads != 1 {
		t.Errorf("there were %d reloads", reloads)
	}
	if load.calls.Load() == 0 || load.failed.Load() > 0 {
		t.Errorf("%d calls were made during the install, %d failed", load.calls.Load(), load.failed.Load())
	}

	// A new manifest waits for its packages too.
	n.save("requirements.txt", "acme==3\n")
	n.manifest(n.runtime+"timeout: 29s\n", "mcp: {input_schema: {type: object}}")
	log.next("installing dependencies", func(l map[string]any) bool { return l["reason"] == "its manifest has changed" })
	if got := o.mustCall("live"); got != "2 2" {
		t.Errorf("during the install for a new manifest it answers %q", got)
	}
	n.open()
	log.next("reload", func(l map[string]any) bool { return l["reason"] == "dependencies are installed" })
	log.next("state", is("live", "READY"))
	if got := o.mustCall("live"); got != "3 2" {
		t.Errorf("with a new manifest it answers %q", got)
	}

	n.save("requirements.txt", "acme==broken\n")
	log.next("installing dependencies", nil)
	n.open()
	log.next("dependencies could not be installed; keeping the process", func(l map[string]any) bool {
		return strings.Contains(l["err"].(string), "there is no such version")
	})
	if got := o.mustCall("live"); got != "3 2" {
		t.Errorf("after a failed install it answers %q", got)
	}
	for _, pid := range n.pids() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	log.next("state", is("live", "CRASHED"))
	log.next("state", is("live", "READY"))
	if got := o.mustCall("live"); got != "3 2" {
		t.Errorf("after a failed install and a crash it answers %q", got)
	}
}

// SPEC R4: a hundred saves of declarations that cannot be installed: the same process answers after each of them.
func TestR4AHundredBrokenDeclarationsOfACapsule(t *testing.T) {
	needs.Time(t, "saves a hundred files, one after the other")
	t.Parallel()
	tools := t.TempDir()
	n := newNeeding(t, tools, "")
	n.manifest("setup: [sh, -c, 'if grep -q acme part-*; then exec cat /nowhere; fi; python3 -m venv --without-pip \"$ORLA_ENV\"']\n", "mcp: {input_schema: {type: object}}")
	n.save("answer.py", says(`"whole"`))
	const rounds, files = 100, 20 // a file that changes much oftener is left out
	included := "gadget\n"
	for file := range files {
		included += fmt.Sprintf("-r part-%d\n", file)
		n.save(fmt.Sprintf("part-%d", file), "# nothing\n")
	}
	n.save("requirements.txt", included)
	o := serveNeeding(t, tools, t.TempDir())
	log := o.follow()
	log.next("state", is("live", "READY"))
	before := n.pids()
	for round := range rounds {
		n.save(fmt.Sprintf("part-%d", round%files), fmt.Sprintf("acme==%d===\x00\n", round))
		log.next("dependencies could not be installed; keeping the process", nil)
		if got := o.mustCall("live"); got != "whole" {
			t.Fatalf("after %d rounds it answers %q", round, got)
		}
	}
	if now := n.pids(); len(now) != 1 || !slices.Equal(now, before) || o.count("state", is("live", "RELOADING")) > 0 {
		t.Errorf("processes %v became %v", before, now)
	}
}

// SPEC R4: the first install fails, which is a failed start with the installer's own words; and it is made again when the
// files change.
func TestR4AFirstInstallThatFails(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	n := newNeeding(t, tools, "restart: {max_failures: 1}\n")
	n.save("requirements.txt", "acme==broken\n")
	o := serveNeeding(t, tools, t.TempDir())
	log := o.follow()
	n.open()
	log.next("state", is("live", "CRASHED", "there is no such version"))
	log.next("state", is("live", "STOPPED"))
	if a, err := o.call("live", "{}"); err != nil || a.Result == nil || !a.Result.IsError || !strings.Contains(a.Result.Content[0].Text, "there is no such version") {
		t.Errorf("a call: %+v %v", a, err)
	}
	n.save("requirements.txt", "acme==3\n")
	log.next("state", is("live", "RELOADING", "installing dependencies"))
	n.open()
	log.next("state", is("live", "READY"))
	if got := o.mustCall("live"); got != "3 1" {
		t.Errorf("it answers %q", got)
	}
}

// SPEC R5: kill -9 during an install leaves nothing that is used, and nothing that runs. The next Orla installs again.
func TestR5AKillDuringAnInstall(t *testing.T) {
	t.Parallel()
	tools, state := t.TempDir(), t.TempDir()
	n := newNeeding(t, tools, "")
	for range needs.Rounds(1, 2) {
		o := serveNeeding(t, tools, state)
		o.waitLog("installing dependencies", func(l map[string]any) bool { return l["step"] != nil })
		parts := func() []string {
			found, _ := filepath.Glob(filepath.Join(state, "env", "*.part"))
			return found
		}
		testkit.Eventually(t, "a build has begun", func() bool { return len(parts()) == 1 })
		o.signal(syscall.SIGKILL)
		o.wait()
		testkit.Eventually(t, "the installer has ended", func() bool {
			f, err := os.OpenFile(n.gate, os.O_WRONLY|syscall.O_NONBLOCK, 0) // fails if nobody reads
			if err == nil {
				_ = f.Close()
			}
			return err != nil
		})
	}
	o := serveNeeding(t, tools, state)
	n.open()
	o.waitLog("state", is("live", "READY"))
	if got := o.mustCall("live"); got != "1 1" {
		t.Errorf("it answers %q", got)
	}
	for _, pid := range n.pids() { // SPEC R3: no installer is left
		if line, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline")); !strings.HasPrefix(string(line), filepath.Join(state, "env")) {
			t.Errorf("the process runs as %q", line)
		}
	}
}

// SPEC R4: calls of a simple tool wait for its first install, and run with the old packages until the new ones are there.
// R3: a sandboxed tool sees its environment.
func TestR4SimpleToolsWithDependencies(t *testing.T) {
	t.Parallel()
	for name, isolation := range map[string]string{"plain": "none", "held": "sandboxed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tools, state := t.TempDir(), t.TempDir()
			gate := filepath.Join(t.TempDir(), "gate")
			if err := syscall.Mkfifo(gate, 0o600); err != nil {
				t.Fatal(err)
			}
			env := []string{}
			if isolation == "sandboxed" { // which has no other Python
				needs.Programs(t, "/usr/bin/python3")
				env = append(env, "PATH=/usr/bin:/bin")
			}
			body := "#!/usr/bin/env python3\n# /// tool\n# description: x\n# isolation_mode: " + isolation + "\n"
			for line := range strings.Lines(strings.ReplaceAll(installs, "GATE", gate)) {
				body += "# " + line
			}
			require := func(version string) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(tools, "requirements.txt"), []byte("acme=="+version+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			require("1")
			testkit.WriteTool(t, tools, "tool.py", body+"# ///\nimport acme\nprint(acme.version)\n")
			if isolation == "sandboxed" {
				testkit.WriteTool(t, tools, "probe.sh", "#!/bin/sh\n# /// tool\n# isolation_mode: sandboxed\n# ///\n")
			}
			o := serveCapsules(t, tools, patient+"state_dir: "+state+"\n", env...)
			if isolation == "sandboxed" {
				if a, err := o.call("probe", "{}"); err != nil || a.Result == nil || a.Result.IsError {
					needs.Missing(t, "no sandbox can be made here: %+v %v", a, err)
				}
			}
			log := o.follow()
			open := func() {
				t.Helper()
				if err := os.WriteFile(gate, []byte("x"), 0); err != nil {
					t.Fatal(err)
				}
			}
			version := func() string { return strings.TrimSpace(o.mustCall("tool")) }
			answered := make(chan string, 1)
			go func() { answered <- version() }()
			log.next("installing dependencies", nil)
			open()
			if got := <-answered; got != "1" {
				t.Errorf("the first answer is %q", got)
			}
			for _, next := range []string{"2", "broken"} {
				before := version()
				require(next)
				if got := version(); got != before {
					t.Errorf("before %s is installed it answers %q", next, got)
				}
				log.next("installing dependencies", nil)
				open()
				if next != "broken" {
					testkit.Eventually(t, "the new version answers", func() bool { return version() == next })
					continue
				}
				log.next("dependencies were not installed", nil)
				if got := version(); got != before {
					t.Errorf("after a failed install it answers %q", got)
				}
			}
		})
	}
}

// SPEC R4: an install ends with a call that no server makes, so the call waits for it beyond its timeout, and says why it failed.
func TestR4ACallWithoutAServerWaitsForTheInstall(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "python3")
	dir := t.TempDir()
	pack := func(name, setup string) {
		testkit.WriteTool(t, filepath.Join(dir, "tools", name), "main.py", "#!/usr/bin/env python3\nprint('answered')\n")
		testkit.WriteTool(t, filepath.Join(dir, "tools", name), "requirements.txt", "acme\n")
		testkit.WriteTool(t, filepath.Join(dir, "tools", name), "tool.yaml",
			"name: "+name+"\nversion: 1.0.0\ndescription: x\nentrypoint: main.py\nruntime:\n  timeout: 3s\n  setup: [sh, -c, 'sleep 4; "+setup+"']\n")
	}
	pack("late", `python3 -m venv --without-pip "$ORLA_ENV"`)
	pack("never", "echo it is not there; exit 1")
	if out, err := orla(t, dir, "call", "late"); err != nil || strings.TrimSpace(out) != "answered" {
		t.Errorf("late: %v\n%s", err, out)
	}
	if out, err := orla(t, dir, "call", "never"); err == nil || !strings.Contains(out, "never: dependencies could not be installed") {
		t.Errorf("never: %v\n%s", err, out)
	}
}

// SPEC R1, R2: orla validate and orla doctor say what tools need, and what is missing.
func TestR1WhatToolsNeed(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "python3", "node")
	dir := t.TempDir()
	tools := filepath.Join(dir, "tools")
	pack := func(name, entrypoint, interpreter, more string, files map[string]string) {
		t.Helper()
		testkit.WriteTool(t, filepath.Join(tools, name), "tool.yaml", "name: "+name+"\nversion: 1.0.0\ndescription: x\nentrypoint: "+entrypoint+"\n"+more)
		testkit.WriteTool(t, filepath.Join(tools, name), entrypoint, "#!/usr/bin/env "+interpreter+"\n")
		for file, text := range files {
			testkit.WriteTool(t, filepath.Join(tools, name), file, text)
		}
	}
	pack("project", "main.js", "node", "", map[string]string{"package.json": "{}", "pnpm-lock.yaml": ""})
	pack("unlocked", "main.js", "node", "", map[string]string{"package.json": `{"dependencies": {"acme": "1"}}`})
	pack("plainjs", "main.js", "node", "", map[string]string{"package.json": `{"name": "plainjs"}`})
	pack("broken", "main.py", "python3", "", map[string]string{"requirements.txt": "-r nowhere.txt\n"})
	pack("other", "main.py", "python3", "dependencies: [nosuchprogram, python>=3.99]\n", map[string]string{"requirements.txt": "acme\n"})
	pack("own", "main.py", "python3", "runtime: {setup: none}\n", map[string]string{"requirements.txt": "acme\n"})
	bin := filepath.Join(dir, "bin") // a PATH without uv and pnpm
	for _, program := range []string{"python3", "node"} {
		at, err := exec.LookPath(program)
		if err == nil && program == "python3" {
			at, err = python()
		}
		if err != nil {
			t.Fatal(err)
		}
		testkit.WriteTool(t, bin, program, "#!/bin/sh\nexec '"+at+"' \"$@\"\n")
	}
	orla := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(orlaBinary(t), args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir, "PATH="+bin+":/bin-that-is-not-there")
		out, _ := cmd.CombinedOutput() // both fail
		return string(out)
	}
	for _, want := range []string{
		"other needs the packages of requirements.txt, which python3 installs",
		"project needs the packages of pnpm-lock.yaml, which pnpm installs",
		"pnpm installs what pnpm-lock.yaml declares, and is not in PATH",
		"cannot read its dependencies", "nowhere.txt",
		"unlocked/package.json needs packages, and there is no lock of npm or pnpm next to it: run npm install there",
		"nosuchprogram is missing, and other needs nosuchprogram", "other needs python>=3.99",
	} {
		if out := orla("validate"); !strings.Contains(out, want) {
			t.Errorf("orla validate does not say %q:\n%s", want, out)
		}
	}
	if out := orla("validate"); strings.Contains(out, "plainjs") || strings.Count(out, "run npm install") != 1 {
		t.Errorf("orla validate warns of too much:\n%s", out)
	}
	if out := orla("validate"); strings.Contains(out, "own needs") {
		t.Errorf("a tool with setup: none needs something:\n%s", out)
	}
	out := orla("doctor")
	for _, want := range []string{"pnpm is missing, and installs the packages of project", "fix: npm install -g pnpm", "nosuchprogram is missing", "installs the packages of other", "git is missing, and orla install fetches packages with it"} {
		if !strings.Contains(out, want) {
			t.Errorf("orla doctor does not say %q:\n%s", want, out)
		}
	}
}

// SPEC R4: a caller who waits for the packages of a capsule gets the lines of the installer as progress.
func TestR4ProgressWhilePackagesAreInstalled(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	n := newNeeding(t, tools, "")
	o := serveNeeding(t, tools, t.TempDir())
	progress := make(chan string, 64)
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			select {
			case progress <- r.Params.Message:
			default: // nobody reads so many
			}
		},
	})
	session, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: o.url}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }() // nothing depends on it
	answered := make(chan error, 1)
	go func() {
		params := &mcp.CallToolParams{Name: "live", Arguments: map[string]any{}}
		params.SetProgressToken("mine")
		_, err := session.CallTool(t.Context(), params)
		answered <- err
	}()
	for {
		select {
		case message := <-progress:
			if message != "installing dependencies: looking for acme" {
				continue
			}
		case err := <-answered:
			t.Fatalf("it was answered before the install: %v", err)
		}
		break
	}
	n.open()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// SPEC R1: a tool is not started while a program is missing that it requires. The failed start says which one, and how to
// install it.
func TestR1AMissingProgramIsTheReason(t *testing.T) {
	t.Parallel()
	dir, bin := t.TempDir(), t.TempDir()
	tools := filepath.Join(dir, "tools")
	for name, runtime := range map[string]string{"plain": "{}", "lives": "{mode: capsule, restart: {max_failures: 1}}"} {
		testkit.WriteTool(t, filepath.Join(tools, name), "tool.yaml", "name: "+name+"\nversion: 1.0.0\ndescription: x\nentrypoint: run\ndependencies: [git-of-tests]\nmcp: {input_schema: {}}\nruntime: "+runtime+"\n")
		testkit.WriteTool(t, filepath.Join(tools, name), "run", strings.NewReplacer("VERSION", "1.0.0", `"name":"say"`, `"name":"lives"`).Replace(shCapsule))
	}
	testkit.WriteTool(t, filepath.Join(tools, "plain"), "run", "#!/bin/sh\necho runs\n")
	call := func(name string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), orlaBinary(t), "call", name, "--socket", "none")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir, "PATH="+bin+":/usr/bin:/bin")
		out, _ := cmd.CombinedOutput() // some are to fail
		return string(out)
	}
	for _, name := range []string{"plain", "lives"} {
		if out := call(name); !strings.Contains(out, "git-of-tests is missing, and "+name+" needs git-of-tests; install it") {
			t.Errorf("%s: %s", name, out)
		}
	}
	testkit.WriteTool(t, bin, "git-of-tests", "#!/bin/sh\n")
	if out := call("plain") + call("lives"); out != "runs\n1.0.0" {
		t.Errorf("with the program they print %q", out)
	}
}
