package main

import (
	"encoding/json"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/needs"
)

// everythingServer is the conformance server of the official Go SDK.
const everythingServer = "github.com/modelcontextprotocol/go-sdk/conformance/everything-server"

// differs are the checks that a server passes alone and not behind Orla, by the beginning
// of what the suite says, each with the reason.
var differs = map[string]string{
	"Mutated the tool list but no notifications/tools/list_changed arrived": "the server adds the same tool each time it is told to; Orla tells clients of a list only when it has become another",
}

// SPEC G2, D8: behind Orla an official server passes each scenario of 2026-07-28 that
// it passes alone.
func TestG2ConformanceBehindOrla(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite waits a minute for what never comes")
	}
	suite := needs.Conformance(t)
	needs.Programs(t, "go")
	server := filepath.Join(t.TempDir(), "server")
	if out, err := exec.Command("go", "build", "-o", server, everythingServer).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", everythingServer, err, out)
	}
	dir := t.TempDir()
	writeTool(t, filepath.Join(dir, "server"), "tool.yaml", "name: server\nversion: 1.0.0\ndescription: The conformance server.\nentrypoint: server\n"+
		"runtime:\n  mode: capsule\n  handshake: mcp\n  tool_prefix: \"\"\n  hot_load: {watch: []}\n")
	if err := os.Link(server, filepath.Join(dir, "server", "server")); err != nil {
		t.Fatal(err)
	}
	o := serveOrla(t, dir)
	o.waitListed("test_simple_text")
	alone := suiteOf(t, suite, "http://"+serveEverything(t, server)+"/")
	all := suiteOf(t, suite, o.url)
	const some = 35
	if len(alone) < some || len(all) != len(alone) {
		t.Fatalf("%d scenarios ran alone and %d behind Orla", len(alone), len(all))
	}
	for scenario, faults := range lost(alone, all) {
		for _, fault := range faults {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(differs)), func(known string) bool { return strings.HasPrefix(fault, known) }) {
				t.Errorf("%s is lost: %s", scenario, fault)
			}
		}
	}
}

// lost are the scenarios that failed behind Orla and not alone, of those that were run.
func lost(alone, behind map[string][]string) map[string][]string {
	lost := maps.Clone(behind)
	maps.DeleteFunc(lost, func(scenario string, faults []string) bool { return len(faults) == 0 || len(alone[scenario]) > 0 })
	return lost
}

// serveEverything serves the conformance server over HTTP until the test is over.
func serveEverything(t *testing.T, program string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = l.Addr().String()
	_ = l.Close() // it is for its port
	cmd := exec.Command(program, "-http", addr)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	eventually(t, "the server listens", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return addr
}

// suiteOf runs the suite's scenarios of 2026-07-28, and returns what failed
// of each.
func suiteOf(t *testing.T, suite, url string) map[string][]string {
	t.Helper()
	results := t.TempDir()
	cmd := exec.Command("node", filepath.Join(suite, "suite.mjs"), "all", results, url)
	cmd.Env = append(os.Environ(), "REVISIONS=2026-07-28")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the suite: %v\n%s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(results, "2026-07-28", "*", "checks.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the suite left no results: %v", err)
	}
	named := regexp.MustCompile(`/server-([^/]+?)-\d{4}-\d\d-\d\dT[^/]*/checks\.json$`)
	failed := map[string][]string{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var checks []struct{ ID, Status, ErrorMessage string }
		if err := json.Unmarshal(raw, &checks); err != nil {
			t.Fatal(err)
		}
		scenario := named.FindStringSubmatch(file)[1]
		failed[scenario] = nil
		for _, c := range checks {
			if slices.Contains([]string{"FAILURE", "WARNING"}, c.Status) {
				failed[scenario] = append(failed[scenario], c.ErrorMessage)
			}
		}
	}
	return failed
}
