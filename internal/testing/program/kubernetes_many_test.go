package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// manyTools is how many Tool resources there are.
const manyTools = 1000

// manyTool is one of them: what a folder has in a file, and a cluster as an object.
func manyTool(n int, service string) map[string]any {
	properties := map[string]any{}
	for i := range 4 {
		properties[fmt.Sprintf("field_%d", i)] = map[string]any{"type": "string", "description": strings.Repeat("What it is good for. ", 5)}
	}
	return map[string]any{
		"apiVersion": "orloj.dev/v1", "kind": "Tool", "metadata": map[string]any{"name": fmt.Sprintf("many-%04d", n)},
		"spec": map[string]any{
			"endpoint": fmt.Sprintf("%s/many/%d", service, n), "description": strings.Repeat("One of many tools. ", 10),
			"input_schema": map[string]any{"type": "object", "properties": properties},
		},
	}
}

// SPEC P2: 1 000 Tool resources in an API server take as much memory, and lists of them as much processor time, as in a folder. A
// faulty one among them is said to be so, and affects no other.
func testManyTools(t *testing.T, c *k8s, service string) {
	c.Kubectl("", "-n", "tools", "delete", "tools", "--all") // a page has 1 000
	folder := t.TempDir()
	var documents []string
	for n := range manyTools {
		raw, err := json.Marshal(manyTool(n, service))
		if err != nil {
			t.Fatal(err)
		}
		testkit.WriteTool(t, folder, fmt.Sprintf("many-%04d.yaml", n), string(raw))
		documents = append(documents, string(raw))
	}
	faulty, err := json.Marshal(manyTool(manyTools, "http://169.254.169.254"))
	if err != nil {
		t.Fatal(err)
	}
	documents = append(documents, string(faulty))
	testkit.WriteTool(t, folder, "faulty.yaml", string(faulty))
	tools := kubeapi.Resource{Group: "orloj.dev", Version: "v1", Name: "tools"}
	var creating sync.WaitGroup
	for part := range slices.Chunk(documents, len(documents)/8) {
		creating.Go(func() {
			for _, document := range part {
				var made struct{ Metadata struct{ Name string } }
				create := kubeapi.Request{Method: http.MethodPost, Of: tools, Namespace: "tools", Body: json.RawMessage(document)}
				if err := c.client.Do(t.Context(), create, &made); err != nil {
					t.Error(err)
					continue
				}
				if document == string(faulty) {
					continue
				}
				// Orla writes 20 in a second, so another one has done so before.
				served := kubeapi.Request{Method: http.MethodPatch, Of: tools, Namespace: "tools", Name: made.Metadata.Name, Part: "status", Body: json.RawMessage(`{"status":{"conditions":[
					{"type":"Ready","status":"True","reason":"served","message":"","observedGeneration":1,"lastTransitionTime":"2026-01-02T15:04:05Z"}]}}`)}
				if err := c.client.Do(t.Context(), served, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	creating.Wait()

	const garbage = "GOGC=50" // so that what is measured is mostly in use
	cluster, disk := c.serve(t, garbage), serveOrla(t, folder, garbage)
	all := func(o *running) (n int, queries []string) {
		for query := "{}"; query != ""; {
			queries = append(queries, query)
			a, err := o.post("tools/list", query)
			if err != nil || a.Result == nil {
				t.Fatalf("%v %+v", err, a)
			}
			for _, tool := range a.Result.Tools {
				if strings.HasPrefix(tool.Name, "many-") {
					n++
				}
			}
			if query = ""; a.Result.NextCursor != "" {
				query = fmt.Sprintf(`{"cursor":%q}`, a.Result.NextCursor)
			}
		}
		return n, queries
	}
	both := []*running{disk, cluster}
	for i, o := range both {
		testkit.Eventually(t, "all tools are listed", func() bool { n, _ := all(o); return n == manyTools })
		if got := o.mustCall(fmt.Sprintf("many-%04d", 7+i)); !strings.HasPrefix(got, fmt.Sprintf("/many/%d", 7+i)) {
			t.Errorf("a call: %s", got)
		}
	}
	c.awaitReady(fmt.Sprintf("tool/many-%04d", manyTools), "False invalid 1")
	const rounds, lists = 11, 100
	var each [2][]time.Duration
	for range rounds { // in turn, so that what the machine does beside affects both
		for i, o := range both {
			_, queries := all(o)
			if len(queries) != 1 {
				t.Fatalf("%d pages", len(queries))
			}
			before := ran(t, o.cmd.Process.Pid)
			for range lists {
				for _, query := range queries {
					skipAnswer(t, o, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":%s}`, query))
				}
			}
			each[i] = append(each[i], ran(t, o.cmd.Process.Pid)-before)
		}
	}
	memory := [2]int{ownMemory(t, disk.cmd.Process.Pid), ownMemory(t, cluster.cmd.Process.Pid)}
	var spent [2]time.Duration // the median, since each of them also does other things at times
	for i := range each {
		slices.Sort(each[i])
		spent[i] = each[i][rounds/2]
	}
	t.Logf("%d tools: %d KiB from a folder, %d KiB from a cluster; %d lists take %s and %s of a processor", manyTools, memory[0], memory[1], lists, spent[0], spent[1])
	const more = 5 // KiB: 0.7 are in use, see TestP2ManyResourcesInMemory; the rest is garbage, and room that it has left
	if memory[1] > memory[0]+more*manyTools {
		t.Errorf("Orla has %d KiB with tools of a cluster, and %d KiB with the same of a folder", memory[1], memory[0])
	}
	if spent[1] > spent[0]*5/4 {
		t.Errorf("the lists take %s with tools of a cluster, and %s with the same of a folder", spent[1], spent[0])
	}
}

// skipAnswer makes a request and reads the answer without decoding it.
func skipAnswer(t *testing.T, o *running, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, o.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	if _ = resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK || n < 1000 {
		t.Fatalf("%d, %d bytes, %v", resp.StatusCode, n, err)
	}
}

// ran is how long the threads of a process have run, which /proc/PID/stat has in parts of 10 ms alone.
func ran(t *testing.T, pid int) (total time.Duration) {
	t.Helper()
	threads, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "schedstat"))
	if err != nil || len(threads) == 0 {
		t.Fatal(threads, err)
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if errors.Is(err, fs.ErrNotExist) { // it has ended
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		total += time.Duration(n)
	}
	return total
}

// ownMemory is how much memory a process has that is not part of a file, in KiB: how much of the program counts as its own depends
// on how many others run.
func ownMemory(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\nAnonymous:")
	kib, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib
}
