package resources

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/cluster/lease"
	"github.com/orla-project/orla/internal/cluster/objects"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/observe/brief"
	"github.com/orla-project/orla/manifest"
)

// LeaseName is the name of the Lease whose holder writes the status of resources.
const LeaseName = "orla-status"

const (
	// again is when the status is compared even if nothing was applied: capsules start and crash.
	again = 3 * time.Second
	// between is the pause after each write, and so bounds how many there are.
	between = 50 * time.Millisecond
	// refused is how long nothing is written after the API server has refused a write.
	refused    = time.Minute
	maxMessage = 1000
)

// Facts are what is known of the tools that are served.
type Facts struct {
	Problems []manifest.Problem
	Served   map[string]string // the names of tools that are served, by the Source of each
	Lives    map[string]peer.Life
}

// verdict is what a resource's condition Ready says.
type verdict struct {
	ready   bool
	waits   bool // it is about to be known: nothing is written
	reason  string
	message string
}

// keepStatus writes the status of resources until ctx ends, while this process holds the Lease.
func (r *Resources) keepStatus(ctx context.Context, facts func() Facts) {
	options := lease.Options{Client: r.Client, Namespace: r.Namespace, Name: LeaseName, Holder: r.Holder, Log: r.Log}
	lease.Hold(ctx, options, func(ctx context.Context, _ int64) {
		said, right := "", map[*kept]settled{}
		for {
			pause := again
			err := r.writeStatus(ctx, facts, right)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				pause = refused
				if said != err.Error() {
					r.Log.Warn("the status of resources cannot be written; trying again", "err", err)
				}
				said = err.Error()
			} else {
				said = ""
			}
			select {
			case <-time.After(pause):
			case <-r.poke:
			case <-ctx.Done():
				return
			}
		}
	})
}

// due is a status that is to be written.
type due struct {
	of      seen
	version string // of the object
	is      verdict
	written kubeapi.Object
	turned  bool
}

// settled is a status that says what it should.
type settled struct {
	is     *verdict
	latest *objects.Object
}

// writeStatus writes the status of each resource where it differs. Those that are not ready come first: of many, the last ones wait
// for a while. right are those that are known to be as they should, so that they are not read each time.
func (r *Resources) writeStatus(ctx context.Context, facts func() Facts, right map[*kept]settled) error {
	r.mu.Lock()
	applied := r.applied
	r.mu.Unlock()
	judge := newJudge(facts())
	var all []due
	last := &verdict{} // most are the same
	for _, one := range applied {
		latest := one.of.Latest(one.name) // newer than what was applied
		if latest == nil {
			delete(right, one.kept)
			continue
		}
		v := judge.of(one)
		if v.waits {
			continue
		}
		if was, known := right[one.kept]; known && *was.is == v && was.latest == latest {
			continue
		}
		if written, turned := v.condition(one.generation, latest.Status); written != nil {
			all = append(all, due{one, latest.Version, v, written, turned})
			delete(right, one.kept)
			continue
		}
		if *last != v {
			another := v
			last = &another
		}
		right[one.kept] = settled{last, latest}
	}
	if len(right) > len(applied) { // some of it is gone
		are := make(map[*kept]bool, len(applied))
		for _, one := range applied {
			are[one.kept] = true
		}
		maps.DeleteFunc(right, func(of *kept, _ settled) bool { return !are[of] })
	}
	ready := func(d due) bool { return d.is.ready }
	for _, one := range slices.Concat(slices.DeleteFunc(slices.Clone(all), ready), slices.DeleteFunc(all, func(d due) bool { return !ready(d) })) {
		if err := r.patch(ctx, one.of, one.written); err != nil {
			return err
		}
		if one.turned {
			r.event(ctx, &one)
		}
		if !pace.Sleep(ctx, between) {
			return nil
		}
	}
	return nil
}

// patch writes a status. That the object has changed or is gone is not an error: it will be applied.
func (r *Resources) patch(ctx context.Context, one seen, status kubeapi.Object) error {
	err := r.Client.Do(ctx, kubeapi.Request{
		Method: http.MethodPatch, Of: one.of.resource(), Namespace: r.Namespace, Name: one.name, Part: "status",
		Body: kubeapi.Object{"metadata": kubeapi.Object{"uid": one.uid}, "status": status},
	}, nil)
	said, answered := errors.AsType[*kubeapi.StatusError](err)
	if answered && (said.Code == http.StatusNotFound || said.Code == http.StatusConflict) {
		return nil
	}
	return err
}

