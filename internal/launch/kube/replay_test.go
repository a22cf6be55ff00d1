package kube_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/kube"
)

// tape answers as a real API server (1.36, with its Job controller and garbage
// collector) once did, request by request, and compares what it is asked.
// TestT74RealAPI recorded it.
type tape struct {
	*httptest.Server

	t       *testing.T
	closing chan struct{}

	mu   sync.Mutex // guards the fields that follow
	left []*exchange
	name string // the Job's; the recorded one has another
	was  string
	job  *exchange // that made the Job; nil before
}

func newTape(t *testing.T, name string) *tape {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "recorded", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	p := &tape{t: t, closing: make(chan struct{})}
	if err := json.Unmarshal(raw, &p.left); err != nil {
		t.Fatal(err)
	}
	p.Server = httptest.NewTLSServer(p)
	t.Cleanup(func() {
		close(p.closing)
		p.Close()
	})
	return p
}

// ServeHTTP answers with what was recorded for the request, wherever it stands:
// what is done side by side has no order.
func (p *tape) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/jobs") && p.name == "" {
		p.name = nameIn(body)
		for _, e := range p.left {
			if e.Method == http.MethodPost && strings.HasSuffix(e.Path, "/jobs") {
				p.was = nameIn(e.Body)
			}
		}
	}
	var found *exchange
	for i, e := range p.left {
		if e.Method == r.Method && p.now(e.Path) == r.URL.Path {
			found = e
			p.left = append(p.left[:i:i], p.left[i+1:]...)
			break
		}
	}
	var made *exchange // the Job, where that is asked for
	if jobs, name := path.Split(r.URL.Path); r.Method == http.MethodGet && name == p.name && strings.HasSuffix(jobs, "/jobs/") {
		made = p.job
	}
	if found != nil && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/jobs") {
		p.job = found
	}
	p.mu.Unlock()
	if found == nil {
		if r.Method == http.MethodDelete {
			answer(w, 404, status(404, "NotFound", "it is deleted"))
			return
		}
		if made != nil { // it is asked for where a watch says nothing for long
			_, _ = io.WriteString(w, p.now(made.Answer))
			return
		}
		p.t.Errorf("%s %s was not recorded", r.Method, r.URL)
		answer(w, 404, status(404, "NotFound", "it was not recorded"))
		return
	}
	if want, got := plain(p.now(string(found.Body))), plain(string(body)); want != got {
		p.t.Errorf("%s %s:\n got %s\nwant %s", r.Method, r.URL.Path, got, want)
	}
	w.Header().Set("Content-Type", found.Type)
	w.WriteHeader(found.Status)
	_, _ = io.WriteString(w, p.now(found.Answer))
	if r.URL.Query().Get("watch") == "" {
		return
	}
	w.(http.Flusher).Flush()
	select {
	case <-r.Context().Done():
	case <-p.closing:
	}
}

// now puts the Job's name in place of the recorded one.
func (p *tape) now(text string) string {
	if p.was == "" {
		return text
	}
	return strings.ReplaceAll(text, p.was, p.name)
}

func nameIn(body []byte) string {
	var o struct{ Metadata struct{ Name string } }
	_ = json.Unmarshal(body, &o)
	return o.Metadata.Name
}

// ours are labels whose values are those of this process and this machine.
var ours = regexp.MustCompile(`"(orla\.dev/(?:life|instance))":"[^"]*"`)

// plain is JSON in one form, without what differs from run to run.
func plain(text string) string {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	raw, _ := json.Marshal(v)
	return ours.ReplaceAllString(string(raw), `"$1":""`)
}

func (p *tape) cluster(t *testing.T) *kube.Cluster {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	writeCA(t, ca, p.Certificate().Raw)
	config := write(t, "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
		"clusters: [{name: c, cluster: {server: \""+p.URL+"\", certificate-authority: \""+ca+"\"}}]\nusers: [{name: u, user: {token: x}}]\n")
	return open(t, kube.Options{Kubeconfig: config, Instance: "/tools"})
}

// SPEC-TOOLS 7.4: the client says to an API server what it said to a real one,
// and understands what that answered.
func TestT74Recorded(t *testing.T) {
	t.Run("a call", func(t *testing.T) {
		p := newTape(t, "a-call")
		out, exit := run(t, p.cluster(t).Launcher(weather), hello)
		if out != "sunny\n" || exit != (launch.Exit{Code: 3}) {
			t.Errorf("%q, %+v", out, exit)
		}
		if len(p.left) > 0 {
			t.Errorf("%d requests were not made", len(p.left))
		}
	})
	t.Run("an image that is not there", func(t *testing.T) {
		p := newTape(t, "image-pull")
		err := startErr(t, p.cluster(t).Launcher(weather), 20*time.Second)
		if err.Code != fault.IsolationUnavailable || !strings.Contains(err.Reason, "manifest unknown") {
			t.Error(err)
		}
	})
	t.Run("a definition that is refused", func(t *testing.T) {
		p := newTape(t, "refused")
		spec := hello
		spec.Env = []string{"A\x01B=x"}
		if _, err := p.cluster(t).Launcher(weather).Start(t.Context(), spec); fault.CodeOf(err) != fault.RuntimePolicyInvalid {
			t.Error(err)
		}
	})
}
