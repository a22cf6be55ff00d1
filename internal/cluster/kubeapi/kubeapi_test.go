package kubeapi_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// server is an API server that answers with how it was asked.
func server(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) (address string, ca []byte) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(answer))
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func file(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil { //nolint:gosec // some are programs
		t.Fatal(err)
	}
	return path
}

// config is a kubeconfig for a server and the fields of a user.
func config(address string, ca []byte, user string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Config\npreferences: {}\ncurrent-context: 1\ncontexts: [{name: 1, context: {cluster: c, user: 12, namespace: x}}]\n"+
		"clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]\nusers: [{name: 12, user: {%s}}]\nmore: [1]\n",
		address, base64.StdEncoding.EncodeToString(ca), user)
}

func connect(t *testing.T, path string) *kubeapi.Client {
	t.Helper()
	c, err := kubeapi.Load(path, "")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubeapi.New(c, "orla", func(next http.RoundTripper) http.RoundTripper { return next })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

var pods = kubeapi.Resource{Version: "v1", Name: "pods"}

func list(t *testing.T, c *kubeapi.Client) error {
	t.Helper()
	return c.Do(t.Context(), kubeapi.Request{Method: http.MethodGet, Of: pods, Namespace: "tools"}, nil)
}

// certificate makes a certificate for a client, and its key.
func certificate(t *testing.T, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}))
}

// SPEC-TOOLS 7.4: a kubeconfig means what it means to kubectl.
func TestT74WhoAsks(t *testing.T) {
	got := make(chan string, 1)
	address, ca := server(t, func(_ http.ResponseWriter, r *http.Request) {
		said := []string{r.Header.Get("Authorization")}
		for _, name := range slices.Sorted(maps.Keys(r.Header)) {
			if strings.HasPrefix(name, "Impersonate") {
				said = append(said, name+"="+strings.Join(r.Header[name], ","))
			}
		}
		for _, c := range r.TLS.PeerCertificates {
			said = append(said, c.Subject.CommonName)
		}
		got <- strings.Join(said, " ")
	})
	dir := t.TempDir()
	cert, key := certificate(t, "ada")
	file(t, filepath.Join(dir, "cert.pem"), cert)
	file(t, filepath.Join(dir, "key.pem"), key)
	file(t, filepath.Join(dir, "token"), " from-file\n")
	encoded := base64.StdEncoding.EncodeToString
	execPlugin := func(body, more string) string {
		path := file(t, filepath.Join(dir, fmt.Sprintf("plugin%d.sh", len(body))), "#!/bin/sh\n"+body)
		return fmt.Sprintf("exec: {apiVersion: client.authentication.k8s.io/v1, command: ./%s, interactiveMode: Never%s}", filepath.Base(path), more)
	}
	answers := func(status string) string {
		return `echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":` + status + `}'`
	}
	for name, test := range map[string]struct{ user, want string }{
		"nobody":          {"", ""},
		"a token":         {"token: abc", "Bearer abc"},
		"digits":          {"token: 12345", "Bearer 12345"},
		"a file":          {"token: abc, tokenFile: token", "Bearer from-file"},
		"a file too few":  {"token: abc, tokenFile: none", "Bearer abc"},
		"a password":      {"username: ada, password: 1", "Basic " + encoded([]byte("ada:1"))},
		"as another":      {"token: x, as: bob, as-uid: 7, as-groups: [g, h], as-user-extra: {acme.com/p q: [v]}", "Bearer x Impersonate-Extra-Acme.com%2fp%20q=v Impersonate-Group=g,h Impersonate-Uid=7 Impersonate-User=bob"},
		"a certificate":   {"client-certificate: cert.pem, client-key: key.pem", " ada"},
		"it as data":      {"client-certificate-data: " + encoded([]byte(cert)) + ", client-key-data: " + encoded([]byte(key)), " ada"},
		"a plugin":        {execPlugin(answers(`{"token":"of-plugin"}`), ""), "Bearer of-plugin"},
		"its arguments":   {execPlugin(`[ "$1$2$A" = x3y ] && `+answers(`{"token":"args"}`), ", args: [x, 3], env: [{name: A, value: y}]"), "Bearer args"},
		"it is told":      {execPlugin(`case $KUBERNETES_EXEC_INFO in *'"interactive":false'*) ;; *) exit 1;; esac; case $KUBERNETES_EXEC_INFO in *'"server":"https:'*) `+answers(`{"token":"told"}`)+`;; esac`, ", provideClusterInfo: true"), "Bearer told"},
		"its certificate": {execPlugin("cat <<E\n"+`{"apiVersion":"client.authentication.k8s.io/v1","status":{"clientCertificateData":"`+strings.ReplaceAll(cert, "\n", `\n`)+`","clientKeyData":"`+strings.ReplaceAll(key, "\n", `\n`)+`"}}`+"\nE\n", ""), " ada"},
	} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, file(t, filepath.Join(dir, "config"), config(address, ca, test.user)))
			if err := list(t, c); err != nil {
				t.Fatal(err)
			}
			if said := <-got; !strings.EqualFold(said, test.want) {
				t.Errorf("%q; want %q", said, test.want)
			}
		})
	}
}

