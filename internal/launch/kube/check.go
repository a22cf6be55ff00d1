package kube

import (
	"context"
	"net/http"
	"strings"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
)

// Right is a permission that Orla may need.
type Right struct{ Verb, Group, Resource string }

// Rights lists the permissions that a Cluster may need. deploy/kubernetes grants them.
func Rights() []Right {
	return []Right{
		{"create", jobs.Group, jobs.Name},
		{"get", jobs.Group, jobs.Name},
		{"list", jobs.Group, jobs.Name},
		{"patch", jobs.Group, jobs.Name},
		{"delete", jobs.Group, jobs.Name},
		{"create", "", pods.Name},
		{"get", "", pods.Name},
		{"list", "", pods.Name},
		{"watch", "", pods.Name},
		{"patch", "", pods.Name},
		{"delete", "", pods.Name},
		{"get", "", pods.Name + "/log"},
		{"get", "", pods.Name + "/attach"},
		{"create", "", pods.Name + "/attach"},
		{"create", "", secrets.Name},
		{"delete", "", secrets.Name},
		{"list", policies.Group, policies.Name},
		{"create", policies.Group, policies.Name},
		{"list", "", events.Name},
	}
}

// reviews are questions about permissions, which every authenticated user may ask.
var reviews = kubeapi.Resource{Group: "authorization.k8s.io", Version: "v1", Name: "selfsubjectaccessreviews"}

// Check connects to the cluster and asks whether Orla has the permissions that it needs. It creates
// nothing. The error is a *fault.Error.
func (c *Cluster) Check(ctx context.Context) error {
	var missing []string
	for _, right := range Rights() {
		resource, part, _ := strings.Cut(right.Resource, "/")
		review := object{
			"apiVersion": reviews.APIVersion(),
			"kind":       "SelfSubjectAccessReview",
			"spec": object{"resourceAttributes": object{
				"namespace": c.opts.Namespace, "verb": right.Verb, "group": right.Group, "resource": resource, "subresource": part,
			}},
		}
		allowed := false
		err := c.try(ctx, taskOf("create", reviews), func(ctx context.Context, client *client) error {
			var answer struct {
				Status struct {
					Allowed bool `json:"allowed"`
				} `json:"status"`
			}
			err := client.Do(ctx, kubeapi.Request{Method: http.MethodPost, Of: reviews, Body: review}, &answer)
			allowed = answer.Status.Allowed
			return err
		})
		if err != nil {
			return fault.From(err)
		}
		if !allowed {
			missing = append(missing, right.Verb+" "+right.Resource)
		}
	}
	if len(missing) > 0 {
		return fault.New(fault.IsolationUnavailable, "isolation_mode kubernetes: Orla may not %s in namespace %s; grant it a role that does (deploy/kubernetes/orla.yaml)",
			strings.Join(missing, ", "), c.opts.Namespace)
	}
	return nil
}
