package kubeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// signed is a RoundTripper that says who asks.
type signed struct {
	user   *user
	tokens *tokenFile // nil if the user has none
	plugin *source    // nil if the user has none
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (s signed) RoundTrip(r *http.Request) (*http.Response, error) {
	token := string(s.user.Token)
	if s.tokens != nil {
		read, err := s.tokens.token(token)
		if err != nil {
			return nil, err
		}
		token = read
	}
	if s.plugin != nil && token == "" && s.user.Name == "" {
		got, err := s.plugin.credentials(r.Context())
		if err != nil {
			return nil, err
		}
		token = got.token
	}
	r = r.Clone(r.Context())
	switch {
	case token != "":
		r.Header.Set("Authorization", "Bearer "+token)
	case s.user.Name != "" || s.user.Password != "":
		r.SetBasicAuth(string(s.user.Name), string(s.user.Password))
	}
	s.user.impersonate(r.Header)
	resp, err := s.next.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		s.tokens.forget()
		s.plugin.forget()
	}
	return resp, err
}

// impersonate asks the cluster to treat the request as another user's.
func (u *user) impersonate(header http.Header) {
	if u.As == "" {
		return
	}
	header.Set("Impersonate-User", string(u.As))
	if u.AsUID != "" {
		header.Set("Impersonate-Uid", string(u.AsUID))
	}
	for _, group := range u.AsGroups {
		header.Add("Impersonate-Group", string(group))
	}
	for key, values := range u.AsExtra {
		for _, value := range values {
			header.Add("Impersonate-Extra-"+escapedKey(key), value)
		}
	}
}

// escapedKey is a key as part of a header's name: other bytes than those of a token are %XX.
func escapedKey(key string) string {
	var out strings.Builder
	for _, c := range []byte(key) {
		if c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || strings.IndexByte("!#$&'*+-.^_`|~", c) >= 0 {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	return out.String()
}

// tokenFile is a file that somebody else renews, such as the kubelet.
type tokenFile struct {
	path string

	mu   sync.Mutex // guards the fields that follow
	last string
	read time.Time // when it was read; zero to read it again
}

// tokenAge is how long a token that was read is used.
const tokenAge = 50 * time.Second

// token returns the content of the file; if it cannot be read the last one, or otherwise.
func (f *tokenFile) token(otherwise string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.read.IsZero() && time.Since(f.read) < tokenAge {
		return f.last, nil
	}
	raw, err := os.ReadFile(f.path)
	token := strings.TrimSpace(string(raw))
	switch {
	case err == nil && token != "":
		f.last, f.read = token, time.Now()
	case f.last != "":
	case otherwise != "":
		return otherwise, nil
	case err == nil:
		return "", fmt.Errorf("the token file %s is empty", f.path)
	default:
		return "", err
	}
	return f.last, nil
}

func (f *tokenFile) forget() {
	if f != nil {
		f.mu.Lock()
		f.read = time.Time{}
		f.mu.Unlock()
	}
}

// check reports what a plugin lacks.
func (p *plugin) check() error {
	if p.Interactive == "" && strings.HasPrefix(p.Version, execGroup+"v1beta") {
		p.Interactive = "IfAvailable"
	}
	switch {
	case p.Command == "":
		return errors.New("exec has no command")
	case p.Version != execGroup+"v1" && p.Version != execGroup+"v1beta1":
		return fmt.Errorf("exec has the apiVersion %q; want %sv1 or v1beta1", p.Version, execGroup)
	case p.Interactive == "Always":
		return errors.New("exec wants a terminal (interactiveMode: Always); Orla has none")
	case p.Interactive != "Never" && p.Interactive != "IfAvailable":
		return fmt.Errorf("exec has the interactiveMode %q; want Never or IfAvailable", p.Interactive)
	}
	return nil
}

const execGroup = "client.authentication.k8s.io/"

// source gets credentials from a plugin, and keeps them until they expire.
type source struct {
	plugin  *plugin
	cluster *cluster

	mu   sync.Mutex // held while the plugin runs; guards last
	last *credentials
}

type credentials struct {
	token   string
	cert    *tls.Certificate // nil for none
	expires time.Time        // zero for never
}

// credentials returns the last credentials, or runs the plugin.
func (s *source) credentials(ctx context.Context) (*credentials, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && (s.last.expires.IsZero() || time.Now().Before(s.last.expires)) {
		return s.last, nil
	}
	got, err := s.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("getting credentials: %w", err)
	}
	s.last = got
	return got, nil
}

func (s *source) forget() {
	if s != nil {
		s.mu.Lock()
		s.last = nil
		s.mu.Unlock()
	}
}

func (s *source) run(ctx context.Context) (*credentials, error) {
	p := s.plugin
	cmd := exec.CommandContext(ctx, p.Command) //nolint:gosec // the kubeconfig names it
	for _, arg := range p.Args {
		cmd.Args = append(cmd.Args, string(arg))
	}
	spec := map[string]any{"interactive": false}
	if p.TellCluster {
		spec["cluster"] = s.cluster.told()
	}
	info, err := json.Marshal(map[string]any{"kind": "ExecCredential", "apiVersion": p.Version, "spec": spec})
	if err != nil {
		return nil, err
	}
	cmd.Env = os.Environ()
	for _, e := range p.Env {
		cmd.Env = append(cmd.Env, string(e.Name+"="+e.Value))
	}
	cmd.Env = append(cmd.Env, "KUBERNETES_EXEC_INFO="+string(info))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) && p.Hint != "" {
			err = fmt.Errorf("%w; %s", err, p.Hint)
		}
		return nil, fmt.Errorf("exec: %w", err)
	}
	return p.read(out.Bytes())
}

