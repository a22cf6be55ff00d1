package program

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/testing/containertest"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// cliResource declares a tool of type cli. cli and more are in flow style.
func cliResource(name, isolation, cli, more string) string {
	return fmt.Sprintf("---\napiVersion: orloj.dev/v1\nkind: Tool\nmetadata: {name: %s}\nspec: {type: cli, cli: {%s}, runtime: {isolation_mode: %s%s}}\n", name, cli, isolation, more)
}

// coded calls a tool through the whole program, and returns the text of its first
// block, and its code if it failed.
func (o *running) coded(tool, args string) (text, code string) {
	o.t.Helper()
	a, err := o.call(tool, args)
	switch {
	case err != nil:
		o.t.Fatal(err)
	case a.Error != nil:
		return a.Error.Message, "unsupported_tool"
	case len(a.Result.Content) == 0:
		o.t.Fatalf("%s: %+v", tool, a.Result)
	}
	code, _ = a.Result.Meta["tool_code"].(string)
	for _, block := range a.Result.Content {
		text += block.Text
	}
	return text, code
}

// SPEC-TOOLS 3.6, 6, 5.3: a command answers the calls of a real client as its file
// says: without a shell, nothing is interpreted, exit codes are tried again where they
// are listed, and a rotated secret is in the next call and in nothing that is shown.
func TestT36CommandsThroughTheWholeProgram(t *testing.T) {
	t.Parallel()
	tools, bin := t.TempDir(), t.TempDir()
	count, file := counting(t)
	flaky := testkit.WriteTool(t, bin, "flaky", "#!/bin/sh\n"+count+`if [ "$runs" -lt 3 ]; then echo "busy $runs" >&2; exit ${1:-75}; fi; echo done`+"\n")
	shown := testkit.WriteTool(t, bin, "shown", "#!/bin/sh\necho \"$TOKEN ${#TOKEN}\"; env >&2\n")
	retried := ", retry: {max_attempts: 3, backoff: 1ms}"
	testkit.WriteTool(t, tools, "tools.yaml",
		cliResource("say", "none", `command: printf, args: ["%s|", "{{.q}}", "{{.n}}"]`, "")+
			cliResource("flaky", "none", `command: `+flaky+`, retry_exit_codes: [75]`, retried)+
			cliResource("broken", "none", `command: `+flaky+`, args: ["3"], retry_exit_codes: [75]`, retried)+
			cliResource("shown", "none", `command: `+shown+`, output: both, env_from: [{name: TOKEN, secretRef: "k:token"}]`, "")+
			cliResource("forbidden", "none", "command: id", "")+
			cliResource("contained", "container", "command: id, image: alpine", ""))
	secretFile := func(value string) {
		text := "apiVersion: orloj.dev/v1\nkind: Secret\nmetadata: {name: k}\nspec: {stringData: {token: " + value + "}}\n"
		if err := os.Chmod(testkit.WriteTool(t, tools, "secret.yaml", text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	secretFile("planted-secret")
	config := writeConfig(t, tools, fmt.Sprintf("cli_allowed_commands: [printf, %s, %s]\ntool_container_engine: none\n", flaky, shown))
	o := startOrla(t, t.TempDir(), "--config", config)
	o.url, _ = o.waitLog("serving", nil)["url"].(string)

	const q = "a b; $(id) `id` * \\ ' \" -x\n&& rm"
	res, err := goClient(t, o).CallTool(t.Context(), &mcp.CallToolParams{Name: "say", Arguments: map[string]any{"q": q, "n": json.Number("12345678901234567890.50")}})
	if err != nil || res.IsError {
		t.Fatalf("%+v, %v", res, err)
	}
	if text, _ := res.Content[0].(*mcp.TextContent); text == nil || text.Text != q+"|12345678901234567890.50|" {
		t.Errorf("got %+v", res.Content[0])
	}
	for _, call := range []struct{ tool, args, text, code string }{
		{"say", `{"q":"--version"}`, "--name=VALUE", "invalid_input"},
		{"flaky", `{}`, "done", ""},
		{"broken", `{}`, "", ""}, // it is done by now
		{"forbidden", `{}`, "unknown tool", "unsupported_tool"},
		{"contained", `{}`, "tool_container_engine", "isolation_unavailable"},
		{"shown", `{}`, `"stdout":"[redacted] 14`, ""},
	} {
		if text, code := o.coded(call.tool, call.args); !strings.Contains(text, call.text) || code != call.code || strings.Contains(text, "planted") {
			t.Errorf("%s %s: %q %q, want %q %q", call.tool, call.args, text, code, call.text, call.code)
		}
	}
	if n := runs(t, file); n != 4 {
		t.Errorf("it ran %d times; want three of flaky and one of broken", n)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if text, code := o.coded("broken", `{}`); code != "execution_failed" || !strings.Contains(text, "exited with code 3") || !strings.Contains(text, "busy 1") || runs(t, file) != 1 {
		t.Errorf("broken: %q %q after %d runs", text, code, runs(t, file))
	}
	secretFile("planted-another")
	testkit.Eventually(t, "the new secret is in the next call", func() bool {
		text, _ := o.coded("shown", `{}`)
		return strings.Contains(text, "[redacted] 15")
	})

	// The operator allows it, and it is served.
	allowing := strings.Replace(testkit.ReadFile(t, config), "[printf,", "[id, printf,", 1)
	if err := os.WriteFile(config, []byte(allowing), 0o644); err != nil {
		t.Fatal(err)
	}
	o.signal(syscall.SIGHUP)
	o.waitListed("forbidden")
	if text, code := o.coded("forbidden", `{}`); !strings.HasPrefix(text, "uid=") || code != "" {
		t.Errorf("allowed: %q %q", text, code)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, line := range o.lines {
		if text := fmt.Sprint(line); strings.Contains(text, "planted") || strings.Contains(text, "busy") {
			t.Errorf("the log has what it must not: %s", text)
		}
	}
}

// SPEC-TOOLS 3.6: who checks a folder is told which command is not allowed, and by
// which key it would be.
func TestT36ACommandThatIsNotAllowedIsAProblemOfItsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.WriteTool(t, dir, "tools/id.yaml", cliResource("id", "none", "command: id", ""))
	out, err := orla(t, dir, "validate")
	if err == nil || !strings.Contains(out, "tools/id.yaml") || !strings.Contains(out, "cli_allowed_commands") || !strings.Contains(out, `"id"`) {
		t.Errorf("orla validate: %v\n%s", err, out)
	}
	if out, err = orla(t, dir, "validate", "--cli-allowed-commands", "id"); err != nil {
		t.Errorf("orla validate: %v\n%s", err, out)
	}
}

// SPEC-TOOLS 7.6: every kind of process may be held, is asked as any other, and
// has nothing of Orla's; an isolated capsule is reloaded as its files change.
func TestT76EveryKindOfProcessMayBeHeld(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	report := `echo "uid $(id -u) in $(pwd), sees $(ls), has ${PLANTED_VARIABLE:-nothing}"`
	testkit.WriteTool(t, tools, "script.sh", "#!/bin/sh\n# /// tool\n# isolation_mode: sandboxed\n# resources: {memory: 32MiB, pids: 16}\n# ///\n"+report+"\n")
	testkit.WriteTool(t, tools, "bin/report", "#!/bin/sh\n"+report+"; echo \"$1\"; cat\n")
	testkit.WriteTool(t, tools, "command.yaml", cliResource("command", "sandboxed", `command: ./bin/report, args: ["{{.q}}"], stdin_from_input: true, working_dir: bin`, ""))
	testkit.WriteTool(t, tools, "server/server.sh", "#!/bin/sh\n"+heldServer)
	testkit.WriteTool(t, tools, "server/hidden.yaml", "secret: hunter2\n")
	testkit.WriteTool(t, tools, "server/server.yaml", "apiVersion: orloj.dev/v1\nkind: McpServer\nmetadata: {name: server}\n"+
		"spec: {transport: stdio, command: sh, args: [server.sh, server], default_tool_runtime: {isolation_mode: sandboxed}}\n")
	pack := "name: capsule\nversion: 1.0.0\ndescription: Is held.\nentrypoint: main.sh\nruntime: {mode: capsule, handshake: mcp, args: [capsule], isolation_mode: sandboxed}\n"
	testkit.WriteTool(t, tools, "capsule/tool.yaml", pack)
	testkit.WriteTool(t, tools, "capsule/main.sh", "#!/bin/sh\n"+heldServer)
	o := serveOrla(t, tools, "PLANTED_VARIABLE=hunter2")
	if text, code := o.coded("script", `{}`); code == "isolation_unavailable" {
		needs.Missing(t, "no sandbox can be made here: %s", text)
	}
	held := "uid 65532 in "
	for _, call := range []struct{ tool, args, text string }{
		{"script", `{}`, held + "/tmp, sees " + strings.Split(tools, "/")[2] + ", has nothing"}, // the folder that it is in
		{"command", `{"q":"a; b"}`, held + filepath.Join(tools, "bin") + ", sees report, has nothing\na; b\n" + `{"q":"a; b"}`},
		{"server--where", `{}`, held + filepath.Join(tools, "server") + ", sees server.sh, has nothing"},
		{"where", `{}`, held + filepath.Join(tools, "capsule") + ", sees main.sh tool.yaml, has nothing"},
	} {
		o.waitListed(call.tool)
		if text, code := o.coded(call.tool, call.args); strings.TrimSpace(text) != strings.TrimSpace(call.text) || code != "" {
			t.Errorf("%s: %q %q\nwant %q", call.tool, text, code, call.text)
		}
	}
	log := o.follow()
	log.next("state", is("capsule", "READY"))
	testkit.WriteTool(t, filepath.Join(tools, "capsule"), "more.txt", "x")
	log.next("state", is("capsule", "RELOADING"))
	log.next("state", is("capsule", "READY"))
	if text, code := o.coded("where", `{}`); !strings.Contains(text, "sees main.sh more.txt tool.yaml") || code != "" {
		t.Errorf("after the reload: %q %q", text, code)
	}
}

// heldServer is an MCP server that says where it is.
const heldServer = `while IFS= read -r line; do
	id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
	case $line in
	*'"method":"initialize"'*) r='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"'$1'","version":"1.0.0"}}' ;;
	*'"method":"tools/list"'*) r='{"tools":[{"name":"where","inputSchema":{"type":"object"}}]}' ;;
	*'"method":"tools/call"'*) r='{"content":[{"type":"text","text":"uid '$(id -u)' in '$(pwd)', sees '$(echo $(ls))', has '${PLANTED_VARIABLE:-nothing}'"}]}' ;;
	*) r='{}' ;;
	esac
	[ -z "$id" ] || printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$r"
done
`

// SPEC-TOOLS 3.6, 7.3: the default of type cli. The command is the image's, and so is
// its PATH; it has what its file gives, in the folder of the image that the file
// names, and a secret that nobody else on the machine can read.
func TestT36ACommandInAContainer(t *testing.T) {
	t.Parallel()
	podman := podmanOf(t)
	tools := t.TempDir()
	script := `echo "uid $(id -u) in $(pwd), home $HOME, lang $LANG, a $A, token ${#TOKEN}, path ${PATH:+set}, orla ${ORLA_CALL_ID:-none}; $0 $1"; cat; exit $2`
	args := `command: sh, args: ["-c", ` + strconv.Quote(script) + `, zero, "{{.q}}", "{{.code}}"], image: "` + containertest.Image + `"`
	testkit.WriteTool(t, tools, "tools.yaml",
		cliResource("command", "container", args+`, stdin_from_input: true, working_dir: /bin, env: {A: "1 $(id)"}, env_from: [{name: TOKEN, secretRef: k}], retry_exit_codes: [75]`, "")+
			cliResource("sandboxed", "sandboxed", args, ""))
	secret := testkit.WriteTool(t, tools, "secret.yaml", "apiVersion: orloj.dev/v1\nkind: Secret\nmetadata: {name: k}\nspec: {stringData: {value: planted-secret}}\n")
	if err := os.Chmod(secret, 0o600); err != nil {
		t.Fatal(err)
	}
	o := serveContained(t, podman, tools)
	for _, call := range []struct{ tool, args, text, code string }{
		{"command", `{"q":"a; b $(id)","code":0}`, "uid 65532 in /bin, home /tmp, lang C.UTF-8, a 1 $(id), token 14, path set, orla none; zero a; b $(id)\n" + `{"q":"a; b $(id)","code":0}`, ""},
		{"sandboxed", `{"q":"x","code":3}`, "uid 65532 in /tmp, home /tmp, lang C.UTF-8, a , token 0, path set, orla none; zero x\nsandboxed exited with code 3", "execution_failed"},
	} {
		if text, code := o.coded(call.tool, call.args); !strings.Contains(text, call.text) || code != call.code || strings.Contains(text, "planted") {
			t.Errorf("%s %s: %q %q\nwant %q %q", call.tool, call.args, text, code, call.text, call.code)
		}
	}
}
