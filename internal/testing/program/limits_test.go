package program

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// listening is a capsule that says hello and answers nothing.
const listening = "#!/bin/sh\nprintf '%s\\n' '" + `{"jsonrpc":"2.0","method":"orla.hello","params":{"name":"boxed","version":"1.0.0","capabilities":[]}}` + "'\nwhile read -r line; do :; done\n"

// SPEC-TOOLS 7.2, SPEC H2: the limits that are shown are those that held; a
// change of the operator's limits changes the tools that are isolated, and no
// others; who asks for more than is left is not served any more, alive or not.
func TestT72LimitsFollowTheConfiguration(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	held := func(name, more string) {
		testkit.WriteTool(t, tools, name+"/tool.yaml", "name: "+name+"\nversion: 1.0.0\ndescription: Held.\nentrypoint: main.sh\n"+more)
	}
	testkit.WriteTool(t, tools, "plain", "#!/bin/sh\necho here\n")
	held("script", "runtime: {isolation_mode: sandboxed}\n")
	testkit.WriteTool(t, tools, "script/main.sh", "#!/bin/sh\nid -u\n")
	held("boxed", "mcp: {input_schema: {type: object}}\nruntime: {mode: capsule, isolation_mode: sandboxed, resources: {memory: 100MiB}}\n")
	testkit.WriteTool(t, tools, "boxed/main.sh", listening)
	config := writeConfig(t, tools, "sandbox_backend: native\n")
	o := startOrla(t, t.TempDir(), "--config", config)
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	log := o.follow()

	if s := o.toolStatus("script"); s.Isolation != "sandboxed (native)" || s.Limits != "not yet called" {
		t.Errorf("before its first call: %q, %q", s.Isolation, s.Limits)
	}
	a, err := o.call("script", `{}`)
	if err != nil || a.Result == nil || len(a.Result.Content) == 0 {
		t.Fatalf("%+v, %v", a, err)
	}
	switch text := a.Result.Content[0].Text; {
	case a.Result.IsError && strings.Contains(text, "no sandbox can be had here"):
		needs.Missing(t, "%s", text)
	case a.Result.IsError || strings.TrimSpace(text) != "65532":
		t.Fatalf("it runs as %s", text)
	}
	log.next("state", is("boxed", "READY"))
	limits := func(tool, want string) {
		t.Helper()
		if s := o.toolStatus(tool); s.Limits != want {
			t.Errorf("%s: %q, want %q", tool, s.Limits, want)
		}
	}
	limits("script", "memory 128 MiB, cpus 0.5, pids 64")
	limits("boxed", "memory 100 MiB, cpus 0.5, pids 64")
	limits("plain", "")
	if page := o.mustOrla("status", "boxed"); !strings.Contains(page, "sandboxed (native)") || !strings.Contains(page, "memory 100 MiB") {
		t.Errorf("orla status boxed:\n%s", page)
	}
	if list := o.mustOrla("tools", "--config", config); !strings.Contains(list, "sandboxed (native)") {
		t.Errorf("orla tools:\n%s", list)
	}

	reload := func(more string) map[string]any {
		t.Helper()
		if err := os.WriteFile(config, []byte("tools_dir: "+tools+"\nport: 0\nsandbox_backend: native\n"+more), 0o644); err != nil {
			t.Fatal(err)
		}
		o.signal(syscall.SIGHUP)
		return log.next("reload", func(l map[string]any) bool { return l["reason"] == "SIGHUP" })
	}
	if l := reload("tool_container_pids_limit: 32\n"); l["changed"] != 2.0 || l["kept"] != 1.0 {
		t.Errorf("fewer processes: %v", l)
	}
	if got := o.mustCall("script"); strings.TrimSpace(got) != "65532" {
		t.Errorf("it runs as %s", got)
	}
	limits("script", "memory 128 MiB, cpus 0.5, pids 32")
	log.next("state", is("boxed", "READY"))
	if l := reload("tool_container_pids_limit: 32\ntool_container_networks: [host]\n"); l["changed"] != 0.0 {
		t.Errorf("networks: %v", l)
	}
	o.waitLog("the configuration isolates tools less than by default", nil)
	if l := reload("tool_container_memory: 64MiB\n"); l["removed"] != 1.0 {
		t.Errorf("less memory than a capsule asks for: %v", l)
	}
	o.waitLog("a tool is not served", func(l map[string]any) bool {
		return l["tool"] == "boxed" && strings.Contains(l["err"].(string), "tool_container_max_memory")
	})
	if held := o.status().Tools; len(held) != 2 {
		t.Errorf("it is there still: %+v", held)
	}
}
