package helm_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/kubetest"
)

// asking is a client that asks some Pod, the next one each time.
type asking struct {
	version string // of the protocol
	session string // "" for a version without sessions
	at      int
}

// begin makes a client of a version, which has begun its session at a Pod.
func begin(t *testing.T, pod, version string) *asking {
	t.Helper()
	a := &asking{version: version}
	if version < "2026" {
		status, answer, header := a.ask(t.Context(), pod, fmt.Sprintf(
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`, version))
		if a.session = header.Get("Mcp-Session-Id"); status != http.StatusOK || a.session == "" {
			t.Fatalf("initialize: %d %s", status, answer)
		}
	}
	return a
}

// ask sends a message to a Pod. A status of 0 means that nothing was answered.
func (a *asking) ask(ctx context.Context, pod, message string) (status int, answer string, header http.Header) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+pod+":8080/mcp", strings.NewReader(message))
	if err != nil {
		return 0, err.Error(), nil
	}
	q.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	if a.session != "" {
		q.Header.Set("Mcp-Session-Id", a.session)
		q.Header.Set("Mcp-Protocol-Version", a.version)
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error(), nil
	}
	return resp.StatusCode, string(text), resp.Header
}

const listTools = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`

// listed asks for the tools, once.
func (a *asking) listed(ctx context.Context, pod string) (lost bool, err error) {
	status, answer, _ := a.ask(ctx, pod, listTools)
	if status != http.StatusOK || !strings.Contains(answer, `"hello"`) {
		return status == http.StatusNotFound || status == http.StatusUnauthorized, fmt.Errorf("%s: %d %s", pod, status, answer)
	}
	return false, nil
}

// known checks that replicas know each other: each Pod answers for each session, also after all Pods were replaced while
// clients went on (SPEC P4).
func known(t *testing.T, c *kubetest.Cluster, onCluster func(...string), given string) {
	t.Helper()
	onCluster("upgrade", "orla", chart, "--values", given, "--set", "kubernetes.replicas=true", "--set", "replicas=3")
	all := pods(t, c, 3)
	var clients []*asking
	for _, pod := range all {
		for _, version := range []string{"2025-11-25", "2026-07-28"} {
			a := begin(t, pod, version)
			clients = append(clients, a)
			for _, other := range all {
				if _, err := a.listed(t.Context(), other); err != nil {
					t.Errorf("a client of %s that began at %s: %v", version, pod, err)
				}
			}
		}
	}
	var now atomic.Pointer[[]string] // the Pods behind the Service
	now.Store(&all)
	var working sync.WaitGroup
	over := make(chan struct{})
	watching, unwatch := context.WithCancel(t.Context())
	defer unwatch()
	watch := watchPods(watching, t, c)
	working.Go(func() {
		for found := range watch {
			if len(found) > 0 {
				now.Store(&found)
			}
		}
	})
	var answers atomic.Int64
	for _, a := range clients {
		working.Go(func() {
			failed := time.Time{} // since when each attempt fails
			for {
				list := *now.Load()
				a.at++
				switch lost, err := a.listed(t.Context(), list[a.at%len(list)]); {
				case err == nil:
					failed = time.Time{}
					answers.Add(1)
				case lost, !failed.IsZero() && time.Since(failed) > 30*time.Second:
					t.Errorf("a client of %s: %v", a.version, err)
					return
				case failed.IsZero():
					failed = time.Now()
				}
				select {
				case <-over:
					return
				case <-time.After(50 * time.Millisecond):
				}
			}
		})
	}
	out, err := c.Try("", "rollout", "restart", "--namespace", "tools", "deployment/orla")
	if err == nil {
		out, err = c.Try("", "rollout", "status", "--namespace", "tools", "deployment/orla", "--timeout=180s")
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	last := pods(t, c, 3)
	close(over)
	unwatch()
	working.Wait()
	for _, pod := range last {
		for _, old := range all {
			if pod == old {
				t.Errorf("the Pod %s was not replaced", pod)
			}
		}
		for _, a := range clients {
			if _, err := a.listed(t.Context(), pod); err != nil {
				t.Errorf("a client of %s: %v", a.version, err)
			}
		}
	}
	t.Logf("%d clients, %d answers", len(clients), answers.Load())
	may(t, c, map[string]string{
		"create leases": "yes", "watch leases": "yes", "get secrets/orla-sessions": "yes", "get secrets/orla-token": "no", "list secrets": "no",
		"get configmaps": "no", "create leases -n default": "no",
	})
}
