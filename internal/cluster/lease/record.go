package lease

import (
	"context"
	"maps"
	"net/http"
	"time"

	"github.com/orla-project/orla/internal/cluster/kubeapi"
)

var leases = kubeapi.Resource{Group: "coordination.k8s.io", Version: "v1", Name: "leases"}

// record is a Lease as the API server has it.
type record struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   kubeapi.Object `json:"metadata"`
	Spec       spec           `json:"spec"`
}

type spec struct {
	Holder      string `json:"holderIdentity,omitempty"`
	Seconds     int64  `json:"leaseDurationSeconds,omitempty"`
	Acquired    string `json:"acquireTime,omitempty"`
	Renewed     string `json:"renewTime,omitempty"`
	Transitions int64  `json:"leaseTransitions"`
}

// version is the resourceVersion; "" for a Lease that does not exist.
func (r record) version() string {
	version, _ := r.Metadata["resourceVersion"].(string)
	return version
}

func (r record) generation() int64 { return r.Spec.Transitions }

// duration is how long the Lease's holder may have it without a renewal.
func (r record) duration() time.Duration { return time.Duration(r.Spec.Seconds) * time.Second }

// microseconds is the form of the API's MicroTime.
const microseconds = "2006-01-02T15:04:05.000000Z07:00"

func (r record) takenBy(o Options, at time.Time) record {
	now := at.UTC().Format(microseconds)
	r.Metadata = maps.Clone(r.Metadata)
	if r.Metadata == nil {
		r.Metadata = kubeapi.Object{"name": o.Name, "namespace": o.Namespace}
	}
	if o.About != nil {
		maps.Copy(r.Metadata, *o.About)
	}
	r.Spec = spec{
		Holder: o.Holder, Seconds: int64((o.Duration + time.Second - 1) / time.Second),
		Acquired: now, Renewed: now, Transitions: r.Spec.Transitions + 1,
	}
	return r
}

func (r record) renewedAt(at time.Time) record {
	r.Spec.Renewed = at.UTC().Format(microseconds)
	return r
}

func (r record) released() record {
	r.Spec = spec{Transitions: r.Spec.Transitions}
	return r
}

func (o Options) request(method, name string) kubeapi.Request {
	return kubeapi.Request{Method: method, Of: leases, Namespace: o.Namespace, Name: name}
}

func (o Options) get(ctx context.Context) (got record, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.Duration/3)
	defer cancel()
	err = o.Client.Do(ctx, o.request(http.MethodGet, o.Name), &got)
	return got, err
}

// put creates or replaces the Lease. It fails with a conflict if the Lease is not what it was when it was read.
func (o Options) put(ctx context.Context, r record) (written record, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.Duration/3)
	defer cancel()
	ask := o.request(http.MethodPost, "")
	if r.version() != "" {
		ask = o.request(http.MethodPut, o.Name)
	}
	r.APIVersion, r.Kind = leases.APIVersion(), "Lease"
	ask.Body = r
	err = o.Client.Do(ctx, ask, &written)
	return written, err
}
