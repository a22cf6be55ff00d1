package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/pace"
)

// The resources that Orla uses. deploy/kubernetes grants access to no others.
var (
	jobs     = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	pods     = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	secrets  = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	events   = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	policies = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}
)

// maxBody bounds an answer that is not a log, including a whole watch.
const maxBody = 16 << 20

// client makes requests to a cluster.
type client struct {
	http      *http.Client
	host      string
	namespace string
	objects   dynamic.Interface
	core      rest.Interface // for logs
}

// in returns the client for a resource in the namespace.
func (c *client) in(r schema.GroupVersionResource) dynamic.ResourceInterface {
	return c.objects.Resource(r).Namespace(c.namespace)
}

func (c *client) close() {
	if c != nil {
		utilnet.CloseIdleConnectionsFor(c.http.Transport)
	}
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
	}
}

// silence keeps the library from writing to stderr: everything that matters is returned as an error.
// It must be called once, before anything else.
var silence = sync.OnceFunc(func() { klog.SetSlogLogger(slog.New(slog.DiscardHandler)) })

func newClient(opts Options) (*client, error) {
	silence()
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = opts.Kubeconfig
	rules.WarnIfAllMissing = false
	overrides := &clientcmd.ConfigOverrides{CurrentContext: opts.Context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, fault.New(fault.IsolationUnavailable, "isolation_mode kubernetes: no cluster is configured: "+
			"name a kubeconfig with tool_k8s_kubeconfig or $KUBECONFIG, write ~/.kube/config, or run Orla in a pod")
	case err != nil: // the error may quote the file
		return nil, fault.Wrap(fault.IsolationUnavailable, err, "isolation_mode kubernetes: the kubeconfig cannot be used%s: %s", named(opts), withoutData(err))
	}
	config.UserAgent = managedBy
	config.QPS = -1 // the server limits the rate itself
	config.WarningHandler = rest.NoWarnings{}
	if config.ExecProvider != nil {
		config.ExecProvider.StdinUnavailable = true // stdin belongs to an MCP client
		config.ExecProvider.StdinUnavailableMessage = "Orla has no terminal"
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next} })
	return clientOf(config, opts.Namespace)
}

func clientOf(config *rest.Config, namespace string) (*client, error) {
	unusable := func(err error) (*client, error) {
		return nil, fault.Wrap(fault.IsolationUnavailable, err, "isolation_mode kubernetes: the kubeconfig's cluster or user cannot be used: %s", withoutData(err))
	}
	c := &client{host: config.Host, namespace: namespace}
	var err error
	if c.http, err = rest.HTTPClientFor(config); err != nil {
		return unusable(err)
	}
	if c.objects, err = dynamic.NewForConfigAndClient(config, c.http); err != nil {
		return unusable(err)
	}
	core := dynamic.ConfigFor(config)
	core.GroupVersion, core.APIPath = &schema.GroupVersion{Version: "v1"}, "/api"
	if c.core, err = rest.RESTClientForConfigAndClient(core, c.http); err != nil {
		return unusable(err)
	}
	return c, nil
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

// withoutData returns the message of a kubeconfig error, without quoted lines of the file.
func withoutData(err error) string {
	text := err.Error()
	if i := strings.Index(text, "yaml:"); i >= 0 {
		text = text[:i] + "it is not valid YAML"
	}
	return clip(text)
}

// bounded is a RoundTripper that ends answers that are too large.
type bounded struct{ next http.RoundTripper }

// WrappedRoundTripper lets the library find the transport below.
func (b bounded) WrappedRoundTripper() http.RoundTripper { return b.next }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/log") {
		return b.next.RoundTrip(r) // a log: its reader bounds it
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
	client, err := c.connect()
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
			if apierrors.IsUnauthorized(err) {
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
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) || apierrors.IsServerTimeout(err) ||
			apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || status.Status().Code >= http.StatusInternalServerError
	}
	if opErr := (*url.Error)(nil); errors.As(err, &opErr) {
		return !neverSent(err)
	}
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded)
}
