package kube

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/observe/brief"
)

// explain turns the error of a request into one that says what to do about it.
func (c *Cluster) explain(client *client, what task, err error) *fault.Error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	unavailable := func(format string, args ...any) *fault.Error {
		return fault.Wrap(fault.IsolationUnavailable, err, "isolation_mode kubernetes: "+format, args...)
	}
	status, ok := errors.AsType[*kubeapi.StatusError](err)
	if !ok {
		return unavailable("the cluster's API at %s cannot be reached: %s; check the kubeconfig's server and the network", client.Host(), wire(err)).Again(true)
	}
	said := clip(status.Message)
	switch {
	case status.Means(http.StatusUnauthorized, "Unauthorized"):
		return unavailable("the cluster at %s does not take Orla's credentials (401); renew those of the kubeconfig", client.Host())
	case status.Means(http.StatusForbidden, "Forbidden") && overQuota(said):
		return unavailable("the quota of namespace %s is used up: %s", client.namespace, said).Again(true) // once other pods have ended
	case status.Means(http.StatusForbidden, "Forbidden") && what == taskOf("create", pods) && !strings.Contains(said, "cannot create resource"):
		return unavailable("the cluster refuses the Pod: %s; see the LimitRanges, quotas and policies of namespace %s", said, client.namespace)
	case status.Means(http.StatusForbidden, "Forbidden"):
		return unavailable("Orla may not %s %s in namespace %s: %s; grant it a role that does (deploy/kubernetes/orla.yaml)",
			what.verb, what.resource, client.namespace, said)
	case kubeapi.IsNotFound(err) && what.verb == "create":
		return unavailable("namespace %s is not there, or the cluster has no %s: %s", client.namespace, what.resource, said)
	case status.Means(http.StatusUnprocessableEntity, "Invalid"), status.Means(http.StatusBadRequest, "BadRequest"),
		status.Code == http.StatusRequestEntityTooLarge:
		if what.resource == secrets.Name {
			said = "the API does not accept it" // the message may quote the object
		}
		return fault.Wrap(fault.RuntimePolicyInvalid, err, "isolation_mode kubernetes: the cluster refuses the tool's definition: %s", said)
	}
	return unavailable("the cluster's API at %s could not %s %s (%d): %s", client.Host(), what.verb, what.resource, status.Code, said).Again(passes(err))
}

// overQuota reports whether a quota caused the refusal: it has room again when something else has
// ended. The API shows that only in the message.
func overQuota(said string) bool { return strings.Contains(said, "exceeded quota") }

// wire returns why no answer came, without the address at the start of the message.
func wire(err error) string {
	if unknown, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return clip(unknown.Error())
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	return clip(err.Error())
}

// neverSent reports whether there was no connection.
func neverSent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	_, badName := errors.AsType[*net.DNSError](err)
	_, badCertificate := errors.AsType[*tls.CertificateVerificationError](err)
	return ok && op.Op == "dial" || badName || badCertificate
}

// taskOf returns the task for a verb and a resource.
func taskOf(verb string, r kubeapi.Resource) task {
	resource := r.Name
	if r.Group != "" {
		resource += "." + r.Group
	}
	return task{verb, resource}
}

// maxSaid bounds how much of the cluster's message an error repeats.
const maxSaid = 400

func clip(text string) string { return brief.Cut(strings.Join(strings.Fields(text), " "), maxSaid) }
