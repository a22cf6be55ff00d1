package kube

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/orla-project/orla/internal/call/fault"
)

// policyName is the NetworkPolicy that denies all traffic of Jobs without a network. It is created
// once per namespace and is never deleted: a policy that is created with its pod may come too late.
const policyName = "orla-no-network"

// policy has the fields of a NetworkPolicy that Orla reads.
type policy struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		PodSelector metav1.LabelSelector `json:"podSelector"`
		PolicyTypes []string             `json:"policyTypes"`
		Ingress     []json.RawMessage    `json:"ingress"`
		Egress      []json.RawMessage    `json:"egress"`
	} `json:"spec"`
}

// denyNetwork makes sure that the namespace's policies deny all traffic of a plan's pod. Policies
// only add up: so no other policy may allow traffic either.
func (c *Cluster) denyNetwork(ctx context.Context, p *plan) error {
	pod := labels.Set{}
	for name, value := range c.podLabels(p) {
		pod[name], _ = value.(string)
	}
	// The cluster adds these labels to every pod of a Job.
	for _, name := range []string{"job-name", "batch.kubernetes.io/job-name"} {
		pod[name] = p.name
	}
	denied, err := c.readPolicies(ctx, pod)
	if err != nil || denied {
		return err
	}
	if _, err := c.make(ctx, policies, c.policy()); err != nil {
		return err
	}
	if denied, err = c.readPolicies(ctx, pod); err == nil && !denied {
		err = c.opened(policyName)
	}
	return err
}

// readPolicies reports whether a policy denies all traffic of the pod. It is an error if another
// policy allows some.
func (c *Cluster) readPolicies(ctx context.Context, pod labels.Set) (denied bool, err error) {
	err = c.try(ctx, taskOf("list", policies), func(ctx context.Context, client *client) error {
		denied = false
		found, err := client.in(policies).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range found.Items {
			has, err := c.readPolicy(&found.Items[i], pod)
			if err != nil {
				return err
			}
			denied = denied || has
		}
		return nil
	})
	return denied, err
}

func (c *Cluster) readPolicy(u *unstructured.Unstructured, pod labels.Set) (denies bool, err error) {
	raw, err := u.MarshalJSON()
	var p policy
	if err == nil {
		err = json.Unmarshal(raw, &p)
	}
	selector, selectorErr := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	if err != nil || selectorErr != nil {
		return false, c.opened(u.GetName()) // a selector that Orla cannot read may match the pod
	}
	switch {
	case !selector.Matches(pod):
		return false, nil
	case len(p.Spec.Ingress) > 0 || len(p.Spec.Egress) > 0:
		return false, c.opened(p.Metadata.Name)
	}
	types := map[string]bool{}
	for _, t := range p.Spec.PolicyTypes {
		types[t] = true
	}
	return types["Ingress"] && types["Egress"], nil
}

func (c *Cluster) opened(name string) error {
	return fault.New(fault.IsolationUnavailable, "isolation_mode kubernetes: NetworkPolicy %s of namespace %s allows Orla's Jobs something, or may, and the tool has network none; "+
		"let it not select pods with the label %s=%s, or give the tool network: %s", name, c.opts.Namespace, labelNetwork, noneValue, ClusterNetwork)
}

// policy denies all traffic of Jobs without a network, for every Orla.
func (c *Cluster) policy() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: object{
		"apiVersion": policies.GroupVersion().String(),
		"kind":       "NetworkPolicy",
		"metadata": object{
			"name":      policyName,
			"namespace": c.opts.Namespace,
			"labels":    object{labelManaged: managedBy},
		},
		"spec": object{
			"podSelector": object{"matchLabels": object{labelNetwork: noneValue}},
			"policyTypes": list{"Ingress", "Egress"},
		},
	}}
}
