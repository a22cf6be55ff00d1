package kube_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// makePod makes the pod of a Job, and has its part played.
func (f *fakeAPI) makePod(job object) {
	part := f.play
	name := job["metadata"].(object)["name"].(string)
	if part.noPod != "" {
		f.objects["events/1"] = object{"kind": "Event", "metadata": object{"name": "1"}, "type": "Warning", "reason": "FailedCreate", "message": part.noPod, "count": max(1, part.refusals)}
		return
	}
	template := clone(job["spec"].(object)["template"].(object))
	meta := template["metadata"].(object)
	meta["name"], meta["uid"] = name+"-pod", "uid-"+name
	meta["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	pod := object{"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": template["spec"], "status": object{"phase": "Pending"}}
	if part.change != nil {
		part.change(pod)
	}
	f.replicas++
	f.objects["pods/"+name+"-pod"] = pod
	f.changed("ADDED", pod)
	f.released.Go(func() { f.act(pod, part) })
}

// act plays a pod's part.
func (f *fakeAPI) act(pod object, part part) {
	set := func(status object) {
		f.mu.Lock()
		defer f.mu.Unlock()
		pod["status"] = status
		f.changed("MODIFIED", pod)
	}
	switch {
	case part.waiting[0] != "":
		set(statusOf("Pending", object{"waiting": object{"reason": part.waiting[0], "message": part.waiting[1]}}))
		return
	case part.pending != "":
		set(object{"phase": "Pending", "conditions": []any{object{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": part.pending}}})
		return
	}
	set(statusOf("Pending", object{"waiting": object{"reason": "ContainerCreating"}}))
	if part.reason != "StartError" {
		set(statusOf("Running", object{"running": object{"startedAt": "2026-01-01T00:00:00Z"}}))
	}
	for part.forever && (part.deaf || !f.deleting(pod)) {
		select {
		case <-f.closing:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
	if part.logs != nil {
		for range part.logs { // serveLog sends it
		}
	}
	if part.deleted || part.deadline {
		for !f.wasAsked("get pods/log/" + pod["metadata"].(object)["name"].(string)) { // it was seen to run
			select {
			case <-f.closing:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
		f.end(pod, part)
		return
	}
	if part.forever {
		part.code = 143
	}
	reason := part.reason
	if reason == "" {
		reason = map[bool]string{true: "Completed", false: "Error"}[part.code == 0]
	}
	phase := map[bool]string{true: "Succeeded", false: "Failed"}[part.code == 0]
	over := statusOf(phase, object{"terminated": object{"exitCode": part.code, "reason": reason, "message": part.message}})
	if part.pod[0] != "" {
		over["reason"], over["message"] = part.pod[0], part.pod[1]
	}
	set(over)
	if part.forever {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.objects, "pods/"+pod["metadata"].(object)["name"].(string))
		f.changed("DELETED", pod)
	}
}

// end is the end that others than the process and Orla prepare for a pod.
func (f *fakeAPI) end(pod object, part part) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := strings.TrimSuffix(pod["metadata"].(object)["name"].(string), "-pod")
	why := map[bool]string{true: "DeadlineExceeded", false: "BackoffLimitExceeded"}[part.deadline]
	f.objects["jobs/"+name]["status"] = object{"conditions": []any{object{"type": "Failed", "status": "True", "reason": why}}}
	pod["metadata"].(object)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	pod["status"] = statusOf("Failed", object{"terminated": object{"exitCode": 143, "reason": "Error"}})
	f.changed("MODIFIED", pod)
	delete(f.objects, "pods/"+name+"-pod")
	f.changed("DELETED", pod)
}

func (f *fakeAPI) deleting(pod object) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return pod["metadata"].(object)["deletionTimestamp"] != nil
}

func statusOf(phase string, state object) object {
	return object{"phase": phase, "containerStatuses": []any{object{"name": "tool", "state": state}}}
}

// serveLog is the node's: the log so far, and what comes if it is followed.
func (f *fakeAPI) serveLog(w http.ResponseWriter, r *http.Request, name string) {
	f.mu.Lock()
	pod, found := f.objects["pods/"+name]
	part := f.play
	drop := part.logDrop
	f.play.logDrop = 0
	f.mu.Unlock()
	if !found {
		answer(w, 404, status(404, "NotFound", fmt.Sprintf("pods %q not found", name)))
		return
	}
	text := part.log
	if drop > 0 {
		_, _ = w.Write([]byte(text[:drop]))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write([]byte(text))
	if r.URL.Query().Get("follow") != "true" {
		return
	}
	w.(http.Flusher).Flush()
	for f.runs(pod) {
		select {
		case <-f.closing:
			return
		case <-r.Context().Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// runs reports whether a pod's container does.
func (f *fakeAPI) runs(pod object) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return pod["status"].(object)["phase"] == "Running"
}
