package config

import (
	"cmp"
	"net"
	"slices"
	"strings"
)

// ReplicasConfig is the settings of several Orlas that serve the same clients (SPEC P4).
type ReplicasConfig struct {
	ReplicaListen    string `json:"replica_listen,omitempty" jsonschema:"Address:port on which the other replicas of this Orla reach it. With it, this process is one of several that serve the same clients, and know each other through Kubernetes. Default: none." sample:"0.0.0.0:8081"`
	ReplicaAddress   string `json:"replica_address,omitempty" jsonschema:"Address:port that the other replicas use for that. In a pod: its IP address. Default: replica_listen." sample:"10.244.0.7:8081"`
	ReplicaGroup     string `json:"replica_group,omitempty" jsonschema:"Name of the replicas that belong together, in their namespace. Default orla." sample:"orla"`
	ReplicaNamespace string `json:"replica_namespace,omitempty" jsonschema:"Namespace in which they know each other. Default: that of the pod, else default." sample:"tools"`
	ReplicaCapsules  string `json:"replica_capsules,omitempty" jsonschema:"Capsules that have one process in all replicas together: kubernetes (those with isolation_mode kubernetes; the others have one in each replica) or all. Default kubernetes."`
}

// The values of replica_capsules.
const (
	OnceKubernetes = "kubernetes"
	OnceAll        = "all"
)

func replicasDefaults() ReplicasConfig {
	return ReplicasConfig{ReplicaGroup: "orla", ReplicaCapsules: OnceKubernetes}
}

// replicas checks the settings of replicas.
func (v *verdict) replicas() {
	r := v.ReplicasConfig
	if !slices.Contains([]string{OnceKubernetes, OnceAll}, r.ReplicaCapsules) {
		v.wrong("replica_capsules", "must be kubernetes or all, got %q", r.ReplicaCapsules)
	}
	_, port, err := net.SplitHostPort(r.ReplicaListen)
	listens := r.ReplicaListen != "" && err == nil && port != ""
	if r.ReplicaListen != "" && !listens {
		v.wrong("replica_listen", "must be an address with a port, such as 0.0.0.0:8081, got %q", r.ReplicaListen)
	}
	if r.ReplicaNamespace != "" && !dnsLabel().MatchString(r.ReplicaNamespace) {
		v.wrong("replica_namespace", "%q is not the name of a namespace", r.ReplicaNamespace)
	}
	if host, _, err := net.SplitHostPort(r.ReplicaReached()); (listens || r.ReplicaAddress != "") && (err != nil || host == "" || net.ParseIP(host).IsUnspecified()) { // 0.0.0.0 and :: are all addresses of a machine
		v.wrong("replica_address", "must be an address with a port that the other replicas can reach, such as that of the pod")
	}
	if g := r.ReplicaGroup; g == "" || len(g) > 40 || strings.Trim(g, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.Trim(g, "-") != g {
		v.wrong("replica_group", "must be 1 to 40 lower-case letters, digits and hyphens, with a hyphen neither first nor last")
	}
}

// ReplicaReached returns where the other replicas reach this one.
func (r ReplicasConfig) ReplicaReached() string { return cmp.Or(r.ReplicaAddress, r.ReplicaListen) }
