package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/costtest"
)

// repeated joins n texts by commas.
func repeated(n int, text func(i int) string) string {
	var out strings.Builder
	for i := range n {
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteString(text(i))
	}
	return out.String()
}

// SPEC S1: what strangers send costs the whole program at most in proportion: 2n takes
// at most three times the CPU time and the peak of memory that n takes.
func TestS1CostGrowsInProportion(t *testing.T) {
	if detectsRaces {
		t.Skip("the cost is that of the race detector")
	}
	request := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hello",` + params + `}}`
	}
	member := func(i int) string { return fmt.Sprintf(`"k%d":%d`, i, i) }
	for _, row := range []struct {
		name string
		n    int
		body func(n int) string
	}{
		{"a request's bytes", 1 << 20, func(n int) string { return request(`"arguments":{}` + strings.Repeat(" ", n)) }},
		{"members of _meta", 2000, func(n int) string { return request(`"arguments":{},"_meta":{` + repeated(n, member) + `}`) }},
		{"members of _meta that are too many", 100_000, func(n int) string { return request(`"arguments":{},"_meta":{` + repeated(n, member) + `}`) }},
		{"members of params", 20_000, func(n int) string { return request(`"arguments":{},` + repeated(n, member)) }},
		{"members of a message", 50_000, func(n int) string {
			return `{"jsonrpc":"2.0","id":1,"method":"ping",` + repeated(n, member) + `}`
		}},
		{"depth", 20_000, func(n int) string {
			return request(`"arguments":{"x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`)
		}},
		{"members of an answer's _meta", 10_000, func(n int) string {
			return strings.Replace(request(fmt.Sprintf(`"arguments":{"n":%d}`, n)), "hello", "talks", 1)
		}},
		{"messages of a batch", 50, func(n int) string {
			return "[" + repeated(n, func(i int) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, i) }) + "]"
		}},
		{"messages of a batch that are too many", 50_000, func(n int) string {
			return "[" + repeated(n, func(i int) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i) }) + "]"
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			tools := t.TempDir()
			writeTool(t, tools, "hello.sh", "#!/bin/sh\necho hello\n")
			if strings.Contains(row.body(1), "talks") {
				newPack(t, tools, "talks", "", map[string]string{"answer.py": says(`{"content": [], "_meta": {"k%d" % i: i for i in range(params["arguments"]["n"])}}`)})
			}
			o := serveOrla(t, tools)
			small, large := row.body(row.n), row.body(2*row.n)
			var costs [2]costtest.Cost
			for round := range 3 {
				for i, body := range []string{small, large} {
					cost, received := o.costOf(body)
					if strings.Contains(body, "talks") && received < int64(row.n) {
						t.Fatalf("the answer has %d bytes: the capsule was not heard", received)
					}
					if round == 1 { // the first one warms up
						costs[i] = cost
					} else if round > 1 {
						costs[i] = costtest.Cost{CPU: min(costs[i].CPU, cost.CPU), Bytes: min(costs[i].Bytes, cost.Bytes)}
					}
				}
			}
			costtest.Compare(t, row.n, costs[0], costs[1])
		})
	}
}

// costOf sends a body some times, and returns the CPU time and the peak of memory that
// Orla itself needs for it, and the bytes of the last answer.
func (o *running) costOf(body string) (_ costtest.Cost, received int64) {
	o.t.Helper()
	const times = 4
	pid := o.cmd.Process.Pid
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil { // resets VmHWM
		o.t.Fatal(err)
	}
	before := costtest.CPU(pid)
	client := &http.Client{Timeout: 4 * patience}
	for range times {
		req, err := http.NewRequest(http.MethodPost, o.url, strings.NewReader(body))
		if err != nil {
			o.t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		resp, err := client.Do(req)
		if err != nil {
			o.t.Fatal(err)
		}
		received, _ = io.Copy(io.Discard, resp.Body) // it may be refused
		_ = resp.Body.Close()
	}
	client.CloseIdleConnections()
	return costtest.Cost{CPU: costtest.CPU(pid) - before, Bytes: o.peak()}, received
}

// peak is the most memory that Orla has had since it was reset.
func (o *running) peak() uint64 {
	o.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", o.cmd.Process.Pid))
	if err != nil {
		o.t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	var kilobytes uint64
	if _, err := fmt.Sscan(after, &kilobytes); err != nil {
		o.t.Fatal(err)
	}
	return kilobytes << 10
}
