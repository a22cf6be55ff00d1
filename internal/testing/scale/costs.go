package main

import (
	"fmt"
	"strings"
	"time"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// What was measured, as processor time and memory on linux/amd64. table says where.
const (
	callCPU      = 76 * time.Microsecond
	forwardCPU   = 138 * time.Microsecond
	beginCPU     = 204 * time.Microsecond
	streamCPU    = 3 * time.Microsecond // each second
	renewCPU     = 1080 * time.Microsecond
	eventCPU     = 6700 * time.Nanosecond
	listCPU      = 21 * time.Microsecond
	podCPU       = 5700 * time.Microsecond
	lineCPU      = 139 * time.Microsecond
	jobCPU       = 77 * time.Millisecond
	podStart     = 3 * time.Second
	handshake    = 47 * time.Millisecond
	baseMemory   = 16.1 * mib
	idleMemory   = 7.7 * kib
	streamMemory = 48.3 * kib
	listenMemory = 63.4 * kib
	heldMemory   = 95 * kib
	toolMemory   = 12.2 * kib
	connMemory   = 39.3 * kib / 2
)

// What is chosen in Orla.
const (
	leaseLasts  = 10 * time.Second
	leaseRenew  = 2 * time.Second
	leaseLook   = time.Second
	maxSessions = 10_000
)

// What is assumed: nobody measured it here, and it differs between clusters.
const (
	zones         = 3
	capsuleShare  = 0.2
	capsuleWork   = 5 * time.Millisecond
	streamShare   = 0.2
	seenCPU       = 20 * time.Microsecond
	controlCores  = 8
	podsPerSecond = 50
	memoryLimit   = 1024 * mib
	nodeGone      = 60 * time.Second
)

// cost is a row of the table of costs.
type cost struct{ what, value, source string }

const (
	bench  = "[results](benchmarks/results.md)"
	here   = "measured for this page"
	chosen = "chosen"
	guess  = "**assumed**"
)

// table says what each number is and where it comes from.
func table() []cost {
	cpu := func(d time.Duration) string { return d.String() + " CPU" }
	size := func(all ...float64) string {
		texts := make([]string, len(all))
		for i, bytes := range all {
			texts[i] = fmt.Sprintf("%.1f", bytes/kib)
		}
		return strings.Join(texts, ", ") + " KiB"
	}
	return []cost{
		{"a call, in a replica that is busy", cpu(callCPU), bench + ": own CPU of Orla, 16 calls of a capsule in flight"},
		{"a request that one replica passes to another, both together", cpu(forwardCPU), here},
		{"a new session, or one that another replica had", cpu(beginCPU), here},
		{"an open event stream", cpu(streamCPU) + " a second", bench + ": many idle clients"},
		{"Orla without sessions, and its guard", size(baseMemory), bench},
		{"an idle session; one with a stream", size(idleMemory, streamMemory), bench},
		{"a capsule that is held; another replica that listens to it", size(heldMemory, listenMemory), bench},
		{"a tool in the lists", size(toolMemory), bench + ": a call with 10 000 tools"},
		{"a connection to another replica, each side", size(connMemory), here},
		{"renew a Lease: API server and etcd", cpu(renewCPU), here},
		{"pass a change to one watch: API server", cpu(eventCPU), here},
		{"list an object of 1 KB: API server and etcd", cpu(listCPU), here},
		{"create and delete a Pod: API server and etcd", cpu(podCPU), here},
		{"a line to a process in a Pod and one back: API server", cpu(lineCPU), here},
		{"a call that is a Job: the control plane", cpu(jobCPU), here},
		{"from a Pod to its process", podStart.String(), "measured on one node that had the image"},
		{"from its process to READY", handshake.String(), bench + ": from kill -9 to READY, Python"},
		{"a replica's Lease lasts, is renewed every", leaseLasts.String() + ", " + leaseRenew.String(), chosen},
		{"sessions of a replica", number(maxSessions), chosen + ": `max_sessions`"},
		{"zones", number(zones), guess},
		{"calls that a capsule answers, and how long it works on one", percent(capsuleShare) + ", " + capsuleWork.String(), guess},
		{"sessions with an open stream", percent(streamShare), guess},
		{"take note of another replica's Lease", cpu(seenCPU), guess},
		{"processors of the control plane", number(controlCores), guess},
		{"Pods that the scheduler places", number(podsPerSecond) + " a second", guess},
		{"memory of a replica", mebibytes(memoryLimit), guess + ": the chart's limit"},
		{"until the cluster knows that a node's Pods have ended", nodeGone.String(), guess},
	}
}
