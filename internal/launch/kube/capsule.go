package kube

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/launch/kube/podio"
)

// The process of a capsule is a Pod whose name is that of the capsule and of the instance: so the API server refuses a
// second one until the node has ended the first (SPEC P3).

// gate keeps a Pod from a node until its Secrets are there.
const gate = "orla.dev/secrets"

// podName is the name of the one Pod of a capsule.
func (c *Cluster) podName(tool string) string {
	sum := sha256.Sum256([]byte(cmp.Or(c.opts.Group, c.instance) + "\x00" + tool))
	return nameOf(tool) + hex.EncodeToString(sum[:6])
}

// pod is the Pod of a plan. If it needs Secrets, no node takes it yet.
func (c *Cluster) pod(p *plan) object {
	notes := object{annotationStart: p.start}
	if p.generation != 0 {
		notes[annotationGeneration] = strconv.FormatInt(p.generation, 10)
	}
	spec := podSpec(p)
	if p.secretive() {
		spec["schedulingGates"] = list{object{"name": gate}}
	}
	return object{
		"apiVersion": pods.APIVersion(),
		"kind":       "Pod",
		"metadata":   object{"name": p.name, "namespace": c.opts.Namespace, "labels": c.podLabels(p), "annotations": notes},
		"spec":       spec,
	}
}

// createPod creates the Pod of a plan, and returns its uid. An older one of its name is deleted before, and is gone
// when the new one begins to exist.
func (c *Cluster) createPod(ctx context.Context, p *plan) (uid string, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		made := &pod{}
		err := c.try(ctx, taskOf("create", pods), func(ctx context.Context, client *client) error {
			return client.Do(ctx, kubeapi.Request{Method: http.MethodPost, Of: pods, Namespace: client.namespace, Body: c.pod(p)}, made)
		})
		if err == nil {
			return made.Metadata.UID, nil
		}
		if !kubeapi.Exists(err) {
			return "", err
		}
		older, err := c.getPod(ctx, p.name)
		switch {
		case err != nil:
			return "", err
		case older == nil: // it has just gone
			continue
		case older.Metadata.Annotations[annotationStart] == p.start: // the answer to an earlier attempt was lost
			return older.Metadata.UID, nil
		case older.generation() > p.generation:
			return "", fault.New(fault.StartFailed, "isolation_mode kubernetes: another Orla has this capsule now (generation %d; this one has %d)", older.generation(), p.generation)
		}
		if err := c.supersede(ctx, older); err != nil {
			return "", err
		}
	}
}

// supersede deletes a Pod, and waits until it is gone.
func (c *Cluster) supersede(ctx context.Context, older *pod) error {
	c.opts.Log.Info("a capsule's process still has a Pod; waiting until it is gone", "pod", older.Metadata.Name, "node", older.Spec.NodeName)
	if older.Metadata.DeletionTimestamp == "" {
		if err := c.delete(ctx, removal{kind: pods, name: older.Metadata.Name, uid: older.Metadata.UID}); err != nil {
			return err
		}
	}
	if c.awaitGone(ctx, older.Metadata.Name, older.Metadata.UID) {
		return nil
	}
	f := fault.From(context.Cause(ctx))
	if f.Code != fault.Timeout {
		return f
	}
	return fault.New(fault.Timeout, "isolation_mode kubernetes: the Pod %s of an earlier process is still ending on node %s; if that node is off for good, delete it: kubectl delete node %s",
		older.Metadata.Name, older.Spec.NodeName, older.Spec.NodeName)
}

// awaitGone waits until a Pod is gone. It reports false if ctx ended before.
func (c *Cluster) awaitGone(ctx context.Context, name, uid string) bool {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		p, err := c.getPod(ctx, name)
		if err == nil && (p == nil || p.Metadata.UID != uid) {
			return true
		}
		if !pace.Sleep(ctx, pause) {
			return false
		}
	}
}

// getPod reads a Pod; nil if there is none.
func (c *Cluster) getPod(ctx context.Context, name string) (found *pod, err error) {
	err = c.try(ctx, taskOf("get", pods), func(ctx context.Context, client *client) error {
		var raw json.RawMessage
		err := client.get(ctx, pods, name, &raw)
		if kubeapi.IsNotFound(err) {
			found = nil
			return nil
		}
		if err == nil {
			found, err = readPod(raw)
		}
		return err
	})
	return found, err
}

