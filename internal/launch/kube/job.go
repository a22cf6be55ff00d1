package kube

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/service/secret"
)

// object and list are JSON values of the API.
type (
	object = kubeapi.Object
	list   = []any
)

const (
	// nobody is the user id and the group id of every process.
	nobody = int64(65532)
	// leeway is added to the cluster's deadline, which counts from the beginning of a second, so that
	// Orla's own deadline comes first.
	leeway = 2 * time.Second
	// container is the name of the one container.
	container = "tool"
	// tmpSize is the size of /tmp, which is memory and counts towards the limit.
	tmpSize = "16Mi"
	// pullSuffix distinguishes the name of the pull Secret from that of the process's Secret.
	pullSuffix = "-pull"
)

// plan is a Job, or the Pod of a capsule, before it is created.
type plan struct {
	name       string
	tool       Tool
	spec       launch.Spec
	deadline   time.Duration // activeDeadlineSeconds of the Job
	pull       []byte        // a .dockerconfigjson; nil for none
	start      string        // distinguishes the processes of a capsule; "" for a Job
	generation int64         // see Tool.Generation
}

// capsule reports whether the process has a stdin, and so is a Pod.
func (p *plan) capsule() bool { return p.start != "" }

// secretName is the name of the process's Secret.
func (p *plan) secretName() string {
	if p.capsule() {
		return p.name + "-" + p.start
	}
	return p.name
}

// secretive reports whether the process needs Secrets before it may run.
func (p *plan) secretive() bool { return len(p.spec.Secrets) > 0 || p.pull != nil }

// labels are the labels of every object of a tool.
func (c *Cluster) labels(t Tool) object {
	return object{
		labelManaged:  managedBy,
		labelInstance: c.instance,
		labelLife:     life(),
		labelTool:     labelValue(t.Name),
	}
}

// podLabels are the labels of a plan's pod, without those that the cluster adds.
func (c *Cluster) podLabels(p *plan) object {
	labels := c.labels(p.tool)
	if p.capsule() {
		labels[labelCapsule] = "true"
	} else {
		labels[labelJob] = p.name
	}
	if p.tool.Network == NoNetwork {
		labels[labelNetwork] = noneValue
	}
	return labels
}

// job is the Job of a plan. If it needs Secrets, it is suspended.
func (c *Cluster) job(p *plan) object {
	return object{
		"apiVersion": jobs.APIVersion(),
		"kind":       "Job",
		"metadata": object{
			"name":        p.name,
			"namespace":   c.opts.Namespace,
			"labels":      c.labels(p.tool),
			"annotations": object{annotationCall: p.spec.ID},
		},
		"spec": object{
			"backoffLimit":            int64(0),
			"completions":             int64(1),
			"parallelism":             int64(1),
			"activeDeadlineSeconds":   seconds(p.deadline + leeway),
			"ttlSecondsAfterFinished": seconds(c.opts.TTL),
			"suspend":                 p.secretive(),
			"template": object{
				"metadata": object{"labels": c.podLabels(p)},
				"spec":     podSpec(p),
			},
		},
	}
}

// podSpec isolates the process (SPEC-TOOLS 7.4).
func podSpec(p *plan) object {
	grace := cmp.Or(p.spec.Grace, launch.DefaultGrace)
	spec := object{
		"restartPolicy":                 "Never",
		"automountServiceAccountToken":  false,
		"enableServiceLinks":            false,
		"terminationGracePeriodSeconds": seconds(grace),
		"securityContext": object{
			"runAsNonRoot":   true,
			"runAsUser":      nobody,
			"runAsGroup":     nobody,
			"fsGroup":        nobody,
			"seccompProfile": object{"type": "RuntimeDefault"},
		},
		"containers": list{containerSpec(p)},
		"volumes": list{object{
			"name":     "tmp",
			"emptyDir": object{"medium": "Memory", "sizeLimit": tmpSize},
		}},
	}
	if p.tool.Network == NoNetwork { // lookups fail at once, not after a timeout
		spec["dnsPolicy"] = "None"
		spec["dnsConfig"] = object{"nameservers": list{"127.0.0.1"}}
	}
	if p.pull != nil {
		spec["imagePullSecrets"] = list{object{"name": p.secretName() + pullSuffix}}
	}
	return spec
}

