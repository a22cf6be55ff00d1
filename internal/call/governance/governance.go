// Package governance denies every call while there are governance documents, since this version does not
// enforce them and must not ignore them.
package governance

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/discover"
)

// Gate decides whether a call may be made. This version enforces no
// governance documents, so it denies every call while there is one (SPEC-TOOLS
// 8.3). Its methods but Set may be called from any goroutine.
type Gate struct {
	Denies    atomic.Bool
	documents []manifest.Problem // in force; owned by Set
}

// errGoverned is what callers get. It does not say what the documents contain.
var errGoverned = fault.New(fault.PermissionDenied,
	"tool_permission_denied: governance is not available in this version of Orla, and there are governance documents; every call is denied until the operator removes them (orla status names them)")

// Set replaces the documents by those that a search has found. A document whose folder cannot be read
// stays in force, and is added to the problems.
func (g *Gate) Set(found *manifest.Result) {
	documents := slices.DeleteFunc(slices.Clone(found.Problems), func(p manifest.Problem) bool { return !p.Denies })
	for _, old := range g.documents {
		unread := func(p manifest.Problem) bool {
			return p.Unreadable() && strings.HasPrefix(old.Path, p.Path+string(filepath.Separator))
		}
		if slices.ContainsFunc(found.Problems, unread) {
			documents = append(documents, old)
			found.Problems = append(found.Problems, old)
		}
	}
	g.documents = documents
	g.Denies.Store(len(documents) > 0)
}

// Admit is for supervisor.Options.
func (g *Gate) Admit(context.Context, peer.Call) error { return g.decide() }

// AdmitRequest is for supervisor.Options.
func (g *Gate) AdmitRequest(context.Context, peer.Request) error { return g.decide() }

func (g *Gate) decide() error {
	if g.Denies.Load() {
		return errGoverned
	}
	return nil
}

// AddDocuments adds to what a search has found the governance documents of the folders
// of tools, where the search was for one tool alone.
func AddDocuments(found manifest.Result, folders discover.Options) manifest.Result {
	for _, p := range discover.Tools(folders).Problems {
		same := func(other manifest.Problem) bool { return config.Absolute(other.Path) == config.Absolute(p.Path) }
		if p.Denies && !slices.ContainsFunc(found.Problems, same) {
			found.Problems = append(found.Problems, p)
		}
	}
	return found
}
