package simple_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/environ"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/leaks"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/simple"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// script makes a tool of a shell script.
func script(t *testing.T, body string, change ...func(*manifest.Tool)) manifest.Tool {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "tool.sh")
	if err := os.WriteFile(path, []byte(body), 0o755); err != nil {
		t.Fatal(err)
	}
	tool := manifest.Tool{
		Name:        "tool",
		Kind:        manifest.Simple,
		Path:        path,
		Dir:         dir,
		Source:      path,
		Interpreter: manifest.Interpreter{Name: "sh", Path: "/bin/sh"},
		InputSchema: json.RawMessage(`{"type":"object"}`),
	}
	for _, c := range change {
		c(&tool)
	}
	return tool
}

func command(t *testing.T, tool manifest.Tool, change ...func(*simple.Options)) *simple.Command {
	t.Helper()
	l, err := launch.NewLocal(launch.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	opts := simple.Options{Launcher: l.Launcher(), Environ: environ.Clean(os.Environ())}
	for _, c := range change {
		c(&opts)
	}
	c, err := simple.New(tool, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func answer(got peer.Answer, err error) (*mcp.CallToolResult, error) { return got.Result, err }

func call(t *testing.T, c *simple.Command, args string) (*mcp.CallToolResult, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return answer(c.Call(ctx, peer.Call{Tool: "tool", Args: json.RawMessage(args)}))
}

func mustCall(t *testing.T, c *simple.Command, args string) *mcp.CallToolResult {
	t.Helper()
	res, err := call(t, c, args)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// text returns the text of a block.
func text(t *testing.T, res *mcp.CallToolResult, i int) string {
	t.Helper()
	if res == nil || i >= len(res.Content) {
		t.Fatalf("there is no block %d in %+v", i, res)
	}
	block, ok := res.Content[i].(*mcp.TextContent)
	if !ok {
		t.Fatalf("block %d is %T; want text", i, res.Content[i])
	}
	return block.Text
}

func wantCode(t *testing.T, err error, code fault.Code) {
	t.Helper()
	_ = faultOf(t, err, code)
}

// faultOf returns the fault of err, which must have the code.
func faultOf(t *testing.T, err error, code fault.Code) *fault.Error {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Code != code {
		t.Fatalf("error = %v; want %s", err, code)
	}
	return f
}

const printArgs = `printf '%s|' "$@"; echo; cat`

func TestC1ArgumentsArriveAsFlagsAndOnStdin(t *testing.T) {
	args := `{"b_c":"two words","a":1e400,"z":null,"t":true,"f":false,"list":[1,"x",null,{"k": 2}],"o":{"k" : [1.50]},"neg":-0.0,"empty":""}`
	res := mustCall(t, command(t, script(t, printArgs)), args)
	const want = `--a|1e400|--b-c|two words|--empty||--f|false|--list|1|--list|x|--list|{"k":2}|--neg|-0.0|--o|{"k":[1.50]}|--t|true|`
	got := text(t, res, 0)
	if want := want + "\n" + args; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestC1StdinArgumentReplacesTheJSON(t *testing.T) {
	c := command(t, script(t, printArgs))
	if got := text(t, mustCall(t, c, `{"stdin":"raw \u00e9","n":1}`), 0); got != "--n|1|\nraw é" {
		t.Errorf("got %q", got)
	}
	// One that is not a string is an argument like any other.
	if got := text(t, mustCall(t, c, `{"stdin":5}`), 0); got != `--stdin|5|`+"\n"+`{"stdin":5}` {
		t.Errorf("got %q", got)
	}
}

func TestC1ModesPickOneWay(t *testing.T) {
	for mode, want := range map[manifest.ArgumentsMode]string{
		manifest.ArgumentsStdin: "|\n" + `{"a":"b"}`,
		manifest.ArgumentsFlags: "--a|b|\n",
		manifest.ArgumentsBoth:  "--a|b|\n" + `{"a":"b"}`,
		"":                      "--a|b|\n" + `{"a":"b"}`,
	} {
		c := command(t, script(t, printArgs, func(t *manifest.Tool) { t.Run.Arguments = mode }))
		if got := text(t, mustCall(t, c, `{"a":"b"}`), 0); got != want {
			t.Errorf("%q: got %q; want %q", mode, got, want)
		}
	}
}

func TestC1BadNamesAreRefused(t *testing.T) {
	c := command(t, script(t, printArgs))
	for _, name := range []string{"", "-x", "_x", "a b", "a=b", "ü", "a.b", "--", strings.Repeat("é", 500)} {
		args, err := json.Marshal(map[string]string{name: "v"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = call(t, c, string(args))
		if f := faultOf(t, err, fault.InvalidInput); len(f.Reason) > 300 {
			t.Errorf("the reason repeats all of a long name: %s", f.Reason)
		}
	}
}

func TestC1WhatNoFlagCanHoldGoesToStdinOnly(t *testing.T) {
	big := strings.Repeat("x", 64<<10+1)
	c := command(t, script(t, `printf '%s|' "$@"; echo; cat | wc -c`))
	args := `{"big":"` + big + `","nul":"a\u0000b","ok":"` + big[:64<<10] + `"}`
	got := text(t, mustCall(t, c, args), 0)
	if want := "--ok|" + big[:64<<10] + "|\n" + strconv.Itoa(len(args)) + "\n"; got != want {
		t.Errorf("got %.80q… (%d bytes)", got, len(got))
	}
	flags := command(t, script(t, printArgs, func(t *manifest.Tool) { t.Run.Arguments = manifest.ArgumentsFlags }))
	_, err := call(t, flags, args)
	wantCode(t, err, fault.InvalidInput)
}

func TestC1NoArgumentsAndNoObject(t *testing.T) {
	c := command(t, script(t, printArgs))
	for _, args := range []string{"", "null", "{}", " {} "} {
		if got := text(t, mustCall(t, c, args), 0); !strings.HasPrefix(got, "|\n") {
			t.Errorf("%q: got %q", args, got)
		}
	}
	for _, args := range []string{"[1]", `"x"`, "5", "{", "true"} {
		_, err := call(t, c, args)
		wantCode(t, err, fault.InvalidInput)
	}
}

func TestC2Environment(t *testing.T) {
	for name, value := range map[string]string{
		"ORLA_PORT": "1", "NOTIFY_SOCKET": "x", "WATCHDOG_USEC": "1", "LISTEN_FDS": "1",
		"ORLOJ_SECRET_X": "hidden", "CREDENTIALS_DIRECTORY": "x", "MINE": "kept", "WANTED": "yes",
	} {
		t.Setenv(name, value)
	}
	environ := func(change ...func(*manifest.Tool)) map[string]string {
		c := command(t, script(t, "pwd; env", change...))
		lines := strings.Split(strings.TrimSpace(text(t, mustCall(t, c, "{}"), 0)), "\n")
		env := map[string]string{"cwd": lines[0]}
		for _, line := range lines[1:] {
			name, value, _ := strings.Cut(line, "=")
			env[name] = value
		}
		return env
	}
	all := environ(func(t *manifest.Tool) { t.Run.Env = map[string]string{"MINE": "changed", "NEW": "a=b"} })
	for _, name := range []string{"ORLA_PORT", "NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS", "ORLOJ_SECRET_X", "CREDENTIALS_DIRECTORY"} {
		if v, has := all[name]; has {
			t.Errorf("%s=%s reached the tool", name, v)
		}
	}
	if all["MINE"] != "changed" || all["NEW"] != "a=b" || all["ORLA_TOOL"] != "tool" || all["ORLA_CALL_ID"] == "" {
		t.Errorf("environment = %v", all)
	}
	if all["cwd"] != all["PWD"] || filepath.Base(all["cwd"]) == "simple" {
		t.Errorf("working directory = %q, PWD = %q; want the tool's folder", all["cwd"], all["PWD"])
	}
	narrow := environ(func(t *manifest.Tool) {
		t.Run.InheritEnv = manifest.EnvPolicy{Narrow: true, Names: []string{"WANTED"}}
	})
	if _, has := narrow["MINE"]; has || narrow["WANTED"] != "yes" || narrow["PATH"] == "" {
		t.Errorf("narrowed environment = %v", narrow)
	}
}

func TestC2CallIDIsTheCallers(t *testing.T) {
	c := command(t, script(t, "echo $ORLA_CALL_ID"))
	res, err := answer(c.Call(callid.With(t.Context(), "id-1"), peer.Call{Tool: "tool"}))
	if err != nil || text(t, res, 0) != "id-1\n" {
		t.Errorf("got %v, %v", res, err)
	}
}

func TestC3StreamsExitCodeAndMeta(t *testing.T) {
	c := command(t, script(t, "echo out; echo err >&2; exit 3"))
	res, err := call(t, c, "{}")
	f := faultOf(t, err, fault.ExecutionFailed)
	if f.Retryable() || !strings.Contains(f.Reason, "code 3") {
		t.Errorf("error = %v", f)
	}
	if text(t, res, 0) != "out\n" || text(t, res, 1) != "stderr:\nerr\n" {
		t.Errorf("content = %+v", res.Content)
	}
	for key, want := range map[string]any{"exit_code": 3, "stdout_dropped": int64(0), "stderr_dropped": int64(0)} {
		if res.Meta[key] != want {
			t.Errorf("_meta %s = %v; want %v", key, res.Meta[key], want)
		}
	}
	if _, has := res.Meta["duration_ms"]; !has {
		t.Error("no duration_ms in _meta")
	}
}

func TestC3SignalIsNamed(t *testing.T) {
	res, err := call(t, command(t, script(t, "kill -9 $$")), "{}")
	f := faultOf(t, err, fault.ExecutionFailed)
	if res.Meta["exit_code"] != 137 || res.Meta["signal"] != "killed" || !strings.Contains(f.Reason, "killed") {
		t.Errorf("_meta = %v, reason = %s", res.Meta, f.Reason)
	}
}

func TestC3BytesComeBackAsABlob(t *testing.T) {
	res := mustCall(t, command(t, script(t, `printf '\377\376\000'; printf '\200' >&2`)), "{}")
	raw, err := json.Marshal(res)
	if err != nil || !json.Valid(raw) {
		t.Fatalf("result does not marshal: %v", err)
	}
	for i, want := range []string{"\xff\xfe\x00", "\x80"} {
		blob, ok := res.Content[i].(*mcp.EmbeddedResource)
		if !ok || string(blob.Resource.Blob) != want {
			t.Errorf("block %d = %+v; want a blob of %q", i, res.Content[i], want)
		}
	}
	if !strings.Contains(string(raw), base64.StdEncoding.EncodeToString([]byte("\xff\xfe\x00"))) {
		t.Errorf("no base64 in %s", raw)
	}
}

func TestC3StructuredResults(t *testing.T) {
	c := command(t, script(t, "echo out; echo err >&2; exit 2", func(t *manifest.Tool) { t.Run.StructuredResults = true }))
	res, _ := call(t, c, "{}")
	raw, err := json.Marshal(res.StructuredContent)
	if err != nil || string(raw) != `{"exit_code":2,"stderr":"err\n","stdout":"out\n"}` {
		t.Errorf("structuredContent = %s, %v", raw, err)
	}
	plain := mustCall(t, command(t, script(t, "echo out")), "{}")
	if plain.StructuredContent != nil {
		t.Errorf("structuredContent without being asked for: %v", plain.StructuredContent)
	}
}

func TestC3OutputSchema(t *testing.T) {
	const schema = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`
	withSchema := func(t *manifest.Tool) { t.OutputSchema = json.RawMessage(schema) }
	res := mustCall(t, command(t, script(t, `echo '{"n": 9007199254740993}'`, withSchema)), "{}")
	raw, err := json.Marshal(res.StructuredContent)
	if err != nil || string(raw) != `{"n":9007199254740993}` {
		t.Errorf("structuredContent = %s, %v; want every digit", raw, err)
	}
	for _, body := range []string{`echo '{"n":"x"}'`, "echo null", "echo nonsense", "true"} {
		res, err := call(t, command(t, script(t, body, withSchema)), "{}")
		wantCode(t, err, fault.ExecutionFailed)
		if res == nil || res.StructuredContent != nil {
			t.Errorf("%s: structuredContent = %v; want none", body, res)
		}
	}
	for body, want := range map[string]string{
		`echo debug; echo '{"n": 1}'`:   `; it begins with "debug", and has to be JSON alone: logs belong on stderr`,
		`echo '{"n": 1}'; echo debug`:   "after top-level value",
		"printf %0200d 0; echo ' done'": `; it begins with "` + strings.Repeat("0", 80) + `…", and`,
		"true":                          "is not JSON: EOF",
	} {
		_, err := call(t, command(t, script(t, body, withSchema)), "{}")
		wantCode(t, err, fault.ExecutionFailed)
		if reason := fault.From(err).Reason; !strings.Contains(reason, want) || !strings.Contains(want, "begins") && strings.Contains(reason, "begins") {
			t.Errorf("%s: %q, want %q", body, reason, want)
		}
	}
}

func TestC3OutputMCPPassesTheResultThrough(t *testing.T) {
	asMCP := func(t *manifest.Tool) { t.Run.Output = manifest.OutputMCP }
	const result = `{"content":[{"type":"image","data":"aGk=","mimeType":"image/png"},{"type":"text","text":"x"}],"structuredContent":{"n":12345678901234567890.10},"isError":true,"_meta":{"mine":1}}`
	res := mustCall(t, command(t, script(t, "cat <<'E'\n"+result+"\nE", asMCP)), "{}")
	raw, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"data":"aGk="`, `12345678901234567890.10`, `"isError":true`, `"mine":1`, `"exit_code":0`} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("%s is not in %s", want, raw)
		}
	}
	for _, body := range []string{"echo no", "echo '{}'", `echo '{"content":[{"type":"nonsense"}]}'`, `echo '{"content":[5]}'`} {
		res, err := call(t, command(t, script(t, body, asMCP)), "{}")
		wantCode(t, err, fault.ExecutionFailed)
		if _, err := json.Marshal(res); err != nil {
			t.Errorf("%s: the result does not marshal: %v", body, err)
		}
	}
}

// SPEC C3: _meta always carries exit code, duration and what was cut; a tool's
// own keys keep their digits, and its word on its own error stands.
func TestC3OutputMCPCannotOverrideWhatOrlaKnows(t *testing.T) {
	asMCP := func(t *manifest.Tool) { t.Run.Output = manifest.OutputMCP }
	const result = `{"content":[],"_meta":{"exit_code":99,"duration_ms":"x","stdout_dropped":7,"signal":"killed","tool_code":"rate_limited","big":12345678901234567890}}`
	res := mustCall(t, command(t, script(t, "cat <<'E'\n"+result+"\nE", asMCP)), "{}")
	raw, err := json.Marshal(res.Meta)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"exit_code":0`, `"stdout_dropped":0`, `"tool_code":"rate_limited"`, `"big":12345678901234567890`} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("%s is not in %s", want, raw)
		}
	}
	for _, not := range []string{`"x"`, "signal"} {
		if strings.Contains(string(raw), not) {
			t.Errorf("%s is in %s", not, raw)
		}
	}
}

// A block that clients would refuse makes them drop the whole answer, so it
// fails the call by name, with what the tool said on stderr.
func TestC3OutputMCPIsAsStrictAsClients(t *testing.T) {
	asMCP := func(t *manifest.Tool) { t.Run.Output = manifest.OutputMCP }
	for name, c := range map[string]struct{ printed, want string }{
		"broken bytes":                {`{"content":[{"type":"text","text":"a\377"}]}`, "it is not UTF-8"},
		"no object":                   {`[]`, "it is not one JSON object"},
		"two results":                 {`{"content":[]}{}`, "it is not one JSON object"},
		"nothing":                     {``, "it is not one JSON object"},
		"null":                        {`null`, "it is not one JSON object"},
		"text without text":           {`{"content":[{"type":"text"}]}`, "content[0]: text: want a string"},
		"names in capitals":           {`{"content":[{"TYPE":"text","TEXT":"x"}]}`, "content[0]: type: want a string"},
		"image without a type":        {`{"content":[{"type":"image","data":"aGk="}]}`, "content[0]: mimeType: want a string"},
		"link without a name":         {`{"content":[{"type":"resource_link","uri":"x:y"}]}`, "content[0]: name: want a string"},
		"resource without a body":     {`{"content":[{"type":"resource","resource":{"uri":"x:y"}}]}`, "content[0]: resource.text: want a string"},
		"content of another kind":     {`{"content":{}}`, "content: want an array"},
		"structure of a number":       {`{"content":[],"structuredContent":5}`, "structuredContent: want an object"},
		"structure of an array":       {`{"content":[],"structuredContent":[1]}`, "structuredContent: want an object"},
		"_meta of another kind":       {`{"content":[],"_meta":5}`, "_meta: want an object"},
		"isError of another kind":     {`{"content":[],"isError":"no"}`, "isError: want true or false"},
		"data that is not base64":     {`{"content":[{"type":"image","data":"!!","mimeType":"image/png"}]}`, "base64"},
		"a block that is not a block": {`{"content":[null]}`, "content"},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := call(t, command(t, script(t, "printf '"+c.printed+"'; echo why >&2", asMCP)), "{}")
			f := faultOf(t, err, fault.ExecutionFailed)
			if !strings.Contains(f.Reason, c.want) || strings.Contains(f.Reason, "Go ") {
				t.Errorf("reason = %q; want %q", f.Reason, c.want)
			}
			if len(res.Content) != 2 || text(t, res, 1) != "stderr:\nwhy\n" {
				t.Errorf("content = %+v; want stdout and stderr", res.Content)
			}
		})
	}
}

// SPEC C3: bytes that are not UTF-8 never become broken JSON.
func TestC3OutputSchemaWantsUTF8(t *testing.T) {
	tool := script(t, `printf '{"n":"\377"}'`, func(t *manifest.Tool) { t.OutputSchema = json.RawMessage(`{"type":"object"}`) })
	res, err := call(t, command(t, tool), "{}")
	if f := faultOf(t, err, fault.ExecutionFailed); !strings.Contains(f.Reason, "it is not UTF-8") || res.StructuredContent != nil {
		t.Errorf("reason = %q, structured = %s", f.Reason, res.StructuredContent)
	}
}

// processAlive reports whether a process runs; a zombie does not.
func processAlive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func gone(t *testing.T, pid int) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for processAlive(pid) {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("process %d lives on", pid)
		}
	}
}

func TestC4TimeoutKeepsWhatWasPrintedAndKillsTheTree(t *testing.T) {
	said := filepath.Join(t.TempDir(), "said")
	c := command(t, script(t, `echo before; echo warn >&2; sleep 100 & echo $!; : >`+said+`; wait`))
	ctx, timeOut := context.WithCancelCause(t.Context())
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(said); err == nil {
				timeOut(fault.New(fault.Timeout, "too slow"))
			}
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	res, err := answer(c.Call(ctx, peer.Call{Tool: "tool"}))
	if f := faultOf(t, err, fault.Timeout); f.Reason != "too slow" || !f.Retryable() {
		t.Errorf("error = %v", f)
	}
	lines := strings.Split(text(t, res, 0), "\n")
	if lines[0] != "before" || text(t, res, 1) != "stderr:\nwarn\n" {
		t.Fatalf("content = %+v", res.Content)
	}
	child, err := strconv.Atoi(lines[1])
	if err != nil {
		t.Fatal(err)
	}
	gone(t, child)
}

func TestC4CancellationIsNamed(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	c := command(t, script(t, "mkfifo "+started+"; echo $$ > "+started+"; sleep 100"))
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := c.Call(ctx, peer.Call{Tool: "tool"})
		failed <- err
	}()
	for { // the fifo appears when the tool runs; reading it waits for the pid
		if _, err := os.Stat(started); err == nil {
			break
		}
		runtime.Gosched()
	}
	line, err := os.ReadFile(started)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(line)))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	wantCode(t, <-failed, fault.Canceled)
	gone(t, pid)
}

// The answer does not wait for a grandchild that holds the pipe.
func TestC4AnswersWhenTheDirectChildIsGone(t *testing.T) {
	c := command(t, script(t, `(trap "" TERM; sleep 100) & echo $!; echo done`))
	began := time.Now()
	res := mustCall(t, c, "{}")
	lines := strings.Split(text(t, res, 0), "\n")
	if len(lines) < 2 || lines[1] != "done" {
		t.Errorf("content = %q", text(t, res, 0))
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the call waited %s for a grandchild", took)
	}
	pid, err := strconv.Atoi(lines[0])
	if err != nil {
		t.Fatal(err)
	}
	gone(t, pid)
}

func TestC4WhatWasPrintedLastIsNeverLost(t *testing.T) {
	c := command(t, script(t, `sleep 100 & head -c 60000 /dev/zero | tr '\0' x; echo end`))
	for range 20 {
		if got := text(t, mustCall(t, c, "{}"), 0); len(got) != 60004 || !strings.HasSuffix(got, "end\n") {
			t.Fatalf("got %d bytes; want 60004", len(got))
		}
	}
}

func TestC4MissingInterpreterIsNamed(t *testing.T) {
	c := command(t, script(t, "#!/usr/bin/env no-such-interpreter\n", func(t *manifest.Tool) {
		t.Interpreter = manifest.Interpreter{Name: "no-such-interpreter"}
	}))
	_, err := call(t, c, "{}")
	if f := faultOf(t, err, fault.UnsupportedTool); !strings.Contains(f.Reason, "no-such-interpreter") {
		t.Errorf("reason = %s", f.Reason)
	}
}

func TestC5OutputIsBounded(t *testing.T) {
	const limit = 100_000
	c := command(t, script(t, "head -c 50000000 /dev/zero | tr '\\0' x; head -c 200000 /dev/zero >&2", func(t *manifest.Tool) {
		t.Run.MaxOutput = limit
	}))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	res := mustCall(t, c, "{}")
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 20*limit {
		t.Errorf("a call that prints 50 MB allocated %d bytes with a limit of %d", grown, limit)
	}
	if got := text(t, res, 0); len(got) != limit {
		t.Errorf("kept %d bytes; want %d", len(got), limit)
	}
	if res.Meta["stdout_dropped"] != int64(50000000-limit) || res.Meta["stderr_dropped"] != int64(100000) {
		t.Errorf("_meta = %v", res.Meta)
	}
	if got := text(t, res, 2); !strings.Contains(got, "49900000") || !strings.Contains(got, "max_output") {
		t.Errorf("note = %q", got)
	}
}

func TestC5ACutRuneIsLeftOut(t *testing.T) {
	c := command(t, script(t, "printf 'aé€é'", func(t *manifest.Tool) { t.Run.MaxOutput = 5 }))
	if got := text(t, mustCall(t, c, "{}"), 0); got != "aé" {
		t.Errorf("got %q; want the whole runes only", got)
	}
}

// A tool that is ended in the middle of a rune has still printed text.
func TestC4ATornRuneIsLeftOut(t *testing.T) {
	printed := filepath.Join(t.TempDir(), "printed")
	if err := syscall.Mkfifo(printed, 0o600); err != nil {
		t.Fatal(err)
	}
	c := command(t, script(t, `printf 'h\303\251 \303'; echo > `+printed+`; exec sleep 100`))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var res *mcp.CallToolResult
	failed := make(chan error, 1)
	go func() {
		var err error
		res, err = answer(c.Call(ctx, peer.Call{Tool: "tool"}))
		failed <- err
	}()
	if _, err := os.ReadFile(printed); err != nil { // it waits for the tool
		t.Fatal(err)
	}
	cancel()
	wantCode(t, <-failed, fault.Canceled)
	if got := text(t, res, 0); got != "hé " {
		t.Errorf("stdout = %q", got)
	}
}

func TestC5AToolThatNeverReadsStdinDoesNotBlock(t *testing.T) {
	args := `{"a":"` + strings.Repeat("x", 4<<20) + `"}`
	for _, body := range []string{"echo ok", "exec <&-; echo ok"} {
		if got := text(t, mustCall(t, command(t, script(t, body)), args), 0); got != "ok\n" {
			t.Errorf("got %q", got)
		}
	}
	// And one that does gets all of it.
	if got := text(t, mustCall(t, command(t, script(t, "wc -c")), args), 0); strings.TrimSpace(got) != strconv.Itoa(len(args)) {
		t.Errorf("read %s bytes of %d", got, len(args))
	}
}

func TestC6ProcessesAreBounded(t *testing.T) {
	dir := t.TempDir()
	tool := script(t, `mkdir "$1.running" || exit 9; rmdir "$1.running"`, func(t *manifest.Tool) {
		t.Run.Args = []string{filepath.Join(dir, "lock")}
	})
	c := command(t, tool, func(o *simple.Options) { o.Slots = simple.NewSlots(1) })
	errs := make(chan error)
	for range 20 {
		go func() {
			_, err := call(t, c, "{}")
			errs <- err
		}()
	}
	for range 20 {
		if err := <-errs; err != nil {
			t.Errorf("two ran at once: %v", err)
		}
	}
}

// SPEC H2: a new bound holds for those who wait already, too.
func TestC6TheBoundCanChange(t *testing.T) {
	slots := simple.NewSlots(1)
	gate := filepath.Join(t.TempDir(), "gate")
	c := command(t, script(t, "while [ ! -e "+gate+" ]; do sleep 0.01; done"), func(o *simple.Options) { o.Slots = slots })
	const calls = 3
	failed := make(chan error, calls)
	for range calls {
		go func() {
			_, err := c.Call(t.Context(), peer.Call{Tool: "tool"})
			failed <- err
		}()
	}
	for slots.Free() > 0 {
		runtime.Gosched()
	}
	slots.Resize(calls + 1)
	for slots.Free() != 1 { // all of them run
		runtime.Gosched()
	}
	slots.Resize(1)
	if free := slots.Free(); free != 0 {
		t.Errorf("%d places are free; want none", free)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range calls {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if free := slots.Free(); free != 1 {
		t.Errorf("%d places are free; want 1", free)
	}
}

// One client's flood does not keep another's calls waiting behind all of it.
func TestC6PlacesAreGivenInTurn(t *testing.T) {
	slots := simple.NewSlots(1)
	first, err := slots.Take(t.Context(), turns.Owner{Session: "flood"})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan string, 11)
	var wg sync.WaitGroup
	for i, line := range append(slices.Repeat([]string{"flood"}, 10), "other") {
		wg.Go(func() {
			give, err := slots.Take(t.Context(), turns.Owner{Session: line})
			if err != nil {
				t.Error(err)
				return
			}
			served <- line
			give()
		})
		for slots.Waiting() <= i {
			runtime.Gosched()
		}
	}
	first()
	wg.Wait()
	if one, two := <-served, <-served; one != "flood" || two != "other" {
		t.Errorf("served were first %s and then %s, want the flood and then the other", one, two)
	}
}

// SPEC N2: beside another caller, one begins as many calls at a time as half of the
// processors work on. Calls that take longer count no more.
func TestN2OneCallerDoesNotTakeAllPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places = 64
		slots := simple.NewShared(places)
		big, small := turns.Owner{Caller: "big", Session: "b"}, turns.Owner{Caller: "small", Session: "s"}
		take := func(owner turns.Owner) func() {
			give, err := slots.Take(t.Context(), owner)
			if err != nil {
				t.Fatal(err)
			}
			return give
		}
		take(small)() // it was there
		half := max(1, runtime.NumCPU()/2)
		gives := make(chan func(), places)
		for range places {
			go func() { gives <- take(big) }()
		}
		synctest.Wait()
		if n := len(gives); n != half {
			t.Errorf("one caller has %d places at once, want %d", n, half)
		}
		time.Sleep(25 * time.Millisecond) // in a bubble
		synctest.Wait()
		if n := len(gives); n != 2*half {
			t.Errorf("one caller has %d places when its first calls take long, want %d", n, 2*half)
		}
		(<-gives)()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := len(gives); n != places-1 || slots.Free() != 1 {
			t.Errorf("one caller has %d places in the end, and %d are free", n, slots.Free())
		}
		take(small)()
		for range places - 1 {
			(<-gives)()
		}
		if slots.Free() != places {
			t.Errorf("%d places are free, want all", slots.Free())
		}
	})
}

func TestC6WaitingEndsWithTheDeadline(t *testing.T) {
	slots := simple.NewSlots(1)
	tool := script(t, "read x; sleep 100")
	c := command(t, tool, func(o *simple.Options) { o.Slots = slots })
	holder, release := context.WithCancel(t.Context())
	held := make(chan error, 1)
	go func() {
		_, err := c.Call(holder, peer.Call{Tool: "tool"})
		held <- err
	}()
	for slots.Free() > 0 {
		runtime.Gosched()
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, fault.New(fault.Timeout, "late"))
	defer cancel()
	_, err := c.Call(ctx, peer.Call{Tool: "tool"})
	if f := faultOf(t, err, fault.Timeout); !strings.Contains(f.Reason, "1 calls run at once") {
		t.Errorf("reason = %s", f.Reason)
	}
	release()
	wantCode(t, <-held, fault.Canceled)
}

func TestManifestArgsStandBeforeTheCallsFlags(t *testing.T) {
	c := command(t, script(t, printArgs, func(t *manifest.Tool) { t.Run.Args = []string{"-v", "sub"} }))
	if got := text(t, mustCall(t, c, `{"a":1}`), 0); !strings.HasPrefix(got, "-v|sub|--a|1|\n") {
		t.Errorf("got %q", got)
	}
}

// The grace fits into the supervisor's budget for a stop, which is 20 s.
func TestGraceFitsTheStopBudget(t *testing.T) {
	if launch.DefaultGrace+5*time.Second > 20*time.Second {
		t.Errorf("grace %s is too long", launch.DefaultGrace)
	}
}
