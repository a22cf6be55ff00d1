package kube

import (
	"net/url"

	"github.com/orla-project/orla/internal/cluster/kubeapi"
)

// subject is the object that a process is in the cluster: a Job, or the Pod of a capsule.
type subject struct {
	kind kubeapi.Resource // pods, or the zero value for a Job
	name string
	uid  string // of a Pod: a later one has its name
}

func (s subject) isPod() bool { return s.kind == pods }

// noun names the object in errors.
func (s subject) noun() string {
	if s.isPod() {
		return "Pod"
	}
	return "Job"
}

// query selects the pod.
func (s subject) query() url.Values {
	if s.isPod() {
		return url.Values{"fieldSelector": {"metadata.name=" + s.name}}
	}
	return url.Values{"labelSelector": {labelJob + "=" + s.name}}
}