// event tells of a change of the condition. If that fails, the condition says the same.
func (r *Resources) event(ctx context.Context, d *due) {
	one, v := d.of, d.is
	now := time.Now().UTC().Format(time.RFC3339)
	kind := "Normal"
	if !v.ready && v.reason != "starting" {
		kind = "Warning"
	}
	_ = r.Client.Do(ctx, kubeapi.Request{
		Method: http.MethodPost, Of: kubeapi.Resource{Version: "v1", Name: "events"}, Namespace: r.Namespace,
		Body: kubeapi.Object{
			"apiVersion": "v1", "kind": "Event",
			"metadata": kubeapi.Object{"generateName": "orla-", "namespace": r.Namespace},
			"involvedObject": kubeapi.Object{
				"apiVersion": one.of.resource().APIVersion(), "kind": one.of.name, "namespace": r.Namespace,
				"name": one.name, "uid": one.uid, "resourceVersion": d.version,
			},
			"type": kind, "reason": v.reason, "message": cmp.Or(v.message, v.reason), "count": 1, "firstTimestamp": now, "lastTimestamp": now,
			"source": kubeapi.Object{"component": "orla"}, "reportingComponent": "orla", "reportingInstance": r.Holder,
		},
	}, nil)
}

// condition returns the status with the condition Ready; nil if the old one says the same. turned reports whether its status
// or its reason is another one.
func (v verdict) condition(generation int64, old []byte) (status kubeapi.Object, turned bool) {
	var was struct {
		Conditions []map[string]any `json:"conditions"`
	}
	if len(old) > 0 && json.Unmarshal(old, &was) != nil {
		was.Conditions = nil
	}
	is := map[string]any{
		"type": "Ready", "status": "False", "reason": v.reason, "message": v.message,
		"observedGeneration": float64(generation), "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}
	if v.ready {
		is["status"] = "True"
	}
	i := slices.IndexFunc(was.Conditions, func(c map[string]any) bool { return c["type"] == "Ready" })
	if i < 0 {
		return kubeapi.Object{"conditions": append(slices.Clip(was.Conditions), is)}, true
	}
	before := was.Conditions[i]
	if before["status"] == is["status"] {
		is["lastTransitionTime"] = before["lastTransitionTime"]
		if before["reason"] == is["reason"] && before["message"] == is["message"] && before["observedGeneration"] == is["observedGeneration"] {
			return nil, false
		}
	}
	turned = before["status"] != is["status"] || before["reason"] != is["reason"]
	was.Conditions[i] = is
	return kubeapi.Object{"conditions": was.Conditions}, turned
}

// judge finds the verdict on each resource.
type judge struct {
	problems map[string][]manifest.Problem // by source
	served   map[string]string             // as Facts
	lives    map[string]peer.Life          // by name
}

func newJudge(f Facts) judge {
	j := judge{problems: map[string][]manifest.Problem{}, served: f.Served, lives: f.Lives}
	var sourceOf map[string]string // by name
	for _, p := range f.Problems {
		sources := []string{p.Path}
		if p.Path == "" {
			if sourceOf == nil {
				sourceOf = make(map[string]string, len(f.Served))
				for source, name := range f.Served {
					sourceOf[name] = source
				}
			}
			sources = []string{sourceOf[p.Tool]}
		}
		if sources[0] == "" { // it could not be served
			sources = []string{kinds[0].name + "/" + p.Tool, kinds[1].name + "/" + p.Tool}
		}
		for _, source := range sources {
			j.problems[source] = append(j.problems[source], p)
		}
	}
	return j
}

// of returns the verdict on a resource.
func (j judge) of(one seen) verdict {
	v := verdict{ready: true, reason: "served"}
	if one.Rule {
		v.reason = "in_force"
	}
	var faults, warnings []string
	for _, p := range j.problems[one.Source] {
		text := strings.TrimPrefix(p.Err.Error(), one.Source+": ")
		text = strings.ReplaceAll(text, "\n"+one.Source+": ", "; ")
		if p.Severity != manifest.Fault {
			warnings = append(warnings, text)
			continue
		}
		if len(faults) == 0 {
			v = verdict{reason: "invalid"}
			if f, ok := errors.AsType[*fault.Error](p.Err); ok {
				v.reason = string(f.Code)
			} else if strings.HasPrefix(text, "conflict: ") || strings.Contains(text, ": conflict: ") {
				v.reason = "conflict"
			}
		}
		faults = append(faults, text)
	}
	name, served := j.served[one.Source]
	life, lives := j.lives[name]
	switch {
	case len(faults) > 0:
		v.message = strings.Join(faults, "; ")
	case !one.Rule && !served:
		v = verdict{reason: "not_served", message: "it is not served yet"}
	case lives && served:
		v = ofLife(life)
	default:
		v.message = strings.Join(warnings, "; ")
	}
	v.message = brief.Cut(v.message, maxMessage)
	return v
}

// ofLife returns the verdict on a server by the state that it is in. One that waits for a call is ready.
func ofLife(life peer.Life) verdict {
	v := verdict{reason: strings.ToLower(life.State), message: life.Reason}
	switch life.State {
	case "READY", "RELOADING":
		v.ready = true
	case "CREATED", "STOPPED":
		v.ready = life.Settled && life.Failures == 0 && !life.Held
	case "STARTING":
		v.waits = life.Failures > 0 // why it failed is said already
	}
	return v
}
