package discovery

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/manifest"
)

// BeyondTerms is the error of a tool that asks for more than the operator allows. A capsule that runs
// already is stopped.
type BeyondTerms struct{ error }

func beyond(t *manifest.Tool, format string, args ...any) error {
	return BeyondTerms{fmt.Errorf("%s: %s", t.Source, fmt.Sprintf(format, args...))}
}

// ApplyTerms sets how t is isolated: as it asks, where the operator allows it, and as the operator says
// otherwise. The error says what the operator does not allow.
func ApplyTerms(t *manifest.Tool, cfg *config.Loaded) error {
	if err := watchesOutside(t, cfg); err != nil {
		return err
	}
	switch {
	case t.Isolation.Isolated():
	case t.Kind == manifest.Cli:
		return allowed(t, "spec.cli.command", t.Resource.CLI.Command, cfg)
	case t.Runtime.FromCluster != "":
		return allowed(t, "spec.command", t.Runtime.FromCluster, cfg)
	}
	if t.Kind == manifest.Wasm {
		return moduleMemory(t, cfg)
	}
	if !t.Isolation.Isolated() || t.Isolation.Mode == manifest.IsolationWASM {
		return nil
	}
	faults := []error{withNetwork(t, cfg), withResources(t, cfg)}
	var terms manifest.Terms
	switch t.Isolation.Mode {
	case manifest.IsolationSandboxed:
		sandboxed(t.Isolation, &terms, cfg)
	case manifest.IsolationContainer:
		terms.Backend = manifest.BackendContainer
	case manifest.IsolationKubernetes:
		clustered(&terms, cfg)
	case "", manifest.IsolationNone, manifest.IsolationWASM: // which are above
	}
	if terms.Backend == manifest.BackendContainer {
		t.Isolation.Image = cmp.Or(t.Isolation.Image, cfg.ContainerImage)
		contained(t.Isolation, &terms, cfg)
	}
	if g := t.Isolation.Grants; terms.Refused == "" && terms.Backend != manifest.BackendNative && (len(g.Reads)+len(g.Writes) > 0 || g.Network && t.Isolation.Mode == manifest.IsolationSandboxed) {
		terms.Refused = "what it was granted of files or the network can be given to a native sandbox alone"
		terms.Remedy = "set sandbox_backend: native, or set what the package may do with packages in orla.yaml"
	}
	t.Isolation.Terms = terms
	return errors.Join(faults...)
}

// watchesOutside checks the watched folders outside of a capsule's package, and resolves links in them.
func watchesOutside(t *manifest.Tool, cfg *config.Loaded) error {
	var real []string
	for _, path := range t.Runtime.HotLoad.Outside {
		path = regularfile.Real(path)
		allows := func(folder string) bool {
			rel, err := filepath.Rel(regularfile.Real(folder), path)
			return err == nil && filepath.IsLocal(rel)
		}
		if !slices.ContainsFunc(cfg.HotLoadFolders, allows) {
			return beyond(t, "hot_load.watch: %s is outside of the package; the operator allows such folders with hot_load_folders", path)
		}
		real = append(real, path)
	}
	t.Runtime.HotLoad.Outside = real
	return nil
}

// allowed checks a command that runs as Orla's user, and is at a key of its document. It has to be listed exactly as it
// is written: who lists jq does not mean every file with that name.
func allowed(t *manifest.Tool, at, command string, cfg *config.Loaded) error {
	if !slices.Contains(cfg.CLIAllowedCommands, command) {
		return beyond(t, "%s: %q may not run with isolation_mode none: it is not in cli_allowed_commands, which the operator sets", at, command)
	}
	return nil
}

// moduleMemory checks the memory that a module asks for. All other limits are its own.
func moduleMemory(t *manifest.Tool, cfg *config.Loaded) error {
	if asked, most := yamldoc.Size(t.Resource.WASM.MaxMemory), cfg.WASMMaxMemory; asked > most {
		return beyond(t, "spec.wasm.max_memory_bytes: asks for %s; modules may have %s at most, unless the operator raises wasm_max_memory", asked, most)
	}
	return nil
}

// withNetwork sees to the network that t asks for.
func withNetwork(t *manifest.Tool, cfg *config.Loaded) error {
	network := cmp.Or(t.Isolation.Network, noNetwork)
	t.Isolation.Network = network
	switch {
	case network == noNetwork, t.Isolation.Mode == manifest.IsolationKubernetes: // whose networks are the cluster's
		return nil
	case t.Isolation.Mode == manifest.IsolationSandboxed:
		return beyond(t, "network %s does not go with isolation_mode sandboxed, which has no network; take it out, or set isolation_mode: container", network)
	case len(cfg.ContainerNetworks) == 0 && !SharedNetwork(network), slices.Contains(cfg.ContainerNetworks, network):
		return nil
	}
	return beyond(t, "network %s is not one that tools may ask for; the operator allows networks with tool_container_networks", network)
}

// noNetwork is the network of a tool that asks for none.
const noNetwork = "none"

// SharedNetwork reports whether a network is that of this machine or of another container.
func SharedNetwork(network string) bool {
	return network == "host" || strings.HasPrefix(network, "container:") || strings.HasPrefix(network, "ns:")
}