func containerSpec(p *plan) object {
	spec := object{
		"name":    container,
		"image":   p.tool.Image,
		"command": list{literal(p.spec.Path)},
		"env":     environment(p),
		"securityContext": object{
			"runAsNonRoot":             true,
			"privileged":               false,
			"allowPrivilegeEscalation": false,
			"readOnlyRootFilesystem":   true,
			"capabilities":             object{"drop": list{"ALL"}},
		},
		"volumeMounts":             list{object{"name": "tmp", "mountPath": "/tmp"}},
		"terminationMessagePolicy": "File",
	}
	if p.capsule() {
		spec["stdin"] = true // and not stdinOnce: a connection may break, and the next one goes on
	}
	if len(p.spec.Argv) > 1 {
		var args list
		for _, arg := range p.spec.Argv[1:] {
			args = append(args, literal(arg))
		}
		spec["args"] = args
	}
	if p.spec.Dir != "" {
		spec["workingDir"] = p.spec.Dir
	}
	if bounds := resources(p.tool.Limits); len(bounds) > 0 {
		spec["resources"] = object{"limits": bounds, "requests": bounds}
	}
	return spec
}

// literal escapes the value of a variable: the cluster expands $(NAME) and $$.
func literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// resources are limits in the format of the API, which has none for the number of processes.
func resources(l cgroup.Limits) object {
	bounds := object{}
	if l.Memory > 0 {
		bounds["memory"] = strconv.FormatInt(l.Memory, 10)
	}
	if l.CPUs > 0 {
		bounds["cpu"] = strconv.FormatInt(max(1, int64(math.Floor(l.CPUs*1000+0.5))), 10) + "m"
	}
	return bounds
}

// environment is the environment of the process. Secrets are references.
func environment(p *plan) list {
	env := list{}
	home := false
	for _, kv := range p.spec.Env {
		name, value, _ := strings.Cut(kv, "=")
		home = home || name == "HOME"
		env = append(env, object{"name": name, "value": literal(value)})
	}
	if !home {
		env = append(env, object{"name": "HOME", "value": "/tmp"})
	}
	if p.generation != 0 {
		env = append(env, object{"name": "ORLA_GENERATION", "value": strconv.FormatInt(p.generation, 10)})
	}
	for i, kv := range p.spec.Secrets {
		name, _, _ := strings.Cut(kv, "=")
		env = append(env, object{
			"name":      name,
			"valueFrom": object{"secretKeyRef": object{"name": p.secretName(), "key": secretKey(i), "optional": false}},
		})
	}
	return env
}

// secretKey is the key of the i-th value in the process's Secret. The name of a variable may not be
// a valid key.
func secretKey(i int) string { return "value-" + strconv.Itoa(i) }

// secretObject is a Secret that is not created yet.
type secretObject struct {
	name   string
	object object
}

// secretsOf returns the Secrets of a plan. The Job, or the Pod, owns them: the cluster deletes them with it.
func (c *Cluster) secretsOf(p *plan, uid string) (all []secretObject) {
	owner := object{"apiVersion": jobs.APIVersion(), "kind": "Job", "name": p.name, "uid": uid}
	if p.capsule() {
		owner["apiVersion"], owner["kind"] = pods.APIVersion(), "Pod"
	}
	made := func(name, kind string, data object) secretObject {
		return secretObject{name, object{
			"apiVersion": secrets.APIVersion(),
			"kind":       "Secret",
			"metadata": object{
				"name":            name,
				"namespace":       c.opts.Namespace,
				"labels":          c.labels(p.tool),
				"ownerReferences": list{owner},
			},
			"type":      kind,
			"immutable": true,
			"data":      data,
		}}
	}
	if len(p.spec.Secrets) > 0 {
		data := object{}
		for i, kv := range p.spec.Secrets {
			_, value, _ := strings.Cut(kv, "=")
			data[secretKey(i)] = base64.StdEncoding.EncodeToString([]byte(value))
		}
		all = append(all, made(p.secretName(), "Opaque", data))
	}
	if p.pull != nil {
		data := object{".dockerconfigjson": base64.StdEncoding.EncodeToString(p.pull)}
		all = append(all, made(p.secretName()+pullSuffix, "kubernetes.io/dockerconfigjson", data))
	}
	return all
}

// dockerConfig returns a .dockerconfigjson for a pull secret: the secret itself if it has that
// format, else one for the image's registry with its USER:PASSWORD. It reports false if the secret
// has neither format.
func dockerConfig(image string, v secret.Value) ([]byte, bool) {
	text := strings.TrimSpace(v.Reveal())
	var config struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if strings.HasPrefix(text, "{") {
		return []byte(text), json.Unmarshal([]byte(text), &config) == nil && len(config.Auths) > 0
	}
	if user, _, ok := strings.Cut(text, ":"); !ok || user == "" || strings.ContainsAny(text, "\r\n") {
		return nil, false
	}
	auth := object{"auth": base64.StdEncoding.EncodeToString([]byte(text))}
	raw, err := json.Marshal(object{"auths": object{launch.RegistryOf(image): auth}})
	return raw, err == nil
}

// seconds rounds d up to whole seconds.
func seconds(d time.Duration) int64 {
	return max(1, int64(math.Ceil(d.Seconds())))
}
