package main

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/testing/costtest"
	"github.com/orla-project/orla/internal/testing/kubetest"
)

// wanted skips a test that measures, unless ORLA_SCALE_MEASURE asks for it. It prints numbers for costs.go, and
// checks nothing.
func wanted(t *testing.T) {
	t.Helper()
	if os.Getenv("ORLA_SCALE_MEASURE") == "" {
		t.Skip("it prints the costs that costs.go has: ORLA_SCALE_MEASURE=1")
	}
}

// each prints what one of n operations takes of the processors of this process, or of others.
func each(t *testing.T, what string, n int, pids []int, do func()) time.Duration {
	t.Helper()
	sum := func() (all time.Duration) {
		for _, pid := range pids {
			all += costtest.CPU(pid)
		}
		return all
	}
	before := sum()
	do()
	one := (sum() - before) / time.Duration(n)
	t.Logf("%-60s %10.1f µs", what, float64(one)/1e3)
	return one
}

// certificate is one of a replica: ed25519, made at its start.
func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "replica"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, &about, &about, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}

const question = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"0123456789012345678901234567890123456789012345678901234567890123"}}}`

// What it costs both replicas together to pass a request on, and the memory of a connection between them.
func TestMeasureForwarding(t *testing.T) {
	wanted(t)
	cert := certificate(t)
	target := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, question)
	}))
	target.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13}
	target.StartTLS()
	defer target.Close()
	plain := httptest.NewServer(target.Config.Handler)
	defer plain.Close()
	to, err := url.Parse(target.URL)
	if err != nil {
		t.Fatal(err)
	}
	secure := &tls.Config{Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}
	passing := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     &http.Transport{TLSClientConfig: secure, MaxIdleConnsPerHost: 64, DisableCompression: true},
		FlushInterval: -1,
	}
	entry := httptest.NewServer(passing)
	defer entry.Close()
	const n, together = 40000, 16
	load := func(address string) func() {
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: together}}
		return func() {
			var all sync.WaitGroup
			for range together {
				all.Go(func() {
					for range n / together {
						answer, err := client.Post(address, "application/json", strings.NewReader(question))
						if err != nil {
							t.Error(err)
							return
						}
						_, _ = io.Copy(io.Discard, answer.Body)
						_ = answer.Body.Close()
					}
				})
			}
			all.Wait()
		}
	}
	load(entry.URL)()
	self := []int{os.Getpid()}
	direct := each(t, "a request, client and server", n, self, load(plain.URL))
	passed := each(t, "the same by another replica", n, self, load(entry.URL))
	t.Logf("%-60s %10.1f µs", "forwarding", float64(passed-direct)/1e3)

	var before, after runtime.MemStats
	memory := func(into *runtime.MemStats) { runtime.GC(); runtime.GC(); runtime.ReadMemStats(into) }
	memory(&before)
	const open = 400
	handshakes := each(t, "a new connection between replicas, both sides", open, self, func() {
		for range open {
			conn, err := tls.Dial("tcp", to.Host, secure)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
		}
	})
	memory(&after)
	_ = handshakes
	used := (after.HeapInuse + after.StackInuse) - (before.HeapInuse + before.StackInuse)
	t.Logf("%-60s %10.1f KiB", "an idle connection between replicas, both sides", float64(used)/open/1024)
}

// What it costs Orla to begin a session, which is what it costs to go on with one that another replica had.
func TestMeasureSessions(t *testing.T) {
	wanted(t)
	dir := t.TempDir()
	orla := filepath.Join(dir, "orla")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", orla, "github.com/orla-project/orla/cmd/orla")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tools := filepath.Join(dir, "tools")
	if err := os.Mkdir(tools, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tools, "hello.sh"), []byte("#!/bin/sh\necho hello\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	serve := exec.CommandContext(t.Context(), orla, "serve", "--tools-dir", tools, "--listen", address, "--socket", "none", "--log-level", "warn")
	serve.Env = append(os.Environ(), "STATE_DIRECTORY="+filepath.Join(dir, "state"), "HOME="+dir)
	serve.Stderr = os.Stderr
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = serve.Process.Signal(syscall.SIGTERM); _ = serve.Wait() }()
	post := func(body, session string) (string, error) {
		ask, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/mcp", strings.NewReader(body))
		if err != nil {
			return "", err
		}
		ask.Header.Set("Content-Type", "application/json")
		ask.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			ask.Header.Set("Mcp-Session-Id", session)
			ask.Header.Set("Mcp-Protocol-Version", "2025-11-25")
		}
		answer, err := http.DefaultClient.Do(ask)
		if err != nil {
			return "", err
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		return answer.Header.Get("Mcp-Session-Id"), answer.Body.Close()
	}
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	session := ""
	for deadline := time.Now().Add(30 * time.Second); session == "" && time.Now().Before(deadline); {
		session, _ = post(hello, "")
	}
	const n = 5000
	each(t, "a new session, with its initialized", n, []int{serve.Process.Pid}, func() {
		for range n {
			id, err := post(hello, "")
			if err != nil || id == "" {
				t.Fatal(err, id)
			}
			if _, err := post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, id); err != nil {
				t.Fatal(err)
			}
		}
	})
	each(t, "a ping", n, []int{serve.Process.Pid}, func() {
		for range n {
			if _, err := post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, session); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// What requests cost the API server and etcd.
func TestMeasureAPIServer(t *testing.T) {
	wanted(t)
	c := kubetest.Start(t)
	config, err := kubeapi.Load(c.Kubeconfig, "")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubeapi.New(config, "orla-scale", func(t http.RoundTripper) http.RoundTripper { return t })
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	pids := []int{pid(t, c, "kube-apiserver"), pid(t, c, "etcd")}
	leases := kubeapi.Resource{Group: "coordination.k8s.io", Version: "v1", Name: "leases"}
	const many = 20
	versions := make([]written, many)
	for i := range many {
		do(t, client, kubeapi.Request{Method: http.MethodPost, Of: leases, Namespace: "default", Body: lease(fmt.Sprint("r", i), written{})}, &versions[i])
	}
	const n = 4000
	renew := func() {
		var all sync.WaitGroup
		for i := range many {
			all.Go(func() {
				name, now := fmt.Sprint("r", i), versions[i]
				for range n / many {
					do(t, client, kubeapi.Request{Method: http.MethodPut, Of: leases, Namespace: "default", Name: name, Body: lease(name, now)}, &now)
				}
				versions[i] = now
			})
		}
		all.Wait()
	}
	renew()
	alone := each(t, "renew a Lease: API server and etcd", n, pids, renew)
	const watchers = 50
	watching, stop := context.WithCancel(t.Context())
	var ended, begun sync.WaitGroup
	for range watchers {
		begun.Add(1)
		ended.Go(func() {
			first := sync.OnceFunc(begun.Done)
			_ = client.Watch(watching, kubeapi.Request{Method: http.MethodGet, Of: leases, Namespace: "default", Query: url.Values{}}, func(kubeapi.Event) bool { first(); return true })
		})
	}
	begun.Wait()
	watched := each(t, fmt.Sprint("the same with ", watchers, " watches"), n, pids, renew)
	stop()
	ended.Wait()
	t.Logf("%-60s %10.1f µs", "an event to one watch", float64(watched-alone)/watchers/1e3)

	maps := kubeapi.Resource{Version: "v1", Name: "configmaps"}
	const objects = 1000
	text := strings.Repeat("a line of a Tool resource, with words\n", 26)
	each(t, "create an object of 1 KB", objects, pids, func() {
		for i := range objects {
			do(t, client, kubeapi.Request{Method: http.MethodPost, Of: maps, Namespace: "default", Body: kubeapi.Object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": kubeapi.Object{"name": fmt.Sprint("tool-", i)}, "data": kubeapi.Object{"a": text}}}, nil)
		}
	})
	const lists = 50
	each(t, "list 1 000 objects of 1 KB in pages of 500", lists, pids, func() {
		for range lists {
			next := ""
			for {
				var page struct {
					Metadata struct{ Continue string }
				}
				do(t, client, kubeapi.Request{Method: http.MethodGet, Of: maps, Namespace: "default", Query: url.Values{"limit": {"500"}, "continue": {next}}}, &page)
				if next = page.Metadata.Continue; next == "" {
					break
				}
			}
		}
	})
	const gets = 2000
	each(t, "get an object", gets, pids, func() {
		for i := range gets {
			do(t, client, kubeapi.Request{Method: http.MethodGet, Of: maps, Namespace: "default", Name: fmt.Sprint("tool-", i%objects)}, nil)
		}
	})
	pods := kubeapi.Resource{Version: "v1", Name: "pods"}
	const made = 300
	each(t, "create and delete a Pod that no node has", made, pids, func() {
		for i := range made {
			name := fmt.Sprint("p", i)
			do(t, client, kubeapi.Request{Method: http.MethodPost, Of: pods, Namespace: "default", Body: kubeapi.Object{
				"apiVersion": "v1", "kind": "Pod", "metadata": kubeapi.Object{"name": name},
				"spec": kubeapi.Object{"containers": []any{kubeapi.Object{"name": "a", "image": "a"}}},
			}}, nil)
			do(t, client, kubeapi.Request{Method: http.MethodDelete, Of: pods, Namespace: "default", Name: name}, nil)
		}
	})
}

func do(t *testing.T, client *kubeapi.Client, r kubeapi.Request, into any) {
	t.Helper()
	if err := client.Do(t.Context(), r, into); err != nil {
		t.Error(r.Method, r.Name, err)
	}
}

// written is what the API server says of a Lease that it has.
type written struct {
	Metadata struct{ ResourceVersion string }
	Spec     struct{ LeaseTransitions int }
}

func lease(name string, now written) kubeapi.Object {
	about := kubeapi.Object{"name": name}
	if now.Metadata.ResourceVersion != "" {
		about["resourceVersion"] = now.Metadata.ResourceVersion
	}
	return kubeapi.Object{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": about,
		"spec": kubeapi.Object{"holderIdentity": name, "leaseDurationSeconds": 10, "leaseTransitions": now.Spec.LeaseTransitions + 1},
	}
}

// pid is the process of the cluster that has a name.
func pid(t *testing.T, c *kubetest.Cluster, name string) int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(c.Dir, name+".pid"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
