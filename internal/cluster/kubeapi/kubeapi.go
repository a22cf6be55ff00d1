// Package kubeapi makes the few requests to the API server of a Kubernetes cluster that Jobs need. It
// finds the cluster as kubectl does.
//
// It replaces k8s.io/client-go, which added 4.6 MB to the program (docs/decisions/0041).
//
// Its invariant: no error quotes a kubeconfig, a token or an object.
package kubeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
)

// Resource is a kind of object in the API. The group "" is the core group.
type Resource struct{ Group, Version, Name string }

// APIVersion is the apiVersion of the resource's objects.
func (r Resource) APIVersion() string {
	if r.Group == "" {
		return r.Version
	}
	return r.Group + "/" + r.Version
}

// Object is a JSON object of the API.
type Object = map[string]any

// Client makes requests. Its methods may be called from any goroutine.
type Client struct {
	http      *http.Client
	transport *http.Transport
	base      *url.URL
	agent     string
}

// Host returns the address of the API server.
func (c *Client) Host() string { return c.base.String() }

// Close closes idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// New returns a Client. It sends nothing. wrap wraps the transport below the credentials.
func New(config *Config, agent string, wrap func(http.RoundTripper) http.RoundTripper) (*Client, error) {
	to, u := &config.cluster, &config.user
	c := &Client{agent: agent}
	s := signed{user: u}
	if u.TokenAt != "" {
		s.tokens = &tokenFile{path: u.TokenAt}
	}
	if u.Exec != nil {
		s.plugin = &source{plugin: u.Exec, cluster: to}
	}
	secure, err := tlsOf(to, u, s.plugin)
	if err != nil {
		return nil, err
	}
	server := to.Server
	if !strings.Contains(server, "://") {
		scheme := "http://"
		if secure.RootCAs != nil || to.Insecure || secure.GetClientCertificate != nil {
			scheme = "https://"
		}
		server = scheme + server
	}
	if c.base, err = url.Parse(server); err != nil || c.base.Host == "" {
		return nil, errors.New("the server is neither a URL nor HOST:PORT")
	}
	proxy := http.ProxyFromEnvironment
	if to.Proxy != "" {
		through, err := url.Parse(to.Proxy)
		if err != nil || through.Host == "" {
			return nil, errors.New("the proxy-url is not a URL") // it may have a password
		}
		proxy = http.ProxyURL(through)
	}
	dialer := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	c.transport = &http.Transport{
		Proxy: proxy, DialContext: dialer.DialContext, TLSClientConfig: secure, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 25, IdleConnTimeout: 90 * time.Second, DisableCompression: to.DisableCompression,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	// The client that net/http brings can be made to wait for ever (docs/decisions/0003).
	if _, err := http2.ConfigureTransports(c.transport); err != nil { //nolint:staticcheck // what is to replace it is that client
		return nil, err
	}
	s.next = wrap(c.transport)
	c.http = &http.Client{Transport: s}
	return c, nil
}

// tlsOf returns the TLS configuration for a cluster and a user. Files of a certificate are read again for
// each connection, since they may be renewed.
func tlsOf(to *cluster, u *user, plugin *source) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: to.ServerName, InsecureSkipVerify: to.Insecure} //nolint:gosec // the kubeconfig says so
	ca, err := contentOf(to.CA, to.CAFile)
	if err != nil {
		return nil, err
	}
	if len(ca) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("the certificate authority has no certificate")
		}
	}
	pair := func() (*tls.Certificate, error) {
		certText, certErr := contentOf(u.Cert, u.CertFile)
		keyText, keyErr := contentOf(u.Key, u.KeyFile)
		if err := errors.Join(certErr, keyErr); err != nil {
			return nil, err
		}
		cert, err := tls.X509KeyPair(certText, keyText)
		return &cert, err
	}
	switch {
	case len(u.Cert) > 0 || u.CertFile != "":
		if _, err := pair(); err != nil {
			return nil, fmt.Errorf("the client certificate: %w", err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair() }
	case plugin != nil:
		config.GetClientCertificate = func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			got, err := plugin.credentials(asked.Context())
			if err != nil || got.cert == nil {
				return &tls.Certificate{}, err
			}
			return got.cert, nil
		}
	}
	return config, nil
}

// Request is what is asked of the API.
type Request struct {
	Method    string
	Of        Resource
	Namespace string // "" for none
	Name      string // "" for all, or a new one
	Part      string // of the object, such as its log
	Query     url.Values
	Body      any // as JSON; nil for none
}

