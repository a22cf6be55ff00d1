package discovery

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/manifest"
)

// configured is a configuration as those settings have it.
func configured(t *testing.T, settings ...string) *config.Loaded {
	t.Helper()
	l := &config.Loader{Path: "/dev/null"}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		l.Flags = append(l.Flags, config.Setting{Key: key, Value: value, Flag: strings.ReplaceAll(key, "_", "-")})
	}
	cfg, err := l.Load()
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// isolated is a tool that asks for that.
func isolated(mode manifest.IsolationMode, changes ...func(*manifest.Tool)) manifest.Tool {
	tool := manifest.Tool{Name: "a", Kind: manifest.Simple, Source: "tools/a/tool.yaml", Isolation: manifest.Isolation{Mode: mode}}
	for _, change := range changes {
		change(&tool)
	}
	return tool
}

// SPEC-TOOLS 7.2: where a tool asks for nothing it has what the operator says;
// it may ask for less, and for more only up to the operator's ceiling.
func TestT72LimitsAreTheOperatorsAndAToolMayAskForLess(t *testing.T) {
	asking := func(memory int64, cpus float64, pids int) func(*manifest.Tool) {
		return func(t *manifest.Tool) {
			t.Isolation.Resources = manifest.Resources{Memory: memory, CPUs: cpus, Pids: pids}
		}
	}
	for name, tt := range map[string]struct {
		settings []string
		tool     manifest.Tool
		want     manifest.Resources
		faults   []string
	}{
		"asks for nothing": {tool: isolated(manifest.IsolationSandboxed), want: manifest.Resources{Memory: 128 << 20, CPUs: .5, Pids: 64}},
		"asks for less":    {tool: isolated(manifest.IsolationContainer, asking(64<<20, .25, 8)), want: manifest.Resources{Memory: 64 << 20, CPUs: .25, Pids: 8}},
		"asks for more": {
			tool: isolated(manifest.IsolationContainer, asking(1<<30, 2, 100)),
			faults: []string{
				"tools/a/tool.yaml: asks for 1GiB of memory; tools may have 128MiB at most, unless the operator raises tool_container_max_memory",
				"asks for 2 processors; tools may have 0.5 at most, unless the operator raises tool_container_max_cpus",
				"asks for 100 processes; tools may have 64 at most, unless the operator raises tool_container_max_pids_limit",
			},
		},
		"asks for more where it may": {
			settings: []string{"tool_container_max_memory=2GiB", "tool_container_max_cpus=4", "tool_container_max_pids_limit=200"},
			tool:     isolated(manifest.IsolationContainer, asking(1<<30, 2, 100)), want: manifest.Resources{Memory: 1 << 30, CPUs: 2, Pids: 100},
		},
		"the operator gives less": {
			settings: []string{"tool_container_memory=64MiB"},
			tool:     isolated(manifest.IsolationSandboxed, asking(128<<20, 0, 0)),
			faults:   []string{"asks for 128MiB of memory; tools may have 64MiB at most"},
		},
		"is not isolated": {tool: isolated(manifest.IsolationNone, asking(1<<30, 0, 0)), want: manifest.Resources{Memory: 1 << 30}},
	} {
		t.Run(name, func(t *testing.T) {
			err := ApplyTerms(&tt.tool, configured(t, tt.settings...))
			if (err != nil) != (tt.faults != nil) {
				t.Fatalf("error = %v", err)
			}
			for _, fault := range tt.faults {
				if !strings.Contains(err.Error(), fault) {
					t.Errorf("%q does not say %q", err, fault)
				}
			}
			if got := tt.tool.Isolation.Resources; err == nil && got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// SPEC-TOOLS 7: what isolates a tool, and what refuses its calls because
// nothing may.
func TestT7ModesChooseTheirBackend(t *testing.T) {
	withImage := func(t *manifest.Tool) { t.Isolation.Image = "its/own" }
	for name, tt := range map[string]struct {
		settings []string
		tool     manifest.Tool
		backend  manifest.Backend
		image    string
		refused  string
	}{
		"none":                           {tool: isolated(manifest.IsolationNone)},
		"sandboxed":                      {tool: isolated(manifest.IsolationSandboxed), backend: manifest.BackendNative},
		"sandboxed with an engine alone": {[]string{"tool_container_engine=podman"}, isolated(manifest.IsolationSandboxed), manifest.BackendNative, "", ""},
		"sandboxed with an image alone":  {[]string{"tool_container_image=an/image"}, isolated(manifest.IsolationSandboxed), manifest.BackendNative, "", ""},
		"sandboxed with both": {
			[]string{"tool_container_engine=podman", "tool_container_image=an/image"}, isolated(manifest.IsolationSandboxed), manifest.BackendContainer, "an/image", "",
		},
		"sandboxed with both, natively": {
			[]string{"sandbox_backend=native", "tool_container_engine=podman", "tool_container_image=an/image"}, isolated(manifest.IsolationSandboxed), manifest.BackendNative, "", "",
		},
		"sandboxed with its own image": {tool: isolated(manifest.IsolationSandboxed, withImage), backend: manifest.BackendContainer, image: "its/own"},
		"sandboxed with its own image, natively": {
			[]string{"sandbox_backend=native"}, isolated(manifest.IsolationSandboxed, withImage), "", "its/own", "sandbox_backend is native",
		},
		"sandboxed by containers without an image": {
			[]string{"sandbox_backend=container"}, isolated(manifest.IsolationSandboxed), manifest.BackendContainer, "", "set tool_container_image",
		},
		"container":                  {tool: isolated(manifest.IsolationContainer, withImage), backend: manifest.BackendContainer, image: "its/own"},
		"container without an image": {tool: isolated(manifest.IsolationContainer), backend: manifest.BackendContainer, refused: "set tool_container_image"},
		"container without an engine": {
			[]string{"tool_container_engine=none"}, isolated(manifest.IsolationContainer, withImage), manifest.BackendContainer, "its/own", "tool_container_engine is none",
		},
		"kubernetes":         {tool: isolated(manifest.IsolationKubernetes, withImage), backend: manifest.BackendKubernetes, image: "its/own", refused: "set tool_k8s_enabled"},
		"kubernetes enabled": {[]string{"tool_k8s_enabled=true"}, isolated(manifest.IsolationKubernetes, withImage), manifest.BackendKubernetes, "its/own", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := ApplyTerms(&tt.tool, configured(t, tt.settings...)); err != nil {
				t.Fatal(err)
			}
			terms := tt.tool.Isolation.Terms
			if terms.Backend != tt.backend || tt.tool.Isolation.Image != tt.image || (terms.Refused != "") != (tt.refused != "") || !strings.Contains(terms.Refused+"; "+terms.Remedy, tt.refused) {
				t.Errorf("got %+v with image %q", terms, tt.tool.Isolation.Image)
			}
		})
	}
}

// SPEC-TOOLS 7.3: a tool has no network unless it asks for one that it may have.
func TestT73NetworksAreThoseThatToolsMayHave(t *testing.T) {
	asking := func(mode manifest.IsolationMode, network string) manifest.Tool {
		return isolated(mode, func(t *manifest.Tool) { t.Isolation.Image, t.Isolation.Network = "an/image", network })
	}
	for name, tt := range map[string]struct {
		settings []string
		tool     manifest.Tool
		fault    string
	}{
		"none":                   {tool: asking(manifest.IsolationContainer, "none")},
		"any":                    {tool: asking(manifest.IsolationContainer, "tools")},
		"host":                   {tool: asking(manifest.IsolationContainer, "host"), fault: "tool_container_networks"},
		"another container's":    {tool: asking(manifest.IsolationContainer, "container:db"), fault: "tool_container_networks"},
		"a namespace":            {tool: asking(manifest.IsolationContainer, "ns:/proc/1/ns/net"), fault: "tool_container_networks"},
		"host, which is allowed": {[]string{"tool_container_networks=host"}, asking(manifest.IsolationContainer, "host"), ""},
		"not on the list":        {[]string{"tool_container_networks=tools"}, asking(manifest.IsolationContainer, "bridge"), "tool_container_networks"},
		"none beside a list":     {[]string{"tool_container_networks=tools"}, asking(manifest.IsolationContainer, "none"), ""},
		"of a sandbox":           {tool: asking(manifest.IsolationSandboxed, "tools"), fault: "isolation_mode sandboxed, which has no network"},
	} {
		t.Run(name, func(t *testing.T) {
			err := ApplyTerms(&tt.tool, configured(t, tt.settings...))
			if (err != nil) != (tt.fault != "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("error = %v", err)
			}
		})
	}
}

// SPEC-TOOLS 3.6: with isolation none a command has to be listed, as it is written.
func TestT36CommandsThatRunUnisolatedAreListed(t *testing.T) {
	for name, tt := range map[string]struct {
		allowed, command string
		mode             manifest.IsolationMode
		served           bool
	}{
		"nothing is listed":           {"", "git", manifest.IsolationNone, false},
		"it is listed":                {"gh,git", "git", manifest.IsolationNone, true},
		"a path of that name":         {"git", "/tmp/git", manifest.IsolationNone, false},
		"a listed path":               {"/usr/bin/git", "/usr/bin/git", manifest.IsolationNone, true},
		"a way to a listed path":      {"/usr/bin/git", "/usr/bin/../bin/git", manifest.IsolationNone, false},
		"it is isolated":              {"", "git", manifest.IsolationContainer, true},
		"an empty mode is none":       {"", "git", "", false},
		"the beginning of what is on": {"git", "gi", manifest.IsolationNone, false},
	} {
		t.Run(name, func(t *testing.T) {
			tool := isolated(tt.mode, func(t *manifest.Tool) {
				t.Kind, t.Resource = manifest.Cli, &manifest.Resource{CLI: &manifest.CLI{Command: tt.command}}
			})
			if err := ApplyTerms(&tool, configured(t, "cli_allowed_commands="+tt.allowed)); (err == nil) != tt.served {
				t.Errorf("error = %v", err)
			}
		})
	}
}

// SPEC P2: a command that a custom resource of a cluster names has to be listed too. One that a file names has not: who
// writes the file may run programs.
func TestP2CommandsOfAClusterThatRunUnisolatedAreListed(t *testing.T) {
	for name, tt := range map[string]struct {
		allowed, command string
		mode             manifest.IsolationMode
		fault            string
	}{
		"nothing is listed": {"", "sh", manifest.IsolationNone, `spec.command: "sh" may not run with isolation_mode none: it is not in cli_allowed_commands, which the operator sets`},
		"it is listed":      {"npx,sh", "sh", "", ""},
		"a path to it":      {"sh", "/tmp/sh", "", `"/tmp/sh" may not run`},
		"it is isolated":    {"", "sh", manifest.IsolationSandboxed, ""},
		"a Pod":             {"", "sh", manifest.IsolationKubernetes, ""},
		"a file names it":   {"", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			tool := isolated(tt.mode, func(t *manifest.Tool) {
				t.Kind, t.Path, t.Runtime.FromCluster = manifest.Capsule, "/bin/sh", tt.command
			})
			err := ApplyTerms(&tool, configured(t, "cli_allowed_commands="+tt.allowed))
			if (err != nil) != (tt.fault != "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("error = %v, want %q", err, tt.fault)
			}
		})
	}
}

// SPEC S2: a module's memory is Orla's own, so that its manifest alone does not say how much
// that is.
func TestS2AModulesMemoryHasTheOperatorsCeiling(t *testing.T) {
	for _, tt := range []struct {
		asks     int64
		settings []string
		fault    string
	}{
		{asks: 64 << 20},
		{asks: 256 << 20},
		{asks: 4 << 30, fault: "tools/a/tool.yaml: spec.wasm.max_memory_bytes: asks for 4GiB; modules may have 256MiB at most, unless the operator raises wasm_max_memory"},
		{asks: 4 << 30, settings: []string{"wasm_max_memory=4GiB"}},
		{asks: 64 << 20, settings: []string{"wasm_max_memory=32MiB"}, fault: "modules may have 32MiB at most"},
	} {
		tool := isolated(manifest.IsolationWASM)
		tool.Kind, tool.Resource = manifest.Wasm, &manifest.Resource{WASM: &manifest.WASM{MaxMemory: tt.asks}}
		err := ApplyTerms(&tool, configured(t, tt.settings...))
		if (err != nil) != (tt.fault != "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%d bytes under %v: %v; want %q", tt.asks, tt.settings, err, tt.fault)
		}
	}
}

// SPEC H2: the terms are part of the tool, so that a change of theirs changes
// the tools that they concern, and no others.
func TestT72AChangeOfTermsChangesTheToolsThatItConcerns(t *testing.T) {
	tools := func() map[string]manifest.Tool {
		withImage := func(t *manifest.Tool) { t.Isolation.Image = "its/own" }
		return map[string]manifest.Tool{
			"none":       isolated(manifest.IsolationNone),
			"native":     isolated(manifest.IsolationSandboxed),
			"container":  isolated(manifest.IsolationContainer, withImage),
			"kubernetes": isolated(manifest.IsolationKubernetes, withImage),
		}
	}
	under := func(settings ...string) map[string]manifest.Tool {
		all := tools()
		for name, tool := range all {
			if err := ApplyTerms(&tool, configured(t, settings...)); err != nil {
				t.Fatal(err)
			}
			all[name] = tool
		}
		return all
	}
	before := under()
	for setting, want := range map[string]string{
		"sandbox_paths=/opt/models":      "native",
		"tool_container_runtime=runsc":   "container",
		"tool_container_engine=docker":   "container",
		"tool_k8s_namespace=tools":       "kubernetes",
		"tool_k8s_ttl=10s":               "kubernetes",
		"tool_container_networks=tools":  "",
		"tool_container_max_memory=1GiB": "",
		"tool_container_memory=64MiB":    "container kubernetes native",
		"tool_container_user=1:1":        "container kubernetes",
		"tool_container_image=other":     "",
		"max_inline=1MiB":                "",
	} {
		var changed []string
		after := under(setting)
		for _, name := range []string{"container", "kubernetes", "native", "none"} {
			if !reflect.DeepEqual(before[name], after[name]) {
				changed = append(changed, name)
			}
		}
		if got := strings.Join(changed, " "); got != want {
			t.Errorf("%s changes %q, want %q", setting, got, want)
		}
	}
	if ttl := before["kubernetes"].Isolation.Terms.Cluster.TTL; ttl != 300*time.Second {
		t.Errorf("the Jobs' TTL is %v", ttl)
	}
}
