package kube

import (
	"context"
	"encoding/json"
	"slices"

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
		PodSelector selector          `json:"podSelector"`
		PolicyTypes []string          `json:"policyTypes"`
		Ingress     []json.RawMessage `json:"ingress"`
		Egress      []json.RawMessage `json:"egress"`
	} `json:"spec"`
}

// selector chooses pods by their labels.
type selector struct {
	Labels      map[string]string `json:"matchLabels"`
	Expressions []struct {
		Key      string   `json:"key"`
		Operator string   `json:"operator"`
		Values   []string `json:"values"`
	} `json:"matchExpressions"`
}

// matches reports whether a pod is chosen. It reports false for known if the selector has an operator that
// Orla does not know.
func (s selector) matches(pod map[string]string) (chosen, known bool) {
	for key, want := range s.Labels {
		if have, ok := pod[key]; !ok || have != want {
			return false, true
		}
	}
	chosen = true
	for _, e := range s.Expressions {
		have, ok := pod[e.Key]
		switch e.Operator {
		case "In":
			ok = ok && slices.Contains(e.Values, have)
		case "NotIn":
			ok = !ok || !slices.Contains(e.Values, have)
		case "Exists":
		case "DoesNotExist":
			ok = !ok
		default:
			return false, false
		}
		chosen = chosen && ok
	}
	return chosen, true
}

// denyNetwork makes sure that the namespace's policies deny all traffic of a plan's pod. Policies
// only add up: so no other policy may allow traffic either.
func (c *Cluster) denyNetwork(ctx context.Context, p *plan) error {
	pod := map[string]string{}
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
	if _, err := c.make(ctx, policies, policyName, c.policy()); err != nil {
		return err
	}
	if denied, err = c.readPolicies(ctx, pod); err == nil && !denied {
		err = c.opened(policyName)
	}
	return err
}

// readPolicies reports whether a policy denies all traffic of the pod. It is an error if another
// policy allows some.
func (c *Cluster) readPolicies(ctx context.Context, pod map[string]string) (denied bool, err error) {
	err = c.try(ctx, taskOf("list", policies), func(ctx context.Context, client *client) error {
		denied = false
		found, err := client.list(ctx, policies, nil)
		if err != nil {
			return err
		}
		for _, raw := range found.Items {
			has, err := c.readPolicy(raw, pod)
			if err != nil {
				return err
			}
			denied = denied || has
		}
		return nil
	})
	return denied, err
}

func (c *Cluster) readPolicy(raw json.RawMessage, pod map[string]string) (denies bool, err error) {
	var p policy
	err = json.Unmarshal(raw, &p)
	chosen, known := p.Spec.PodSelector.matches(pod)
	switch {
	case err != nil || !known:
		return false, c.opened(p.Metadata.Name) // a selector that Orla cannot read may match the pod
	case !chosen:
		return false, nil
	case len(p.Spec.Ingress) > 0 || len(p.Spec.Egress) > 0:
		return false, c.opened(p.Metadata.Name)
	}
	return slices.Contains(p.Spec.PolicyTypes, "Ingress") && slices.Contains(p.Spec.PolicyTypes, "Egress"), nil
}

func (c *Cluster) opened(name string) error {
	return fault.New(fault.IsolationUnavailable, "isolation_mode kubernetes: NetworkPolicy %s of namespace %s allows Orla's Jobs something, or may, and the tool has network none; "+
		"let it not select pods with the label %s=%s, or give the tool network: %s", name, c.opts.Namespace, labelNetwork, noneValue, ClusterNetwork)
}

// policy denies all traffic of Jobs without a network, for every Orla.
func (c *Cluster) policy() object {
	return object{
		"apiVersion": policies.APIVersion(),
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
	}
}
