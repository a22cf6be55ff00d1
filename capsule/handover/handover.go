// Package handover is what one program gives to the next one of a capsule, so that its process goes on
// (docs/decisions/0051).
package handover

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/orla-project/orla/capsule/protocol"
	"github.com/orla-project/orla/capsule/records"
	"github.com/orla-project/orla/capsule/stdio"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/manifest"
)

// State is a capsule that is READY.
type State struct {
	Origin     string           `json:"origin"` // see Origin
	Connection stdio.State      `json:"connection"`
	Began      time.Time        `json:"began"`
	Ready      time.Time        `json:"ready"`
	Started    int              `json:"started"` // processes so far, with this one
	Hello      protocol.Hello   `json:"hello"`
	Peer       protocol.State   `json:"peer"`
	Offered    *records.Offered `json:"offered,omitempty"` // see OfferedOf; nil if it is not known
	Files      uint64           `json:"files,omitempty"`   // the files that the process has; see files.Watcher.Sum
}

// maxOffered bounds the lists that are given, in bytes.
const maxOffered = 64 << 10

// OfferedOf returns what is given of what a capsule offers: nil if it is large. The state is written and read as JSON while
// all requests wait (SPEC N2, S2). The next program has larger lists from the state folder, as at any other start, and asks for
// them again.
func OfferedOf(said records.Offered) *records.Offered {
	size := 0
	for _, list := range [][]json.RawMessage{said.Tools, said.Resources, said.Templates, said.Prompts} {
		for _, one := range list {
			size += len(one)
		}
	}
	if size > maxOffered {
		return nil
	}
	return &said
}

// Origin returns a digest of everything that decides what process a capsule has: what starts it, with the values of
// secrets, and what the handshake is compared with.
func Origin(t manifest.Tool, spec *launch.Spec) string {
	of := struct {
		Name, Version, Handshake, Protocol string
		Path, Dir                          string
		Argv, Env, Secrets                 []string
		Grace                              time.Duration
		Limits                             cgroup.Limits
	}{
		t.Name, t.Version, string(t.Runtime.Handshake), string(t.Runtime.Protocol),
		spec.Path, spec.Dir, spec.Argv, slices.Sorted(slices.Values(spec.Env)), spec.Secrets, spec.Grace, spec.Limits,
	}
	raw, err := json.Marshal(of)
	if err != nil { // strings and numbers
		panic(err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// Taken is a capsule of the program before whose process was adopted, or was not given.
type Taken struct {
	State
	Process *launch.LocalProcess // nil if it was not given; then the State has only a count
}

// Counted returns a capsule without a process that had some restarts.
func Counted(restarts int) *Taken { return &Taken{State: State{Started: restarts + 1}} }

// Connection returns the connection with the process.
func (t *Taken) Connection(opts stdio.Options) *stdio.Connection {
	opts.Before = &t.State.Connection
	c := stdio.New(stdio.Taken(t.Process), opts)
	c.Origin = t.Origin
	return c
}

// End ends the process, which no capsule goes on with, and returns when nothing of it is left.
func (t *Taken) End() {
	stdin, stdout, stderr := t.Process.Streams()
	t.Process.Finish(manifest.CloseGrace) // before its stdin ends, as launch.LocalProcess says
	_ = stdin.Close()
	<-t.Process.Gone()
	_ = stdout.Close() // nobody reads it
	_ = stderr.Close()
}
