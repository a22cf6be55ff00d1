package resources

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/service/secret"
)

const (
	// secretAge is how long a Secret that was read is used.
	secretAge = 5 * time.Second
	// secretTime is how long reading one may take.
	secretTime = 5 * time.Second
	// retryAge is how long the last values are used when the API server does not answer, until it is asked again.
	retryAge   = 2 * time.Second
	maxSecrets = 1000
)

// ownLabels begins the labels of what Orla makes in a cluster, such as the key of sessions and the secrets of one call.
const ownLabels = "orla.dev/"

var errOwn = errors.New("the Secret is Orla's own, and no tool may have it")

// secretCache are the Secrets that were read lately. The zero value is ready to use.
type secretCache struct {
	mu sync.Mutex // guards of
	of map[string]keptSecret
}

type keptSecret struct {
	values map[string]secret.Value // nil if there was none
	until  time.Time
}

// Secret returns the values of a core Secret by their keys; false if there is none, or if it is in another namespace. One
// that Orla has made is refused: it is what Orla itself is trusted by. Secret asks the API server again after some seconds. While that does not answer, the last values count.
func (r *Resources) Secret(namespace, name string) (values map[string]secret.Value, found bool, err error) {
	if r == nil || namespace != r.Namespace {
		return nil, false, nil
	}
	last, known := r.secrets.take(name)
	if known && time.Now().Before(last.until) {
		return last.values, last.values != nil, nil
	}
	values, err = r.readSecret(name)
	if _, answered := errors.AsType[*kubeapi.StatusError](err); err != nil && !answered && known && !errors.Is(err, errOwn) {
		return last.values, last.values != nil, nil
	}
	if err != nil {
		return nil, false, err
	}
	r.secrets.keep(name, keptSecret{values, time.Now().Add(secretAge)})
	return values, values != nil, nil
}

// take returns what is known of a Secret. If that is old, others use it for a moment more while the caller reads it.
func (c *secretCache) take(name string) (last keptSecret, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, known = c.of[name]
	if now := time.Now(); known && !now.Before(last.until) {
		c.of[name] = keptSecret{last.values, now.Add(retryAge)}
	}
	return last, known
}

func (c *secretCache) keep(name string, one keptSecret) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil || len(c.of) >= maxSecrets {
		c.of = map[string]keptSecret{}
	}
	c.of[name] = one
}

func (c *secretCache) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, name)
}

// readSecret reads a Secret; nil if there is none. No error contains a value.
func (r *Resources) readSecret(name string) (map[string]secret.Value, error) {
	ctx, cancel := context.WithTimeout(context.Background(), secretTime)
	defer cancel()
	var got struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
		Data map[string][]byte `json:"data"`
	}
	err := r.Client.Do(ctx, kubeapi.Request{
		Method: http.MethodGet, Of: kubeapi.Resource{Version: "v1", Name: "secrets"}, Namespace: r.Namespace, Name: name,
	}, &got)
	said, answered := errors.AsType[*kubeapi.StatusError](err)
	switch {
	case answered && said.Code == http.StatusNotFound:
		return nil, nil
	case answered && said.Code < http.StatusInternalServerError:
		r.secrets.forget(name)
		return nil, fmt.Errorf("the cluster refuses to show the Secret: %w; let Orla's service account get secrets in the namespace %s", err, r.Namespace)
	case answered: // a failure of the API server is like no answer
		return nil, fmt.Errorf("the cluster cannot show the Secret: %v", err)
	case err != nil:
		return nil, fmt.Errorf("the cluster cannot be asked for the Secret: %w", err)
	}
	for label := range got.Metadata.Labels {
		if strings.HasPrefix(label, ownLabels) {
			r.secrets.forget(name)
			return nil, fmt.Errorf("%w: it has the label %s", errOwn, label)
		}
	}
	values := make(map[string]secret.Value, len(got.Data))
	for key, raw := range got.Data {
		if len(raw) <= secret.MaxValue { // a larger one is as if it were not there
			values[key] = secret.NewValue(strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r"))
		}
	}
	return values, nil
}