// read reads what a plugin has printed.
func (p *plugin) read(out []byte) (*credentials, error) {
	var got struct {
		Version string `json:"apiVersion"`
		Status  struct {
			Token   string     `json:"token"`
			Cert    string     `json:"clientCertificateData"`
			Key     string     `json:"clientKeyData"`
			Expires *time.Time `json:"expirationTimestamp"`
		} `json:"status"`
	}
	switch err := json.Unmarshal(out, &got); {
	case err != nil:
		return nil, errors.New("exec: what it prints is not JSON") // err may quote it
	case got.Version != p.Version:
		return nil, fmt.Errorf("exec: it answers in version %q; want %q", got.Version, p.Version)
	case got.Status.Token == "" && got.Status.Cert == "":
		return nil, errors.New("exec: it gives neither a token nor a certificate")
	}
	c := &credentials{token: got.Status.Token}
	if got.Status.Expires != nil {
		c.expires = *got.Status.Expires
	}
	if got.Status.Cert != "" || got.Status.Key != "" {
		cert, err := tls.X509KeyPair([]byte(got.Status.Cert), []byte(got.Status.Key))
		if err != nil {
			return nil, fmt.Errorf("exec: its certificate: %w", err)
		}
		c.cert = &cert
	}
	return c, nil
}

// told is what a plugin is told of the cluster.
func (c *cluster) told() map[string]any {
	about := map[string]any{"server": c.Server}
	for key, value := range map[string]string{"tls-server-name": c.ServerName, "proxy-url": c.Proxy} {
		if value != "" {
			about[key] = value
		}
	}
	for key, is := range map[string]bool{"insecure-skip-tls-verify": c.Insecure, "disable-compression": c.DisableCompression} {
		if is {
			about[key] = true
		}
	}
	if ca, err := contentOf(c.CA, c.CAFile); err == nil && len(ca) > 0 {
		about["certificate-authority-data"] = ca
	}
	var extensions []struct {
		Name      string          `json:"name"`
		Extension json.RawMessage `json:"extension"`
	}
	_ = json.Unmarshal(c.Extensions, &extensions) // others than these are not for plugins
	for _, e := range extensions {
		if e.Name == execGroup+"exec" {
			about["config"] = e.Extension
		}
	}
	return about
}

// contentOf returns data, or the content of a file.
func contentOf(data []byte, file string) ([]byte, error) {
	if len(data) > 0 || file == "" {
		return data, nil
	}
	return os.ReadFile(file)
}
