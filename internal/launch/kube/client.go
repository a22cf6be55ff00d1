package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
)

// The resources that Orla uses. deploy/kubernetes grants access to no others.
var (
	jobs     = kubeapi.Resource{Group: "batch", Version: "v1", Name: "jobs"}
	pods     = kubeapi.Resource{Version: "v1", Name: "pods"}
	secrets  = kubeapi.Resource{Version: "v1", Name: "secrets"}
	events   = kubeapi.Resource{Version: "v1", Name: "events"}
	policies = kubeapi.Resource{Group: "networking.k8s.io", Version: "v1", Name: "networkpolicies"}
)

// maxBody bounds an answer that is not a log, including a whole watch.
const maxBody = 16 << 20

// client makes requests to a cluster.
type client struct {
	*kubeapi.Client

	namespace string
}

// get reads an object.
func (c *client) get(ctx context.Context, r kubeapi.Resource, name string, into any) error {
	return c.Do(ctx, kubeapi.Request{Method: http.MethodGet, Of: r, Namespace: c.namespace, Name: name}, into)
}

// listing is a list of objects.
type listing struct {
	Metadata struct {
		Version  string `json:"resourceVersion"`
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

func (c *client) list(ctx context.Context, r kubeapi.Resource, query url.Values) (found listing, err error) {
	err = c.Do(ctx, kubeapi.Request{Method: http.MethodGet, Of: r, Namespace: c.namespace, Query: query}, &found)
	return found, err
}

// connect returns the client, and makes it if there is none. It sends nothing.
func (c *Cluster) connect() (*client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		return c.client, nil
	}
	made, err := newClient(c.opts)
	if err != nil {
		return nil, err
	}
	c.client = made
	return made, nil
}

// forget discards the client old, whose credentials are not accepted any more: the next connect
// reads the kubeconfig again.
func (c *Cluster) forget(old *client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == old {
		c.client = nil
		old.Close()
	}
}

func newClient(opts Options) (*client, error) {
	config, err := kubeapi.Load(opts.Kubeconfig, opts.Context)
	switch {
	case errors.Is(err, kubeapi.ErrNone):
		return nil, fault.New(fault.IsolationUnavailable, "isolation_mode kubernetes: no cluster is configured: "+
			"name a kubeconfig with tool_k8s_kubeconfig or $KUBECONFIG, write ~/.kube/config, or run Orla in a pod")
	case err != nil:
		return nil, fault.Wrap(fault.IsolationUnavailable, err, "isolation_mode kubernetes: the kubeconfig cannot be used%s: %s", named(opts), clip(err.Error()))
	}
	api, err := kubeapi.New(config, managedBy, func(next http.RoundTripper) http.RoundTripper { return bounded{next} })
	if err != nil {
		return nil, fault.Wrap(fault.IsolationUnavailable, err, "isolation_mode kubernetes: the kubeconfig's cluster or user cannot be used: %s", clip(err.Error()))
	}
	return &client{api, opts.Namespace}, nil
}

// named says which file and context were asked for.
func named(opts Options) string {
	text := ""
	if opts.Kubeconfig != "" {
		text += " (" + opts.Kubeconfig + ")"
	}
	if opts.Context != "" {
		text += fmt.Sprintf(" (context %q)", opts.Context)
	}
	return text
}

// bounded is a RoundTripper that ends answers that are too large.
type bounded struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/log") || strings.HasSuffix(r.URL.Path, "/attach") {
		return b.next.RoundTrip(r) // its reader bounds it
	}
	ctx, cancel := context.WithCancel(r.Context())
	late := time.AfterFunc(attemptTime, cancel) // for watches, which have no other deadline until they begin
	resp, err := b.next.RoundTrip(r.WithContext(ctx))
	late.Stop()
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &boundedBody{resp.Body, maxBody, cancel}
	return resp, nil
}

var errTooLarge = fmt.Errorf("the answer is larger than %d bytes", maxBody)

type boundedBody struct {
	io.ReadCloser

	left   int64
	cancel context.CancelFunc
}

func (b *boundedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// task is the verb and the resource of a request, as in a role.
type task struct{ verb, resource string }

// try makes a request until it succeeds, fails finally, or the time is over. The request must be
// safe to repeat.
func (c *Cluster) try(ctx context.Context, what task, request func(context.Context, *client) error) error {
	client, err := c.connect() //nolint:contextcheck // a plugin for certificates has its own time limit
	if err != nil {
		return err
	}
	all, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 3*time.Second) {
		err := once(all, client, request)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !passes(err) || !pace.Sleep(all, pause) {
			if kubeapi.Means(err, http.StatusUnauthorized, "Unauthorized") {
				c.forget(client)
			}
			return c.explain(client, what, err)
		}
	}
}

func once(ctx context.Context, client *client, request func(context.Context, *client) error) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	return request(ctx, client)
}

// passes reports whether a failure may be temporary.
func passes(err error) bool {
	if status, ok := errors.AsType[*kubeapi.StatusError](err); ok {
		return status.Code == http.StatusTooManyRequests || status.Code >= http.StatusInternalServerError
	}
	if _, ok := errors.AsType[*url.Error](err); ok {
		return !neverSent(err)
	}
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded)
}