// A plugin runs again when its credentials have expired or are refused, and not before.
func TestT74PluginRunsAgain(t *testing.T) {
	var refuse atomic.Bool
	address, ca := server(t, func(w http.ResponseWriter, _ *http.Request) {
		if refuse.Load() {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	dir := t.TempDir()
	runs := filepath.Join(dir, "runs")
	write := func(expires time.Time) *kubeapi.Client {
		file(t, filepath.Join(dir, "plugin"), "#!/bin/sh\necho >> "+runs+"\n"+
			`echo '{"apiVersion":"client.authentication.k8s.io/v1beta1","status":{"token":"t","expirationTimestamp":"`+expires.UTC().Format(time.RFC3339)+`"}}'`)
		return connect(t, file(t, filepath.Join(dir, "config"), config(address, ca, "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: ./plugin}")))
	}
	count := func() int {
		raw, _ := os.ReadFile(runs)
		return len(raw)
	}
	c := write(time.Now().Add(time.Hour))
	for range 3 {
		if err := list(t, c); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(); n != 1 {
		t.Errorf("it ran %d times; want once", n)
	}
	refuse.Store(true)
	if failed, ok := errors.AsType[*kubeapi.StatusError](list(t, c)); !ok || failed.Code != http.StatusUnauthorized {
		t.Errorf("%v; want 401", failed)
	}
	refuse.Store(false)
	if err := list(t, c); err != nil || count() != 2 {
		t.Errorf("%v; it ran %d times; want twice", err, count())
	}
	c = write(time.Now().Add(-time.Hour))
	for range 2 {
		if err := list(t, c); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(); n < 4 {
		t.Errorf("it ran %d times; want once more for each request", n)
	}
}

// SPEC-TOOLS 7.4: what is wrong with a kubeconfig is said, without its content.
func TestT74WrongConfigs(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	const secret = "hunter2"
	dir := t.TempDir()
	for user, want := range map[string]string{
		"token: hunter2, username: x": "one is allowed",
		"token: [hunter2]":            "wrong type",
		"token: {":                    "not valid YAML",
		"client-certificate: /nonexistent, token: hunter2": "belong together",
		"as-uid: hunter2": "need as",
		"auth-provider: {name: gcp}, token: hunter2":                                               `"gcp"`,
		"exec: {command: x, apiVersion: v1}":                                                       "apiVersion",
		"exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}":              "no command",
		"exec: {command: x, apiVersion: client.authentication.k8s.io/v1}":                          "interactiveMode",
		"exec: {command: x, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Always}": "terminal",
	} {
		_, err := kubeapi.Load(file(t, filepath.Join(dir, "config"), config("https://127.0.0.1:1", nil, user)), "")
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v; want %q", user, err, want)
		}
	}
	for name, text := range map[string]string{
		"no such cluster": "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n",
		"no server":       "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\nclusters: [{name: c, cluster: {}}]\n",
		"no such user":    "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: x}}]\n",
		"no such context": "current-context: b\n",
	} {
		if _, err := kubeapi.Load(file(t, filepath.Join(dir, "config"), text), ""); err == nil || errors.Is(err, kubeapi.ErrNone) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{"", "apiVersion: v1\nkind: Config\n", "{}"} {
		if _, err := kubeapi.Load(file(t, filepath.Join(dir, "config"), text), ""); !errors.Is(err, kubeapi.ErrNone) {
			t.Errorf("%q: %v; want ErrNone", text, err)
		}
	}
}

// Of several files in $KUBECONFIG, the first that says something counts, and one that is missing does not matter.
func TestT74SeveralFiles(t *testing.T) {
	asked := make(chan string, 1)
	address, ca := server(t, func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.URL.String() + " " + r.Header.Get("Authorization")
	})
	dir := t.TempDir()
	first := file(t, filepath.Join(dir, "first"), "current-context: both\nusers: [{name: u, user: {token: first}}]\n")
	second := file(t, filepath.Join(dir, "second"), fmt.Sprintf("current-context: other\nusers: [{name: u, user: {token: second}}]\n"+
		"contexts: [{name: both, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: '%s/prefix/', certificate-authority: ca}}]\n", address))
	file(t, filepath.Join(dir, "ca"), string(ca))
	t.Setenv("KUBECONFIG", strings.Join([]string{filepath.Join(dir, "none"), first, second}, string(filepath.ListSeparator)))
	c := connect(t, "")
	if err := c.Do(t.Context(), kubeapi.Request{
		Method: http.MethodGet, Of: kubeapi.Resource{Group: "batch", Version: "v1", Name: "jobs"}, Namespace: "tools", Name: "j", Part: "status", Query: url.Values{"limit": {"1"}},
	}, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := <-asked, "/prefix/apis/batch/v1/namespaces/tools/jobs/j/status?limit=1 Bearer first"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

// An error has the API's reason, or the code of an answer that is not the API's.
func TestT74Errors(t *testing.T) {
	answers := make(chan string, 1)
	address, ca := server(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, <-answers)
	})
	c := connect(t, file(t, filepath.Join(t.TempDir(), "config"), config(address, ca, "token: x")))
	for answer, want := range map[string]struct {
		exists  bool
		message string
	}{
		`{"kind":"Status","reason":"AlreadyExists","message":"it is there"}`: {true, "it is there"},
		`{"kind":"Status","reason":"Conflict","message":"changed"}`:          {false, "changed"},
		"<html>":   {true, "<html>"},
		"":         {true, "409 Conflict"},
		`{"a": 1}`: {true, `{"a": 1}`},
	} {
		answers <- answer
		failed, ok := errors.AsType[*kubeapi.StatusError](list(t, c))
		if !ok || failed.Means(http.StatusConflict, "AlreadyExists") != want.exists || failed.Message != want.message || failed.Code != http.StatusConflict {
			t.Errorf("%s: %+v; want %+v", answer, failed, want)
		}
	}
}

// A pause that the API asks for is kept, unless the time is over before.
func TestT74RetryAfter(t *testing.T) {
	var n atomic.Int32
	address, ca := server(t, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) == 1 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		} else if n.Load() > 2 {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	c := connect(t, file(t, filepath.Join(t.TempDir(), "config"), config(address, ca, "")))
	if err := list(t, c); err != nil || n.Load() != 2 {
		t.Errorf("%v after %d requests", err, n.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Do(ctx, kubeapi.Request{Method: http.MethodGet, Of: pods}, nil) }()
	testkit.Eventually(t, "the third request has come", func() bool { return n.Load() == 3 })
	cancel()
	if err := <-done; err == nil {
		t.Error("no error")
	}
}

// SPEC-TOOLS 7.4, SPEC S2: an API server that lets the window of a request grow past its bound ends that request, and Orla goes on.
func TestS2AWindowThatGrowsPastItsBoundEndsTheRequest(t *testing.T) {
	certified := httptest.NewUnstartedServer(http.NotFoundHandler())
	certified.StartTLS()
	defer certified.Close()
	on, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = on.Close() }()
	go func() {
		for conn, err := on.Accept(); err == nil; conn, err = on.Accept() {
			go testkit.OverflowWindows(conn)
		}
	}()
	roots := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certified.Certificate().Raw})
	c := connect(t, file(t, filepath.Join(t.TempDir(), "config"), config("https://"+on.Addr().String(), roots, "")))
	failed := make(chan error, 1)
	go func() {
		failed <- c.Do(t.Context(), kubeapi.Request{Method: http.MethodPost, Of: pods, Namespace: "tools", Body: kubeapi.Object{"kind": "Pod"}}, nil)
	}()
	select {
	case err := <-failed:
		if err == nil || !strings.Contains(err.Error(), "FLOW_CONTROL_ERROR") {
			t.Errorf("the request ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the request does not end")
	}
	c.Close() // it has to come back
}
