package program

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// attemptsOf returns the attempts of a tool's calls that the log tells, each as
// its number, its code and its pause.
func (o *running) attemptsOf(tool string) (told []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.lines {
		if l["msg"] == "attempt" && l["tool"] == tool {
			told = append(told, fmt.Sprint(l["attempt"], " ", l["code"], " ", l["pause_ms"]))
		}
	}
	return told
}

// writeRetried writes a package with a simple tool whose calls are tried again,
// if they may be.
func writeRetried(t *testing.T, tools, name, hints, runtime, script string) {
	t.Helper()
	testkit.WriteTool(t, tools, name+"/tool.yaml", fmt.Sprintf(
		"name: %s\nversion: 1.0.0\ndescription: Fails at first.\nentrypoint: main.sh\nmcp: {annotations: {%s}}\nruntime: {%s}\n", name, hints, runtime))
	testkit.WriteTool(t, tools, name+"/main.sh", "#!/bin/sh\n"+script)
}

// counting is the start of a script that knows how often it was started, from 1.
func counting(t *testing.T) (script, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "runs")
	return fmt.Sprintf("echo run >> %s\nruns=$(wc -l < %[1]s)\n", file), file
}

func runs(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

const idempotent = "idempotentHint: true"

// SPEC-TOOLS 6.1: the table of the page, a fiftieth of it, from the log: of a
// tool that says itself that trying again can help (SPEC-TOOLS 4.1).
func TestRetryTableFromTheLog(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	writeRetried(t, tools, "busy", idempotent, "output: mcp, retry: {max_attempts: 8, backoff: 20ms, max_backoff: 600ms}",
		`echo '{"content":[{"type":"text","text":"come back later"}],"isError":true,"_meta":{"tool_code":"rate_limited","retryable":true}}'`)
	o := serveOrla(t, tools)
	a, err := o.call("busy", "{}")
	if err != nil || !a.Result.IsError || a.Result.Meta["tool_code"] != "rate_limited" || a.Result.Content[0].Text != "come back later" {
		t.Fatalf("got %+v, %v", a, err)
	}
	call := o.waitLog("call", nil)
	var want []string
	for i, pause := range []int{1, 2, 4, 8, 16, 30, 30} {
		want = append(want, fmt.Sprint(i+1, " rate_limited ", 20*pause))
	}
	if got := o.attemptsOf("busy"); !slices.Equal(got, want) {
		t.Errorf("the log tells of the attempts\n%q\nwant\n%q", got, want)
	}
	if fmt.Sprint(call["attempts"]) != "8" || call["code"] != "rate_limited" {
		t.Errorf("the call: %v", call)
	}
	if o.count("attempt", func(l map[string]any) bool { return l["call_id"] == call["call_id"] }) != 7 {
		t.Error("the attempts have another call_id than their call")
	}
}

// SPEC-TOOLS 6.3: a simple tool is tried again if it is annotated so. Each
// attempt has the timeout anew, and one process at a time works on a call.
func TestSimpleToolIsTriedAgain(t *testing.T) {
	t.Parallel() // deadlines take their time
	needs.Time(t, "waits for deadlines")
	const policy = "timeout: 3s, retry: {max_attempts: 5, backoff: 20ms, jitter: none}"
	tools := t.TempDir()
	script, safe := counting(t)
	writeRetried(t, tools, "safe", idempotent, policy, script+`test "$runs" -ge 3 || exec sleep 100; echo "run $runs"`)
	script, unsafe := counting(t)
	writeRetried(t, tools, "unsafe", "", policy, script+`test "$runs" -ge 3 || exec sleep 100; echo "run $runs"`)
	o := serveOrla(t, tools)

	got := o.mustCall("safe")
	n := runs(t, safe)
	if n < 3 || got != fmt.Sprintf("run %d\n", n) {
		t.Errorf("after %d runs the answer is %q", n, got)
	}
	call := o.waitLog("call", func(l map[string]any) bool { return l["tool"] == "safe" })
	if told := o.attemptsOf("safe"); len(told) != n-1 || told[0] != "1 timeout 20" || told[1] != "2 timeout 40" || fmt.Sprint(call["attempts"]) != fmt.Sprint(n) || call["ok"] != true {
		t.Errorf("the log tells of the attempts %q, and of the call %v", told, call)
	}

	a, err := o.call("unsafe", "{}")
	if err != nil || !a.Result.IsError || a.Result.Meta["tool_code"] != "timeout" || a.Result.Meta["retryable"] != true || a.Result.Meta["attempts"] != nil {
		t.Errorf("what must not be repeated gave %+v, %v", a.Result, err)
	}
	if n := runs(t, unsafe); n != 1 || len(o.attemptsOf("unsafe")) != 0 {
		t.Errorf("what must not be repeated ran %d times", n)
	}
}

// SPEC-TOOLS 6.3: a call that no process was started for is made again whatever
// the tool does, and says in the end how often that was tried.
func TestWhatWasNeverSentIsTriedAgain(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	const policy = "restart: {initial_ms: 3600000, max_ms: 3600000}, retry: {max_attempts: 3, backoff: 1ms}"
	testkit.WriteTool(t, tools, "lost/tool.yaml", "name: lost\nversion: 1.0.0\ndescription: Is lost.\nentrypoint: main\nmcp: {input_schema: {type: object}}\nruntime: {mode: capsule, "+policy+"}\n")
	testkit.WriteTool(t, tools, "lost/main", "#!/bin/sh\nexit 3\n")
	o := serveOrla(t, tools)
	o.waitLog("state", is("lost", "CRASHED"))
	a, err := o.call("lost", "{}")
	if err != nil || a.Result.Meta["tool_code"] != "start_failed" || fmt.Sprint(a.Result.Meta["attempts"]) != "3" || !strings.HasSuffix(fmt.Sprint(a.Result.Meta["tool_reason"]), "(after 3 attempts)") {
		t.Errorf("got %+v, %v", a.Result, err)
	}
	o.waitLog("call", func(l map[string]any) bool { return fmt.Sprint(l["attempts"]) == "3" }) // all of them stand before it
	if got, want := o.attemptsOf("lost"), []string{"1 start_failed 1", "2 start_failed 2"}; !slices.Equal(got, want) {
		t.Errorf("the log tells of the attempts %q; want %q", got, want)
	}
}

// SPEC-TOOLS 6.3: a capsule that crashes in a call answers it after its restart,
// if its tool may be called twice.
func TestCrashIsTriedAgain(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	const policy = atOnce + "\nretry: {max_attempts: 4, backoff: 20ms}"
	const crashing = `import os

offers = []


def answer(params):
    with open(os.environ["LOCK"] + ".runs", "a+") as runs:
        runs.write("run\n")
        runs.seek(0)
        n = len(runs.readlines())
    if n < 3:
        os._exit(7)
    return "run %d" % n
`
	safe := newPack(t, tools, "safe", policy, map[string]string{"answer.py": crashing})
	safe.manifest(policy, "mcp: {input_schema: {type: object}, annotations: {readOnlyHint: true}}")
	unsafe := newPack(t, tools, "unsafe", policy, map[string]string{"answer.py": crashing})
	o := serveCapsules(t, tools, "")

	if got := o.mustCall("safe"); got != "run 3" || runs(t, safe.lock+".runs") != 3 {
		t.Errorf("the answer is %q after %d runs", got, runs(t, safe.lock+".runs"))
	}
	call := o.waitLog("call", func(l map[string]any) bool { return l["tool"] == "safe" })
	if got, want := o.attemptsOf("safe"), []string{"1 crashed 20", "2 crashed 40"}; !slices.Equal(got, want) || fmt.Sprint(call["attempts"]) != "3" || call["ok"] != true {
		t.Errorf("the log tells of the attempts %q, and of the call %v", got, call)
	}

	a, err := o.call("unsafe", "{}")
	if err != nil || !a.Result.IsError || a.Result.Meta["tool_code"] != "crashed" || runs(t, unsafe.lock+".runs") != 1 {
		t.Errorf("what must not be repeated gave %+v, %v, after %d runs", a.Result, err, runs(t, unsafe.lock+".runs"))
	}
}

// SPEC-TOOLS 4.1: a capsule's own code, retryable and retry_after_ms count.
func TestCapsuleSaysWhenToComeBack(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	const policy = "retry: {max_attempts: 2, backoff: 1ms}"
	main := func(name, retryAfter string) map[string]string {
		return map[string]string{"main.py": `#!/usr/bin/env python3
import json, sys


def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


say(method="orla.hello", params={"name": "` + name + `", "version": "1.0.0", "capabilities": []})
refused = 0
for line in sys.stdin:
    m = json.loads(line)
    if m.get("method") != "tools/call":
        continue
    refused += 1
    if refused == 1:
        say(id=m["id"], error={"code": -32000, "message": "no", "data": {
            "tool_code": "kettle_busy", "tool_reason": "the kettle is busy", "retryable": True, "retry_after_ms": ` + retryAfter + `}})
    else:
        say(id=m["id"], result="tea")
`}
	}
	const hints = "mcp: {input_schema: {type: object}, annotations: {idempotentHint: true}}"
	newPack(t, tools, "soon", policy, main("soon", "30")).manifest(policy, hints)
	newPack(t, tools, "tomorrow", policy, main("tomorrow", "86400000")).manifest(policy, hints)
	o := serveCapsules(t, tools, "")
	if got := o.mustCall("soon"); got != "tea" {
		t.Errorf("the answer is %q", got)
	}
	o.waitLog("call", func(l map[string]any) bool { return l["tool"] == "soon" })
	if got, want := o.attemptsOf("soon"), []string{"1 kettle_busy 30"}; !slices.Equal(got, want) {
		t.Errorf("the log tells of the attempts %q; want %q", got, want)
	}
	a, err := o.call("tomorrow", "{}")
	if err != nil || !a.Result.IsError {
		t.Fatalf("got %+v, %v", a, err)
	}
	meta := a.Result.Meta
	if meta["tool_code"] != "kettle_busy" || meta["retryable"] != true || fmt.Sprint(meta["retry_after_ms"]) != "8.64e+07" ||
		meta["tool_reason"] != "tomorrow: the kettle is busy (not tried again: it asks to be left alone for 24h0m0s, and a call waits 5m0s at most)" {
		t.Errorf("_meta is %v", meta)
	}
}

// SPEC-TOOLS 6.2: Orla's stop ends the pause before another attempt at once: the
// grace is for calls that are being answered.
func TestStopEndsThePause(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	writeRetried(t, tools, "busy", idempotent, "timeout: 100ms, retry: {max_attempts: 2, backoff: 1h, max_backoff: 1h}", "exec sleep 100")
	o := startOrla(t, t.TempDir(), "--config", writeConfig(t, tools, "shutdown_grace: 1h\n"))
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	type result struct {
		*answer
		err error
	}
	done := make(chan result, 1)
	go func() {
		a, err := o.call("busy", "{}")
		done <- result{a, err}
	}()
	if pause := o.waitLog("attempt", nil)["pause_ms"]; fmt.Sprint(pause) != "3.6e+06" {
		t.Errorf("the pause is %v ms", pause)
	}
	o.signal(syscall.SIGTERM)
	if code := o.wait(); code != 0 {
		t.Errorf("Orla ended with %d", code)
	}
	r := <-done
	if r.err != nil || r.Result == nil || r.Result.Meta["tool_code"] != "timeout" || !strings.HasSuffix(fmt.Sprint(r.Result.Meta["tool_reason"]), "(not tried again: Orla is stopping)") {
		t.Errorf("the call ended with %+v, %v", r.answer, r.err)
	}
}

// SPEC-TOOLS 2.1, 6.2, 6.3: a service is asked again by the policy alone, with
// the same request_id and the next attempt, and never before its Retry-After.
func TestServiceIsAskedAgain(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string][]string{} // what each path was asked
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			ID      string `json:"request_id"`
			Context struct {
				Attempt int `json:"attempt"`
			} `json:"context"`
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		path := strings.Trim(r.URL.Path, "/")
		asked[path] = append(asked[path], fmt.Sprint(req.ID, " ", req.Context.Attempt))
		switch n := len(asked[path]); {
		case path == "always" || n == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case n == 2:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			_ = json.NewEncoder(w).Encode(map[string]any{"request_id": req.ID, "status": "success", "result": "done"})
		}
	}))
	defer service.Close()
	tools := t.TempDir()
	const policy = "\n  runtime: {retry: {max_attempts: 3, backoff: 20ms, max_backoff: 1s, jitter: none}}"
	testkit.WriteTool(t, tools, "services.yaml", resource("soon", "external", service.URL+"/soon", policy)+resource("always", "external", service.URL+"/always", policy))
	o := serveOrla(t, tools)

	if got := o.mustCall("soon"); got != "done" {
		t.Errorf("the answer is %q", got)
	}
	call := o.waitLog("call", func(l map[string]any) bool { return l["tool"] == "soon" })
	if got, want := o.attemptsOf("soon"), []string{"1 execution_failed 20", "2 rate_limited 1000"}; !slices.Equal(got, want) || fmt.Sprint(call["attempts"]) != "3" {
		t.Errorf("the log tells of the attempts %q, and of the call %v; want %q", got, call, want)
	}
	a, err := o.call("always", "{}")
	if err != nil || a.Result.Meta["tool_code"] != "execution_failed" || fmt.Sprint(a.Result.Meta["attempts"]) != "3" || !strings.HasSuffix(fmt.Sprint(a.Result.Meta["tool_reason"]), "(after 3 attempts)") {
		t.Errorf("got %+v, %v", a.Result, err)
	}
	mu.Lock()
	defer mu.Unlock()
	id := fmt.Sprint(call["call_id"])
	if want := []string{id + " 1", id + " 2", id + " 3"}; !slices.Equal(asked["soon"], want) || len(asked["always"]) != 3 {
		t.Errorf("the service was asked %q and %q; want %q", asked["soon"], asked["always"], want)
	}
}