// withResources sets the operator's limits where t asks for none.
func withResources(t *manifest.Tool, cfg *config.Loaded) error {
	var faults []error
	over := func(asked, most, key string) {
		faults = append(faults, beyond(t, "asks for %s; tools may have %s at most, unless the operator raises %s", asked, most, key))
	}
	r := &t.Isolation.Resources
	if r.Memory == 0 {
		r.Memory = int64(cfg.ContainerMemory)
	} else if most := int64(cfg.ContainerMaxMemory); r.Memory > most {
		over(yamldoc.Size(r.Memory).String()+" of memory", yamldoc.Size(most).String(), "tool_container_max_memory")
	}
	if r.CPUs == 0 {
		r.CPUs = cfg.ContainerCPUs
	} else if most := cfg.ContainerMaxCPUs; r.CPUs > most {
		over(config.NumberText(r.CPUs)+" processors", config.NumberText(most), "tool_container_max_cpus")
	}
	if r.Pids == 0 && t.Isolation.Mode != manifest.IsolationKubernetes { // where only a node bounds them
		r.Pids = cfg.ContainerPids
	} else if most := cfg.ContainerMaxPids; r.Pids > most {
		over(fmt.Sprint(r.Pids, " processes"), fmt.Sprint(most), "tool_container_max_pids_limit")
	}
	return errors.Join(faults...)
}

// sandboxed chooses the backend of a sandbox. A tool with an image always runs in it, since the image
// has the programs that it needs.
func sandboxed(i manifest.Isolation, terms *manifest.Terms, cfg *config.Loaded) {
	configured := cfg.ContainerEngine != config.Auto && cfg.ContainerEngine != config.NoEngine && cfg.ContainerImage != ""
	switch {
	case cfg.SandboxBackend == string(manifest.BackendContainer), cfg.SandboxBackend == config.Auto && (configured || i.Image != ""):
		terms.Backend = manifest.BackendContainer
	case i.Image != "":
		terms.Refused, terms.Remedy = "its image needs a container engine, and sandbox_backend is native", "set sandbox_backend: auto"
	default:
		terms.Backend, terms.Paths = manifest.BackendNative, cfg.SandboxPaths
		for _, dir := range [...]string{cfg.ToolsDir, cfg.SecretsDir, cfg.StateDir} {
			if path, err := filepath.Abs(dir); dir != "" && err == nil {
				terms.Hidden = append(terms.Hidden, path)
			}
		}
	}
}

// contained sets the container engine.
func contained(i manifest.Isolation, terms *manifest.Terms, cfg *config.Loaded) {
	terms.Engine, terms.Runtime, terms.User = cfg.ContainerEngine, cfg.ContainerRuntime, cfg.ContainerUser
	switch {
	case cfg.ContainerEngine == config.NoEngine:
		terms.Refused, terms.Remedy = "it needs a container engine, and tool_container_engine is none", "set tool_container_engine: auto"
	case i.Image == "":
		terms.Refused, terms.Remedy = "the tool needs an image, and names none", "name one in the tool's file, or set tool_container_image"
	}
}

// clustered sets the cluster.
func clustered(terms *manifest.Terms, cfg *config.Loaded) {
	terms.Backend, terms.User = manifest.BackendKubernetes, cfg.ContainerUser
	terms.Cluster = clusterOf(cfg)
	if !cfg.K8sEnabled {
		terms.Refused, terms.Remedy = "isolation_mode kubernetes is off", "set tool_k8s_enabled: true"
	}
}

// clusterOf is the cluster that cfg names.
func clusterOf(cfg *config.Loaded) manifest.Cluster {
	return manifest.Cluster{Kubeconfig: cfg.K8sKubeconfig, Context: cfg.K8sContext, Namespace: cfg.K8sNamespace, TTL: time.Duration(cfg.K8sTTL)}
}

// Weaker lists the settings of the operator that isolate tools less than the defaults.
func Weaker(cfg *config.Loaded) []string {
	var ways []string
	add := func(is bool, format string, args ...any) {
		if is {
			ways = append(ways, fmt.Sprintf(format, args...))
		}
	}
	uid, gid, _ := strings.Cut(cfg.ContainerUser, ":")
	add(uid == "0" || gid == "0", "tool_container_user is %s, which is root", cfg.ContainerUser)
	for _, network := range cfg.ContainerNetworks {
		add(SharedNetwork(network), "tool_container_networks has %s, which the container would share", network)
	}
	add(len(cfg.SandboxPaths) > 0, "sandbox_paths shows %s", strings.Join(cfg.SandboxPaths, ", "))
	add(cfg.ContainerMaxMemory > config.SandboxMemory, "tool_container_max_memory is %s", cfg.ContainerMaxMemory)
	add(cfg.ContainerMaxCPUs > config.SandboxCPUs, "tool_container_max_cpus is %s", config.NumberText(cfg.ContainerMaxCPUs))
	add(cfg.ContainerMaxPids > config.SandboxPids, "tool_container_max_pids_limit is %d", cfg.ContainerMaxPids)
	add(cfg.WASMMaxMemory > config.ModuleMemory, "wasm_max_memory is %s", cfg.WASMMaxMemory)
	add(len(cfg.CLIAllowedCommands) > 0, "cli_allowed_commands lets %s run unisolated", strings.Join(cfg.CLIAllowedCommands, ", "))
	return ways
}
