package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/call/pins"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/observe/audit"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// Pins implements control.Backend.
func (o operations) Pins() control.PinList {
	var list control.PinList
	for _, v := range o.Parts.Pins.All(o.otherNames()) {
		list.Providers = append(list.Providers, pinned(v))
	}
	return list
}

// Pinned implements control.Backend.
func (o operations) Pinned(name string) (control.PinnedProvider, error) {
	v, err := o.Parts.Pins.Look(o.pinName(name), o.otherNames())
	if err != nil {
		return control.PinnedProvider{}, o.pinError(name, err)
	}
	return pinned(v), nil
}

// pinName returns the name that pins have for a tool of type mcp, and any other name as it is.
func (o operations) pinName(name string) string {
	for _, one := range o.Supervisor.Manifests() {
		if t := one.Tool; t.Name == name && t.Kind == manifest.MCP {
			return t.Resource.Server + "--" + t.Resource.ServerTool
		}
	}
	return name
}

// reviewer is a provider that compares what it lists with what is accepted.
type reviewer interface{ Review() }

// servedWithin bounds the wait until what was accepted is served.
const servedWithin = 5 * time.Second

// ApprovePins implements control.Backend. What is accepted is served when it returns, or soon after.
func (o operations) ApprovePins(ctx context.Context, who control.Peer, name string, asked control.PinApproval) (control.PinnedProvider, error) {
	if err := o.Audit.Err(); err != nil {
		return control.PinnedProvider{}, unrecorded(err)
	}
	by := fmt.Sprintf("uid %d", who.UID)
	v, err := o.Parts.Pins.Approve(o.pinName(name), asked.Digest, by)
	if err != nil {
		return control.PinnedProvider{}, o.pinError(name, err)
	}
	if len(v.Items) == 0 && v.Trouble == nil {
		return pinned(v), nil
	}
	for _, i := range v.Items {
		o.log.Info("a definition was accepted", "tool", v.Provider, "kind", i.Kind, "name", i.Name, "digest", i.Digest.String(), "by", by)
		o.Audit.RecordPin(&audit.Pin{By: by, Provider: v.Provider, Kind: string(i.Kind), Name: i.Name, Digest: i.Digest.String()})
	}
	if p, ok := o.Supervisor.Catalog().Peer(v.Provider); ok {
		if r, ok := p.(reviewer); ok {
			r.Review()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, servedWithin)
	defer cancel()
	held := func(c *supervisor.Catalog) bool {
		return slices.ContainsFunc(v.Items, func(i pins.Item) bool { return i.Kind == pins.Tool && c.Withheld(i.Name) != nil })
	}
	for c := o.Supervisor.Catalog(); held(c) && c.Wait(ctx) == nil; c = o.Supervisor.Catalog() {
	}
	return pinned(v), nil
}

// pinError returns the error of a request about pins.
func (o operations) pinError(name string, err error) error {
	e := &control.Error{Code: control.CodeRefused, Message: err.Error()}
	switch {
	case errors.Is(err, pins.ErrOutdated):
		e.Code, e.Hint = control.CodeDigest, "orla pins diff "+name+" shows what it is now"
	case errors.Is(err, pins.ErrUnknown):
		e.Code, e.Hint = control.CodeNotFound, "orla pins list shows what is pinned"
		for _, one := range o.Supervisor.Manifests() {
			if t := one.Tool; t.Name == name && !pins.Pinned(t) {
				e.Message, e.Hint = name+" has no pins: "+unpinned(t), ""
			}
		}
	}
	return e
}

// unpinned says why the definitions of a manifest's provider are not pinned.
func unpinned(t manifest.Tool) string {
	if t.Kind == manifest.Capsule && !t.Runtime.Declared {
		return "pin is off"
	}
	return "what it offers is written in " + t.Source
}

// otherNames returns the names of tools that are served, by their manifests. Tools of type mcp are left out: each is
// a tool of a server under another name.
func (o operations) otherNames() map[string][]string {
	names := map[string][]string{}
	for _, one := range o.Supervisor.Manifests() {
		if one.Tool.Kind != manifest.MCP {
			names[one.Tool.Name] = peer.NamesOf(one.Listed)
		}
	}
	return names
}

func pinned(v pins.View) control.PinnedProvider {
	p := control.PinnedProvider{Name: v.Provider, Source: v.Source, Pin: string(v.Pin), File: v.File, Digest: v.Digest.String()}
	if v.Trouble != nil {
		p.Trouble = v.Trouble.Error()
	}
	for _, i := range v.Items {
		one := control.PinnedItem{
			Kind: string(i.Kind), Name: i.Name, Own: i.Own, State: string(i.State),
			Digest: digestText(i.Digest), Was: digestText(i.Was), Accepted: i.Accepted, By: i.By,
			PinDifference: control.PinDifference{More: i.More, Before: i.Before, After: i.After},
		}
		for _, c := range i.Changes {
			one.Changes = append(one.Changes, control.PinChange{Path: c.Path, Before: c.Before, After: c.After})
		}
		for _, f := range i.Findings {
			one.Findings = append(one.Findings, control.PinFinding{Path: f.Path, Kind: string(f.Kind), Text: f.Text})
		}
		p.Items = append(p.Items, one)
	}
	return p
}

// digestText returns a digest as text; "" for the zero Digest.
func digestText(d pins.Digest) string {
	if d == (pins.Digest{}) {
		return ""
	}
	return d.String()
}
