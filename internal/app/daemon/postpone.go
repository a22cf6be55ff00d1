package daemon

import (
	"maps"
	"reflect"

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
	living := s.Supervisor.Living()
	at := places(found.Tools, living)
	for _, served := range living {
		i, there := at[served.Name]
		if !there {
			continue
		}
		old, t := served, found.Tools[i]
		if reflect.DeepEqual(old, t) || old.Kind != t.Kind || !reflect.DeepEqual(old.Isolation, t.Isolation) || discovery.ApplyTerms(&old, cfg) != nil {
			continue
		}
		if s.Packages.Prepare(t, again) {
			found.Tools[i] = served
		}
	}
}

// places returns where among tools those are that have the names of living ones.
func places(tools, living []manifest.Tool) map[string]int {
	at := make(map[string]int, len(living))
	for i := range living {
		at[living[i].Name] = -1
	}
	for i := range tools { // they are large
		if _, lives := at[tools[i].Name]; lives {
			at[tools[i].Name] = i
		}
	}
	maps.DeleteFunc(at, func(_ string, i int) bool { return i < 0 })
	return at
}
