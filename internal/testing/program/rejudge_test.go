package program

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC-TOOLS 8.6: a call that waits for a place, for a capsule or for its next attempt ends when rules deny it, and
// nothing of it runs. A call that runs goes on, and so does a wait that the rules say nothing of.
func TestT86RulesJudgeWaitingCallsAgain(t *testing.T) {
	t.Parallel()
	var tries atomic.Int32
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		tries.Add(1)
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(service.Close)
	r := serveRuled(t, ruledDocuments, "max_concurrent_calls: 1\nqueue_timeout: 2m\ntimeout: 5m\ncallers:\n  - {name: eve, toolsets: []}\n")
	mark := filepath.Join(r.dir, "ran")
	tools := r.dir + "/tools"
	testkit.WriteTool(t, tools, "slow", "#!/bin/sh\necho slow >>'"+mark+"'\nwhile ! [ -e '"+r.dir+"/go' ]; do sleep 0.05; done\necho slow did exit_code\n")
	testkit.WriteTool(t, tools, "next", "#!/bin/sh\necho next >>'"+mark+"'\n")
	testkit.WriteTool(t, tools, "free", "#!/bin/sh\necho free did exit_code\n")
	r.write("tools/far.yaml", "apiVersion: orloj.dev/v1\nkind: Tool\nmetadata: {name: far}\nspec:\n  type: http\n  description: Far.\n  endpoint: "+service.URL+
		"\n  operation_classes: [read]\n  runtime: {timeout: 60s, retry: {max_attempts: 5, backoff: 1s, max_backoff: 300s, jitter: none}}\n")
	testkit.WriteTool(t, tools+"/late", "main.py", "#!/usr/bin/env python3\nimport sys, time\ntime.sleep(600)\n")
	r.write("tools/late/tool.yaml", "name: late\nversion: 1.0.0\ndescription: Late.\nentrypoint: main.py\nmcp: {input_schema: {type: object}}\nruntime: {mode: capsule, startup_timeout_ms: 600000}\n")
	r.reload()

	answers := map[string]chan string{}
	call := func(tool string) {
		answer := make(chan string, 1)
		answers[tool] = answer
		go func() { answer <- r.asks("eve", "tools/call", `{"name":"`+tool+`"}`) }()
	}
	call("slow")
	testkit.Eventually(t, "the first call runs", func() bool {
		ran, _ := os.ReadFile(mark)
		return string(ran) == "slow\n"
	})
	waiting := []string{"next", "far", "late"}
	for _, tool := range append([]string{"free"}, waiting...) {
		call(tool)
	}
	testkit.Eventually(t, "all are in flight, and one has been tried", func() bool {
		return strings.Contains(r.mustOrla("status", "--json"), `"in_flight": 5`) && tries.Load() == 1
	})
	r.write("tools/no.yaml", "apiVersion: orloj.dev/v1\nkind: AgentPolicy\nmetadata: {name: no}\nspec: {target_systems: [eve], blocked_tools: ["+strings.Join(append(waiting, "slow"), ", ")+"]}\n")
	r.reload()
	for _, tool := range waiting {
		if answer := <-answers[tool]; !strings.Contains(answer, "tool_permission_denied: eve may not call "+tool) || !strings.Contains(answer, "permission_denied") {
			t.Errorf("%s: %s", tool, answer)
		}
	}
	select {
	case answer := <-answers["slow"]:
		t.Errorf("the call that runs has ended: %s", answer)
	case answer := <-answers["free"]:
		t.Errorf("a call that no rule is about has ended: %s", answer)
	default:
	}
	testkit.WriteTool(t, r.dir, "go", "")
	for _, tool := range []string{"slow", "free"} {
		if answer := <-answers[tool]; !strings.Contains(answer, tool+" did") {
			t.Errorf("%s: %s", tool, answer)
		}
	}
	if ran, _ := os.ReadFile(mark); string(ran) != "slow\n" || tries.Load() != 1 {
		t.Errorf("ran %q, %d attempts", ran, tries.Load())
	}
}
