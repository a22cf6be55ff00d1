package kube

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
)

// pod has the fields of a pod that Orla reads.
type pod struct {
	Metadata struct {
		Name              string            `json:"name"`
		UID               string            `json:"uid"`
		Made              time.Time         `json:"creationTimestamp"`
		DeletionTimestamp string            `json:"deletionTimestamp"`
		Annotations       map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec   podDesired `json:"spec"`
	Status struct {
		Phase             string            `json:"phase"`
		Reason            string            `json:"reason"`
		Message           string            `json:"message"`
		Conditions        []condition       `json:"conditions"`
		ContainerStatuses []containerStatus `json:"containerStatuses"`
	} `json:"status"`
}

// podDesired is the part of a pod's spec that isolates it.
type podDesired struct {
	HostNetwork     bool  `json:"hostNetwork"`
	HostPID         bool  `json:"hostPID"`
	HostIPC         bool  `json:"hostIPC"`
	Token           *bool `json:"automountServiceAccountToken"`
	SecurityContext struct {
		RunAsUser *int64  `json:"runAsUser"`
		Seccomp   seccomp `json:"seccompProfile"`
	} `json:"securityContext"`
	Containers []containerDesired `json:"containers"`
	NodeName   string             `json:"nodeName"`
}

type containerDesired struct {
	Name            string `json:"name"`
	SecurityContext struct {
		RunAsUser    *int64   `json:"runAsUser"`
		RunAsNonRoot bool     `json:"runAsNonRoot"`
		Privileged   bool     `json:"privileged"`
		Escalation   *bool    `json:"allowPrivilegeEscalation"`
		ReadOnly     bool     `json:"readOnlyRootFilesystem"`
		Seccomp      *seccomp `json:"seccompProfile"`
		Capabilities struct {
			Add  []string `json:"add"`
			Drop []string `json:"drop"`
		} `json:"capabilities"`
	} `json:"securityContext"`
	Resources struct {
		Limits map[string]string `json:"limits"`
	} `json:"resources"`
}

type seccomp struct {
	Type string `json:"type"`
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

type containerStatus struct {
	Name  string `json:"name"`
	State struct {
		Waiting    *waiting    `json:"waiting"`
		Running    *struct{}   `json:"running"`
		Terminated *terminated `json:"terminated"`
	} `json:"state"`
}

type waiting struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

type terminated struct {
	ExitCode int    `json:"exitCode"`
	Reason   string `json:"reason"`
	Message  string `json:"message"`
}

// readPod reads a pod of the API.
func readPod(raw json.RawMessage) (*pod, error) {
	p := &pod{}
	if err := json.Unmarshal(raw, p); err != nil {
		return nil, fmt.Errorf("a pod that cannot be read: %w", err)
	}
	return p, nil
}

// state is the status of the tool's container; others belong to the cluster. It is zero while it is
// not known.
func (p *pod) state() containerStatus {
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == container {
			return c
		}
	}
	return containerStatus{}
}

// begun reports whether the container has started.
func (p *pod) begun() bool {
	s := p.state().State
	return s.Running != nil || s.Terminated != nil || p.Status.Phase == "Failed" || p.Status.Phase == "Succeeded"
}

// hopeless are the reasons of a waiting container that do not go away by waiting.
var hopeless = map[string]string{
	"ErrImagePull":               "the image cannot be pulled",
	"ImagePullBackOff":           "the image cannot be pulled",
	"ErrImageNeverPull":          "the image is not on the node, and may not be pulled",
	"ImageInspectError":          "the image cannot be read",
	"InvalidImageName":           "the image's name is not valid",
	"RegistryUnavailable":        "the image's registry cannot be reached",
	"SignatureValidationFailed":  "the image is not signed as the node wants it",
	"CreateContainerConfigError": "the container cannot be made as it is described",
	"CreateContainerError":       "the container cannot be made",
	"RunContainerError":          "the container cannot be started",
}

// stuck says why the container will not start; nil if it may.
func (p *pod) stuck() *fault.Error {
	w := p.state().State.Waiting
	if w == nil || hopeless[w.Reason] == "" {
		return nil
	}
	code := fault.IsolationUnavailable
	if w.Reason == "InvalidImageName" {
		code = fault.RuntimePolicyInvalid
	}
	return fault.New(code, "isolation_mode kubernetes: %s (%s): %s", hopeless[w.Reason], w.Reason, clip(w.Message))
}

// awaited says what the pod is waiting for; "" if the pod does not say.
func (p *pod) awaited() string {
	for _, c := range p.Status.Conditions {
		if c.Type == "PodScheduled" && c.Status == "False" {
			return fmt.Sprintf("no node takes its pod (%s): %s", c.Reason, clip(c.Message))
		}
	}
	if w := p.state().State.Waiting; w != nil && w.Reason != "" {
		return strings.TrimSuffix(fmt.Sprintf("its container waits (%s): %s", w.Reason, clip(w.Message)), ": ")
	}
	return ""
}

// exit is how the container ended; false if it has not.
func (p *pod) exit() (launch.Exit, bool) {
	over := p.Status.Phase == "Failed" || p.Status.Phase == "Succeeded"
	if over && p.Status.Reason != "" { // the pod has failed, not the process
		return launch.Exit{Code: -1, Err: p.ended()}, true
	}
	t := p.state().State.Terminated
	switch {
	case t == nil && !over:
		return launch.Exit{}, false
	case t == nil:
		return launch.Exit{Code: -1, Err: p.ended()}, true
	case t.Reason == "ContainerStatusUnknown":
		return launch.Exit{Code: -1, Err: lost("the node does not know how the container ended: %s", clip(t.Message))}, true
	case t.Reason == "StartError" || t.Reason == "ContainerCannotRun":
		return launch.Exit{Code: -1, Err: noStart(t.Message)}, true
	}
	return launch.Exit{Code: t.ExitCode, OutOfMemory: t.Reason == "OOMKilled"}, true
}

// noStart is the error for a command that its image does not have or cannot run.
func noStart(message string) *fault.Error {
	return fault.New(fault.UnsupportedTool, "isolation_mode kubernetes: the command cannot be started in its image: %s", clip(message))
}

// ended says why the cluster ended a pod.
func (p *pod) ended() *fault.Error {
	text := strings.TrimSuffix(fmt.Sprintf("the cluster ended the pod (%s): %s", p.Status.Reason, clip(p.Status.Message)), ": ")
	switch p.Status.Reason {
	case "DeadlineExceeded":
		return fault.New(fault.Timeout, "isolation_mode kubernetes: %s", text)
	case "Evicted": // usually because it used too much
		return fault.New(fault.ExecutionFailed, "isolation_mode kubernetes: %s", text)
	}
	return lost("%s", text)
}

// lost is the error of a process that the cluster has ended.
func lost(format string, args ...any) *fault.Error {
	return fault.New(fault.ExecutionFailed, "isolation_mode kubernetes: "+format, args...).Again(true)
}

// tool returns the tool's container in the pod's spec; nil if it is missing.
func (p *pod) tool() *containerDesired {
	for i, c := range p.Spec.Containers {
		if c.Name == container {
			return &p.Spec.Containers[i]
		}
	}
	return nil
}

// limits returns the limits in the pod's spec.
func (p *pod) limits() cgroup.Limits {
	var l cgroup.Limits
	w := p.tool()
	if w == nil {
		return l
	}
	if n, ok := quantity(w.Resources.Limits["memory"], 1); ok {
		l.Memory = n
	}
	if n, ok := quantity(w.Resources.Limits["cpu"], 1000); ok {
		l.CPUs = float64(n) / 1000
	}
	return l
}

// suffixes are those of quantities, with what they multiply by.
var suffixes = []struct {
	text string
	by   *big.Rat
}{
	{"Ki", big.NewRat(1<<10, 1)},
	{"Mi", big.NewRat(1<<20, 1)},
	{"Gi", big.NewRat(1<<30, 1)},
	{"Ti", big.NewRat(1<<40, 1)},
	{"Pi", big.NewRat(1<<50, 1)},
	{"Ei", big.NewRat(1<<60, 1)},
	{"n", big.NewRat(1, 1e9)},
	{"u", big.NewRat(1, 1e6)},
	{"m", big.NewRat(1, 1e3)},
	{"k", big.NewRat(1e3, 1)},
	{"M", big.NewRat(1e6, 1)},
	{"G", big.NewRat(1e9, 1)},
	{"T", big.NewRat(1e12, 1)},
	{"P", big.NewRat(1e15, 1)},
	{"E", big.NewRat(1e18, 1)},
}

// quantity reads a quantity of the API, such as 128Mi, 500m or 1e3, in parts of which one has so many. It is
// rounded up. It reports false for what is not one.
func quantity(text string, parts int64) (int64, bool) {
	by := big.NewRat(parts, 1)
	for _, s := range suffixes {
		if number, ok := strings.CutSuffix(text, s.text); ok {
			text = number
			by.Mul(by, s.by)
			break
		}
	}
	const longest = 32 // characters; an exponent of three digits is none of a quantity
	number, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	if len(text) > longest || len(strings.TrimLeft(exponent, "+-")) > 2 || strings.Trim(number, "+-.0123456789") != "" {
		return 0, false
	}
	value, ok := new(big.Rat).SetString(text)
	if !ok {
		return 0, false
	}
	value.Mul(value, by)
	whole, rest := new(big.Int).QuoRem(value.Num(), value.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	return whole.Int64(), whole.IsInt64()
}

// loosened says which restriction of a pod the cluster has loosened; "" if none. Admission
// controllers may change a pod.
func (p *pod) loosened(asked cgroup.Limits) string {
	w := p.tool()
	if w == nil {
		return "it has no container " + container
	}
	s, applied := w.SecurityContext, p.limits()
	for _, look := range []struct {
		weak bool
		what string
	}{
		{p.Spec.HostNetwork || p.Spec.HostPID || p.Spec.HostIPC, "it has namespaces of the node"},
		{p.Spec.Token == nil || *p.Spec.Token, "it has a token of a service account"},
		{!s.RunAsNonRoot, "it may be root"},
		{differs(s.RunAsUser, nobody) || s.RunAsUser == nil && p.Spec.SecurityContext.RunAsUser == nil || differs(p.Spec.SecurityContext.RunAsUser, nobody), "it has another user"},
		{s.Privileged, "it is privileged"},
		{s.Escalation == nil || *s.Escalation, "it may gain privileges"},
		{!s.ReadOnly, "its root can be written to"},
		{len(s.Capabilities.Add) > 0 || !slices.Contains(s.Capabilities.Drop, "ALL"), "it has capabilities"},
		{unconfined(s.Seccomp) || s.Seccomp == nil && unconfined(&p.Spec.SecurityContext.Seccomp), "its system calls are not filtered"},
		{asked.Memory > 0 && (applied.Memory == 0 || applied.Memory > asked.Memory), "its memory is not bounded as it has to be"},
		{asked.CPUs > 0 && (applied.CPUs == 0 || applied.CPUs > asked.CPUs+0.001), "its processors are not bounded as they have to be"},
	} {
		if look.weak {
			return look.what
		}
	}
	return ""
}

func differs(user *int64, from int64) bool { return user != nil && *user != from }

func unconfined(s *seccomp) bool {
	return s != nil && s.Type != "RuntimeDefault" && s.Type != "Localhost"
}
