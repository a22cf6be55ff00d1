package main

import (
	"context"
	"time"
)

// to is whom a harm is done to.
type to int

const (
	anyTool to = iota
	aCapsuleOnly
	global // Orla itself, or what all tools share
)

// harm is one thing that goes wrong.
type harm struct {
	name        string
	weight      int // how often it is chosen, against the others
	to          to
	least, most time.Duration // for how long
	do          func(context.Context, *world, step)
}

func (h harm) fits(k kind) bool { return h.to == anyTool || h.to == aCapsuleOnly && k == aCapsule }

// harms are all that a plan may choose from; those without a weight come by
// another rule.
func harms() []harm {
	const ms = time.Millisecond
	return []harm{
		// To the processes of a tool.
		{name: "kill", weight: 10, do: killTool},
		{name: "terminate", weight: 4, do: terminateTool},
		{name: "kill a child", weight: 6, do: killChild},
		{name: "freeze", weight: 6, least: 50 * ms, most: 2500 * ms, do: freezeTool},

		// To its files.
		{name: "save", weight: 8, do: saveTool},
		{name: "mistake", weight: 6, least: 20 * ms, most: 600 * ms, do: mistake},
		{name: "half a manifest", weight: 6, to: aCapsuleOnly, least: 5 * ms, most: 400 * ms, do: halfManifest},
		{name: "empty manifest", weight: 3, to: aCapsuleOnly, least: 5 * ms, most: 300 * ms, do: emptyManifest},
		{name: "new manifest", weight: 4, to: aCapsuleOnly, do: newManifest},
		{name: "tool away", weight: 4, least: 50 * ms, most: 1500 * ms, do: toolAway},

		// By hand.
		{name: "restart", weight: 3, to: aCapsuleOnly, do: byHand("restart")},
		{name: "stop and start", weight: 2, to: aCapsuleOnly, least: 50 * ms, most: 1000 * ms, do: stopAndStart},
		{name: "reload", weight: 1, to: global, do: reloadByHand},
		{name: "look", weight: 1, to: global, do: look},

		// By clients.
		{name: "slow request", weight: 3, to: global, least: 500 * ms, most: 4000 * ms, do: slowRequest},
		{name: "client that does not read", weight: 3, to: global, least: 500 * ms, most: 4000 * ms, do: clientThatDoesNotRead},
		{name: "half a request", weight: 4, to: global, do: halfRequest},
		{name: "hang up", weight: 6, to: global, do: hangUp},
		{name: "session left", weight: 3, to: global, do: leaveSession},
		{name: "full pipe", weight: 4, to: aCapsuleOnly, least: 300 * ms, most: 3000 * ms, do: fullPipe},

		// By the hostile tenant, some of it through the hostile capsule.
		{name: byTenant + "calls", weight: 4, to: global, least: 200 * ms, most: 2000 * ms, do: tenantCalls},
		{name: byTenant + "sessions", weight: 2, to: global, least: 200 * ms, most: 3000 * ms, do: tenantSessions},
		{name: byTenant + "batch", weight: 2, to: global, do: tenantBatch},
		{name: byTenant + "meta", weight: 2, to: global, do: tenantMeta},
		{name: byTenant + "deep arguments", weight: 2, to: global, do: tenantDeep},
		{name: byTenant + "other sessions", weight: 3, to: global, do: tenantOtherSessions},
		{name: byTenant + "slow bodies", weight: 2, to: global, least: 500 * ms, most: 3000 * ms, do: tenantSlowBodies},
		{name: byTenant + "streams", weight: 2, to: global, least: 200 * ms, most: 2000 * ms, do: tenantStreams},
		{name: byTenant + "subscriptions", weight: 2, to: global, do: tenantSubscriptions},

		// To Orla and what it stands on.
		{name: "hup burst", weight: 2, to: global, least: 500 * ms, most: 2000 * ms, do: hupBurst},
		{name: brokenConfiguration, weight: 2, to: global, least: 50 * ms, most: 1000 * ms, do: breakConfig},
		{name: "disk full", weight: 3, to: global, least: 300 * ms, most: 4000 * ms, do: fillDisk},
		{name: "inotify", weight: 2, to: global, least: 300 * ms, most: 4000 * ms, do: exhaustInotify},
		{name: "descriptors", weight: 1, to: global, least: 200 * ms, most: 1200 * ms, do: lowerDescriptors},
		{name: noFolder, weight: 1, to: global, least: 20 * ms, most: 1500 * ms, do: folderGone},
		{name: "suspended", weight: 1, to: global, least: 200 * ms, most: 4000 * ms, do: suspend},
		{name: "come and go", weight: 3, to: global, least: 20 * ms, most: 1500 * ms, do: comeAndGo},
		{name: "orla killed", to: global, do: killOrla},
		{name: "orla ended", to: global, do: endOrla},
	}
}

// byTenant begins the names of what the hostile tenant does.
const byTenant = "tenant: "

// The harms that no Orla can start with.
const (
	brokenConfiguration = "broken configuration"
	noFolder            = "folder gone"
)

func harmOf(name string) harm {
	for _, h := range harms() {
		if h.name == name {
			return h
		}
	}
	panic("no harm " + name)
}

// wait waits, but not beyond the storm.
func wait(ctx context.Context, long time.Duration) {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