// Do makes a request, and decodes the answer into into, unless that is nil. An error of the API is a
// *StatusError.
func (c *Client) Do(ctx context.Context, r Request, into any) error {
	body, err := c.Stream(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // it was only read
	raw, err := io.ReadAll(body)
	if err != nil || into == nil {
		return err
	}
	if json.Unmarshal(raw, into) != nil {
		return errors.New("the answer does not match the API") // the error may quote it
	}
	return nil
}

// Stream makes a request, and returns the answer. The caller must close it. If the API asks for a pause,
// the request is repeated after it, as long as ctx allows.
func (c *Client) Stream(ctx context.Context, r Request) (io.ReadCloser, error) {
	var raw []byte
	if r.Body != nil {
		var err error
		if raw, err = json.Marshal(r.Body); err != nil {
			return nil, errors.New("the object cannot be encoded") // err may quote it
		}
	}
	for {
		req, err := http.NewRequestWithContext(ctx, r.Method, c.address(r), bytes.NewReader(raw))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Accept", "application/json, */*")
		req.Header.Set("User-Agent", c.agent)
		switch {
		case r.Method == http.MethodPatch:
			req.Header.Set("Content-Type", "application/merge-patch+json")
		case raw != nil:
			req.Header.Set("Content-Type", "application/json")
		}
		resp, err := c.http.Do(req)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode/100 == 2 {
			return resp.Body, nil
		}
		failed := statusOf(resp)
		_ = resp.Body.Close() // it was only read
		seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if err != nil || seconds < 0 || resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < http.StatusInternalServerError {
			return nil, failed
		}
		pause := time.NewTimer(time.Duration(seconds) * time.Second)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, failed
		}
	}
}

func (c *Client) address(r Request) string {
	parts := []string{"apis", r.Of.Group, r.Of.Version}
	if r.Of.Group == "" {
		parts = []string{"api", r.Of.Version}
	}
	if r.Namespace != "" {
		parts = append(parts, "namespaces", r.Namespace)
	}
	parts = append(parts, r.Of.Name)
	if r.Name != "" {
		parts = append(parts, r.Name)
	}
	if r.Part != "" {
		parts = append(parts, r.Part)
	}
	at := c.base.JoinPath(parts...)
	at.RawQuery = r.Query.Encode()
	return at.String()
}

// Event is a change that a watch reports.
type Event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// Watch calls each with every change, until it returns false, or the watch or ctx ends. r asks for a list.
// An error means that the watch has not begun.
func (c *Client) Watch(ctx context.Context, r Request, each func(Event) (more bool)) error {
	r.Query.Set("watch", "true")
	body, err := c.Stream(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // it was only read
	Events(body, each)
	return nil
}

// Events calls each with every change that the answer to a watch has, until it returns false or the watch ends. The
// end of a watch says nothing.
func Events(body io.Reader, each func(Event) (more bool)) {
	for decoder := json.NewDecoder(body); ; {
		var event Event
		if decoder.Decode(&event) != nil || !each(event) {
			return
		}
	}
}

// StatusError is an error of the API.
type StatusError struct {
	Code    int
	Reason  string // such as NotFound; "" if the answer is not the API's
	Message string
}

func (s *StatusError) Error() string { return s.Message }

// Means reports whether the error has a reason; without any, its code counts, which has to be the reason's.
func (s *StatusError) Means(code int, reason string) bool {
	return s.Reason == reason || s.Reason == "" && s.Code == code
}

// Means reports whether err is an error of the API with a reason, which has a code.
func Means(err error, code int, reason string) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && status.Means(code, reason)
}

// IsNotFound reports whether there is no such object.
func IsNotFound(err error) bool { return Means(err, http.StatusNotFound, "NotFound") }

// IsConflict reports whether an object has changed since it was read.
func IsConflict(err error) bool { return Means(err, http.StatusConflict, "Conflict") }

// Exists reports whether there is an object of that name already.
func Exists(err error) bool { return Means(err, http.StatusConflict, "AlreadyExists") }

// statusOf reads the error in an answer.
func statusOf(resp *http.Response) *StatusError {
	const enough = 64 << 10
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, enough)) // what was read must do
	var said struct {
		Kind    string `json:"kind"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
	}
	if json.Unmarshal(raw, &said) != nil || said.Kind != "Status" {
		said.Reason, said.Message = "", strings.ToValidUTF8(string(raw[:min(len(raw), 2048)]), "")
	}
	if said.Message == "" {
		said.Message = resp.Status
	}
	return &StatusError{Code: resp.StatusCode, Reason: said.Reason, Message: said.Message}
}
