package kube

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/orla-project/orla/internal/call/fault"
)

// Right is a permission that Orla may need.
type Right struct{ Verb, Group, Resource string }

// Rights lists the permissions that a Cluster may need. deploy/kubernetes grants them.
func Rights() []Right {
	return []Right{
		{"create", jobs.Group, jobs.Resource},
		{"get", jobs.Group, jobs.Resource},
		{"list", jobs.Group, jobs.Resource},
		{"patch", jobs.Group, jobs.Resource},
		{"delete", jobs.Group, jobs.Resource},
		{"list", "", pods.Resource},
		{"watch", "", pods.Resource},
		{"get", "", pods.Resource + "/log"},
		{"create", "", secrets.Resource},
		{"delete", "", secrets.Resource},
		{"list", policies.Group, policies.Resource},
		{"create", policies.Group, policies.Resource},
		{"list", "", events.Resource},
	}
}

// reviews are questions about permissions, which every authenticated user may ask.
var reviews = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}

// Check connects to the cluster and asks whether Orla has the permissions that it needs. It creates
// nothing. The error is a *fault.Error.
func (c *Cluster) Check(ctx context.Context) error {
	var missing []string
	for _, right := range Rights() {
		resource, part, _ := strings.Cut(right.Resource, "/")
		review := &unstructured.Unstructured{Object: object{
			"apiVersion": reviews.GroupVersion().String(),
			"kind":       "SelfSubjectAccessReview",
			"spec": object{"resourceAttributes": object{
				"namespace": c.opts.Namespace, "verb": right.Verb, "group": right.Group, "resource": resource, "subresource": part,
			}},
		}}
		allowed := false
		err := c.try(ctx, taskOf("create", reviews), func(ctx context.Context, client *client) error {
			answer, err := client.objects.Resource(reviews).Create(ctx, review, metav1.CreateOptions{})
			if err == nil {
				allowed, _, _ = unstructured.NestedBool(answer.Object, "status", "allowed")
			}
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
