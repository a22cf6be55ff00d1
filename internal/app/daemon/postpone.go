package daemon

import (
	"reflect"
	"slices"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/manifest"
)

// postpone keeps, for now, the manifests of capsules whose new ones need packages that are not installed yet (SPEC
// R4). When they are, the tools are applied again. A manifest that isolates the capsule in another way is not
// postponed: the old process may be what it is to end.
func (s *server) postpone(found *manifest.Result, cfg *config.Loaded) {
	again := func() {
		select {
		case s.prepared <- struct{}{}:
		default: // it is requested already
		}
	}
	for _, served := range s.Supervisor.Manifests() {
		i := slices.IndexFunc(found.Tools, func(t manifest.Tool) bool { return t.Name == served.Tool.Name })
		if i < 0 || !served.Lives {
			continue
		}
		old, t := served.Tool, found.Tools[i]
		if reflect.DeepEqual(old, t) || old.Kind != t.Kind || !reflect.DeepEqual(old.Isolation, t.Isolation) || discovery.ApplyTerms(&old, cfg) != nil {
			continue
		}
		if s.Packages.Prepare(t, again) {
			found.Tools[i] = served.Tool
		}
	}
}