// carryStreams carries the streams of a Pod.
func (p *process) carryStreams() {
	err := podio.Run(p.ctx, podio.Options{
		Attach: p.attach, Log: p.openLog, Ended: p.ended,
		Stdin: p.in, Stdout: p.out, Stderr: p.err, Problems: p.cluster.opts.Log.With("pod", p.name),
	})
	if err != nil && p.ctx.Err() == nil {
		p.broken <- lost("%s", clip(err.Error()))
	}
}

// attach connects to streams of the container.
func (p *process) attach(ctx context.Context, streams ...kubeapi.Stream) (*kubeapi.Attachment, error) {
	client, err := p.cluster.connect() //nolint:contextcheck // a plugin for certificates has its own time limit
	if err != nil {
		return nil, err
	}
	query := url.Values{"container": {container}}
	for _, s := range streams {
		query.Set([]string{"stdin", "stdout", "stderr"}[s], "true")
	}
	made, err := client.Attach(ctx, kubeapi.Request{Method: http.MethodGet, Of: pods, Namespace: client.namespace, Name: p.name, Query: query})
	if kubeapi.Means(err, http.StatusUnauthorized, "Unauthorized") {
		p.cluster.forget(client)
	}
	if kubeapi.Means(err, http.StatusForbidden, "Forbidden") {
		err = p.cluster.explain(client, task{"create", "pods/attach"}, err)
	}
	if err != nil {
		return nil, err
	}
	if err := p.still(ctx); err != nil {
		made.Close()
		return nil, err
	}
	return made, nil
}

// still fails if another Pod has the name by now: an Orla that was frozen would speak to the process of another one. What
// was opened by the name before this succeeds belongs to this Pod, since a Pod that has gone does not come back.
func (p *process) still(ctx context.Context) error {
	found, err := p.cluster.getPod(ctx, p.name)
	if err == nil && (found == nil || found.Metadata.UID != p.uid) {
		err = lost("the Pod %s is gone", p.name)
	}
	return err
}

// openLog reads the log for what no connection brings.
func (p *process) openLog(ctx context.Context, q podio.Query) (io.ReadCloser, error) {
	client, err := p.cluster.connect() //nolint:contextcheck // a plugin for certificates has its own time limit
	if err != nil {
		return nil, err
	}
	query := url.Values{"container": {container}, "timestamps": {"true"}, "follow": {strconv.FormatBool(q.Follow)}}
	if q.Since != "" {
		query.Set("sinceTime", q.Since)
	}
	if q.Tail > 0 {
		query.Set("tailLines", strconv.Itoa(q.Tail))
	}
	r := kubeapi.Request{Method: http.MethodGet, Of: pods, Namespace: client.namespace, Name: p.name, Query: query}
	r.Part = "log"
	log, err := client.Stream(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := p.still(ctx); err != nil {
		_ = log.Close() // nothing was read
		return nil, err
	}
	return log, nil
}

// generation is the generation of the Orla that made a Pod; 0 if it has none.
func (p *pod) generation() int64 {
	n, _ := strconv.ParseInt(p.Metadata.Annotations[annotationGeneration], 10, 64) // none is 0
	return n
}

// abandoned reports whether the cluster deletes a Pod whose node does not answer: nobody will say that it has ended.
func (p *pod) abandoned() bool {
	return p.Metadata.DeletionTimestamp != "" && slices.ContainsFunc(p.Status.Conditions, func(c condition) bool {
		return c.Type == "DisruptionTarget" && c.Reason == "DeletionByTaintManager"
	})
}

// disrupted says who ended a Pod, if the cluster says that; else "".
func (p *pod) disrupted() string {
	for _, c := range p.Status.Conditions {
		if c.Type == "DisruptionTarget" && c.Status == "True" {
			return strings.TrimSuffix(" ("+c.Reason+": "+clip(c.Message)+")", ": )")
		}
	}
	return ""
}
