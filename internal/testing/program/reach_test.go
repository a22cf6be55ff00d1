package program

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/containertest"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// reachMode is a column of the table: a tool, and the Orla that has it.
type reachMode struct {
	title string
	tool  string
	of    *running
}

// What one program reached in each mode is what docs/ISOLATION.md says: the table
// there is what it printed (issue 6). UPDATE=1 writes it anew.
func TestT7WhatIsReachedInEachModeIsAsDocumented(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		needs.Missing(t, "the table is that of an Orla that is root")
	}
	podman := podmanOf(t)
	tools := t.TempDir()
	if err := os.Chmod(filepath.Dir(tools), 0o755); err != nil { // others look into it
		t.Fatal(err)
	}
	buildReach(t, tools)
	given := setTargets(t)

	home := t.TempDir()
	given["home"] = testkit.WriteTool(t, home, "private", "key\n")
	serve := func(backend string) *running {
		o := startPrepared(t, t.TempDir(), func(cmd *exec.Cmd) {
			cmd.Env = append(append(os.Environ(), podman.Environ...), "HOME="+home, "REACH_PLANTED=here")
		}, orlaBinary(t), "--tools-dir", tools, "--port", "0", "--sandbox-backend", backend, "--tool-container-engine", "podman", "--tool-container-image", containertest.Image)
		o.url, _ = o.waitLog("serving", nil)["url"].(string)
		return o
	}
	native, contained := serve("native"), serve("container")
	modes := []reachMode{
		{"`none`", "none", native},
		{"`sandboxed`, native", "sandboxed", native},
		{"`sandboxed`, container", "sandboxed", contained},
		{"`container`", "container", contained},
		{"`wasm`", "wasm", native},
	}
	reached := make([]map[string]string, len(modes))
	var order []string
	for i, mode := range modes {
		given["orla"] = mode.of.cmd.Process.Pid
		reached[i], order = mode.of.reach(mode.tool, given)
	}
	table := "| one program, which … |"
	for _, mode := range modes {
		table += " " + mode.title + " |"
	}
	table += "\n|---|" + strings.Repeat("---|", len(modes)) + "\n"
	for _, what := range order {
		table += "| " + what + " |"
		for i := range modes {
			table += " " + reached[i][what] + " |"
		}
		table += "\n"
	}
	compareTable(t, filepath.Join("..", "..", "..", "docs", "ISOLATION.md"), table)
}

// reach calls the program, and again for each thing that may end it: then it
// could not. It returns what it could, and the order in which it says so.
func (o *running) reach(tool string, given map[string]any) (could map[string]string, order []string) {
	o.t.Helper()
	could = map[string]string{}
	ask := func(only string) (text string, failed bool) {
		given["only"] = only
		args, err := json.Marshal(given)
		if err != nil {
			o.t.Fatal(err)
		}
		a, err := o.call(tool, string(args))
		if err != nil || a.Result == nil || len(a.Result.Content) == 0 {
			o.t.Fatalf("%s: %+v, %v", tool, a, err)
		}
		return a.Result.Content[0].Text, a.Result.IsError
	}
	text, failed := ask("")
	if failed {
		o.t.Fatalf("%s: %s", tool, text)
	}
	for line := range strings.Lines(text) {
		what, answer, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue
		}
		if answer = strings.TrimSpace(answer); answer == "" {
			text, failed := ask(what)
			if answer = "no"; !failed {
				answer = strings.TrimSpace(strings.TrimPrefix(text, what+":"))
			}
		}
		could[what] = answer
		order = append(order, what)
	}
	return could, order
}

// buildReach makes the program a tool in each mode.
func buildReach(t *testing.T, tools string) {
	t.Helper()
	build := func(to string, environ ...string) {
		cmd := exec.Command("go", "build", "-trimpath", "-o", to, "./testdata/reach")
		cmd.Env = append(os.Environ(), environ...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	build(filepath.Join(tools, "none", "reach"), "CGO_ENABLED=0")
	build(filepath.Join(tools, "reach.wasm"), "GOOS=wasip1", "GOARCH=wasm")
	for _, mode := range []string{"none", "sandboxed", "container"} {
		dir := filepath.Join(tools, mode)
		program := testkit.ReadFile(t, filepath.Join(tools, "none", "reach"))
		testkit.WriteTool(t, dir, "reach", program)
		if err := os.Chmod(testkit.WriteTool(t, dir, "setuid", program), 0o755|os.ModeSetuid); err != nil {
			t.Fatal(err)
		}
		testkit.WriteTool(t, dir, "tool.yaml", fmt.Sprintf("name: %s\nversion: 1.0.0\ndescription: Tries what it can.\nentrypoint: reach\nruntime: {isolation_mode: %s, arguments: stdin}\n", mode, mode))
	}
	testkit.WriteTool(t, tools, "wasm.yaml", `apiVersion: orloj.dev/v1
kind: Tool
metadata: {name: wasm}
spec:
  type: wasm
  wasm: {module: reach.wasm, enable_wasi: true, fuel: 20000000000}
  runtime: {timeout: 2m} # it is compiled at its first call
`)
}

// setTargets makes what the program tries to reach on this machine.
func setTargets(t *testing.T) map[string]any {
	t.Helper()
	answers := func(conn net.Conn) {
		_, _ = io.CopyN(conn, conn, 1) // it may have hung up
		_ = conn.Close()
	}
	listen := func(network, address string) string {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		over := make(chan struct{})
		t.Cleanup(func() { _ = l.Close(); <-over })
		go func() {
			defer close(over)
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				answers(conn)
			}
		}()
		return l.Addr().String()
	}
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	t.Cleanup(func() { _ = packets.Close(); <-over })
	go func() {
		defer close(over)
		buf := make([]byte, 16)
		for {
			n, from, err := packets.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = packets.WriteTo(buf[:n], from) // it may have gone
		}
	}()
	digest := func(path string) string {
		sum := sha256.Sum256([]byte(testkit.ReadFile(t, path)))
		return hex.EncodeToString(sum[:])
	}
	tmp, err := os.CreateTemp("/tmp", "orla-reach-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(tmp.Name()) })
	if _, err := tmp.WriteString("here\n"); err != nil {
		t.Fatal(err)
	}
	if err := tmp.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(tmp.Name(), 0o644); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("orla-reach-%d", os.Getpid())
	listen("unix", "@"+name)
	return map[string]any{
		"passwd": digest("/etc/passwd"), "shadow": digest("/etc/shadow"), "tmp": tmp.Name(),
		"tcp": listen("tcp", "127.0.0.1:0"), "udp": packets.LocalAddr().String(), "unix": name, "variable": "REACH_PLANTED",
	}
}

// The markers of a table that a test writes.
const (
	reachBegin = "<!-- reach: begin -->\n"
	reachEnd   = "<!-- reach: end -->\n"
)

// compareTable wants a document to have a table between the markers.
func compareTable(t *testing.T, path, table string) {
	t.Helper()
	text := []byte(testkit.ReadFile(t, path))
	head, rest, begins := bytes.Cut(text, []byte(reachBegin))
	shown, tail, ends := bytes.Cut(rest, []byte(reachEnd))
	switch {
	case !begins || !ends:
		t.Fatalf("%s has no markers for the table", path)
	case string(shown) == table:
	case os.Getenv("UPDATE") != "":
		whole := string(head) + reachBegin + table + reachEnd + string(tail)
		if err := os.WriteFile(path, []byte(whole), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("what was reached:\n%s\n%s says:\n%s", table, path, shown)
	}
}
