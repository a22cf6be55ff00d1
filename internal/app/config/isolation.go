package config

import (
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/manifest"
)

// IsolationConfig is the operator's settings for isolated tools (SPEC-TOOLS 7).
type IsolationConfig struct {
	CLIAllowedCommands []string `json:"cli_allowed_commands,omitempty" jsonschema:"Commands that tools of type cli, and McpServers that are custom resources of a cluster, may run with isolation_mode none, as their documents write them: names, or absolute paths. Default: none." flag:"COMMANDS" brief:"commands that cli tools and McpServers of a cluster may run unisolated" sample:"[git, /usr/bin/jq]"`
	SandboxBackend     string   `json:"sandbox_backend,omitempty" jsonschema:"How isolation_mode sandboxed works: native (Linux), container, or auto: a container for a tool with an image, or if both tool_container_engine and tool_container_image are set; otherwise native. Default auto." flag:"BACKEND" brief:"auto, native or container (default auto)"`
	SandboxPaths       []string `json:"sandbox_paths,omitempty" jsonschema:"More files and folders of this machine, absolute, that a native sandbox shows, read-only. Default: none." flag:"PATHS" brief:"more of this machine that native sandboxes see, read-only" sample:"[/usr/local/lib/models]"`

	ContainerEngine    string       `json:"tool_container_engine,omitempty" jsonschema:"podman, docker, an absolute path of one of them, none, or auto for the first one found. Default auto." flag:"ENGINE" brief:"auto, podman, docker, none or a path (default auto)"`
	ContainerImage     string       `json:"tool_container_image,omitempty" jsonschema:"Image for isolated tools that name none. Default: none." flag:"IMAGE" brief:"image for isolated tools that name none" sample:"docker.io/library/python:3.13-slim"`
	ContainerRuntime   string       `json:"tool_container_runtime,omitempty" jsonschema:"OCI runtime that the engine uses, such as runsc. Default: the engine's." flag:"RUNTIME" brief:"OCI runtime that the engine is to use" sample:"runsc"`
	ContainerNetworks  []string     `json:"tool_container_networks,omitempty" jsonschema:"Networks that a tool may ask for; none is always allowed. Default: any but host, container:… and ns:…." flag:"NETWORKS" brief:"networks that a tool may ask for (default any but host)" sample:"[tools]"`
	ContainerUser      string       `json:"tool_container_user,omitempty" jsonschema:"UID:GID of tools in containers and Jobs. In a native sandbox it is always 65532:65532. Default 65532:65532." flag:"UID:GID" brief:"user and group in containers (default 65532:65532)"`
	ContainerMemory    yamldoc.Size `json:"tool_container_memory,omitempty" jsonschema:"Memory of an isolated tool that asks for nothing else, swap included. Default 128MiB." flag:"SIZE" brief:"memory of an isolated tool (default 128MiB)"`
	ContainerCPUs      float64      `json:"tool_container_cpus,omitempty" jsonschema:"Processors of an isolated tool that asks for nothing else; 0.5 is half of one. Default 0.5." flag:"NUMBER" brief:"processors of an isolated tool (default 0.5)"`
	ContainerPids      int          `json:"tool_container_pids_limit,omitempty" jsonschema:"Processes and threads of an isolated tool that asks for nothing else. Default 64." flag:"NUMBER" brief:"processes and threads of an isolated tool (default 64)"`
	ContainerMaxMemory yamldoc.Size `json:"tool_container_max_memory,omitempty" jsonschema:"The most memory that a tool may ask for; a tool that asks for more is not served. Default: tool_container_memory." flag:"SIZE" brief:"the most memory that a tool may ask for (default the same)"`
	ContainerMaxCPUs   float64      `json:"tool_container_max_cpus,omitempty" jsonschema:"The most processors that a tool may ask for. Default: tool_container_cpus." flag:"NUMBER" brief:"the most processors that a tool may ask for (default the same)"`
	ContainerMaxPids   int          `json:"tool_container_max_pids_limit,omitempty" jsonschema:"The most processes and threads that a tool may ask for. Default: tool_container_pids_limit." flag:"NUMBER" brief:"the most processes that a tool may ask for (default the same)"`

	WASMMaxMemory   yamldoc.Size `json:"wasm_max_memory,omitempty" jsonschema:"The most that wasm.max_memory_bytes of a tool may be: memory of a module's call, in Orla's own process; a tool that asks for more is not served. Default 256MiB." flag:"SIZE" brief:"the most memory that a module may ask for (default 256MiB)"`
	WASMTotalMemory yamldoc.Size `json:"wasm_total_memory,omitempty" jsonschema:"Memory of all calls of modules together; calls wait for more, and one of them at a time may go beyond it. Default 512MiB." flag:"SIZE" brief:"memory of all calls of modules together (default 512MiB)"`

	K8sEnabled    bool             `json:"tool_k8s_enabled,omitempty" jsonschema:"Run tools with isolation_mode kubernetes, as Jobs of a cluster. Default false." flag:"-" brief:"run tools with isolation_mode kubernetes, as Jobs of a cluster"`
	K8sKubeconfig string           `json:"tool_k8s_kubeconfig,omitempty" jsonschema:"File that says how to reach the cluster; a relative path is relative to this file's folder. Default: $KUBECONFIG or ~/.kube/config, else the cluster of the pod that Orla runs in." flag:"FILE" brief:"how the cluster is reached (default as kubectl finds it)" sample:"/etc/orla/kubeconfig"`
	K8sContext    string           `json:"tool_k8s_context,omitempty" jsonschema:"Context of that file. Default: its current one." flag:"NAME" brief:"context of that file (default its current one)" sample:"tools"`
	K8sNamespace  string           `json:"tool_k8s_namespace,omitempty" jsonschema:"Namespace of the Jobs. Default default." flag:"NAME" brief:"namespace of the Jobs (default default)"`
	K8sTTL        yamldoc.Duration `json:"tool_k8s_ttl,omitempty" jsonschema:"When the cluster removes a Job that Orla could not remove. Default 300s." flag:"DURATION" brief:"when the cluster removes Jobs that Orla could not (default 300s)"`
}

// The defaults of an isolated tool's bounds (SPEC-TOOLS 7.2).
const (
	sandboxUser   = "65532:65532"
	SandboxMemory = 128 << 20
	SandboxCPUs   = 0.5
	SandboxPids   = 64
)

// The defaults of the memory of modules, which run in Orla's own process.
const (
	ModuleMemory  = 256 << 20
	modulesMemory = 512 << 20
)

// The values of tool_container_engine and sandbox_backend that do not name a program.
const (
	Auto     = "auto"
	NoEngine = "none"
)

func isolationDefaults() IsolationConfig {
	return IsolationConfig{
		SandboxBackend:     Auto,
		ContainerEngine:    Auto,
		ContainerUser:      sandboxUser,
		ContainerMemory:    SandboxMemory,
		ContainerCPUs:      SandboxCPUs,
		ContainerPids:      SandboxPids,
		ContainerMaxMemory: SandboxMemory,
		ContainerMaxCPUs:   SandboxCPUs,
		ContainerMaxPids:   SandboxPids,
		WASMMaxMemory:      ModuleMemory,
		WASMTotalMemory:    modulesMemory,
		K8sNamespace:       "default",
		K8sTTL:             yamldoc.Duration(300 * time.Second),
	}
}

// ceilings sets each ceiling that is not configured to the limit that tools have if they do not ask for
// another one.
func (c *Loaded) ceilings() {
	follow := func(most, plain string, set func()) {
		if c.OriginOf(most).Rank == FromDefault && c.OriginOf(plain).Rank != FromDefault {
			set()
			c.origins[most] = Origin{FromDefault, "as " + plain}
		}
	}
	follow("tool_container_max_memory", "tool_container_memory", func() { c.ContainerMaxMemory = c.ContainerMemory })
	follow("tool_container_max_cpus", "tool_container_cpus", func() { c.ContainerMaxCPUs = c.ContainerCPUs })
	follow("tool_container_max_pids_limit", "tool_container_pids_limit", func() { c.ContainerMaxPids = c.ContainerPids })
}

var (
	userAndGroup = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(0|[1-9][0-9]{0,9}):(0|[1-9][0-9]{0,9})$`) })
	wordLike     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.:/@+-]*$`) })
	dnsLabel     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`) })
)

// isolation checks the keys of IsolationConfig.
func (v *verdict) isolation() {
	for i, command := range v.CLIAllowedCommands {
		if command == "" || strings.ContainsRune(command, '/') && (!filepath.IsAbs(command) || filepath.Clean(command) != command) {
			v.wrongItem("cli_allowed_commands", i, "%q is neither a name nor an absolute path without . and ..", command)
		}
	}
	if !slices.Contains([]string{Auto, string(manifest.BackendNative), string(manifest.BackendContainer)}, v.SandboxBackend) {
		v.wrong("sandbox_backend", "must be auto, native or container, got %q", v.SandboxBackend)
	}
	v.sandboxPaths()
	if !slices.Contains([]string{Auto, "podman", "docker", NoEngine}, v.ContainerEngine) && !filepath.IsAbs(v.ContainerEngine) {
		v.wrong("tool_container_engine", "must be auto, podman, docker, none or an absolute path, got %q", v.ContainerEngine)
	}
	if v.SandboxBackend == string(manifest.BackendContainer) && v.ContainerEngine == NoEngine {
		v.wrong("sandbox_backend", "is container, but tool_container_engine is none")
	}
	for key, word := range map[string]string{"tool_container_image": v.ContainerImage, "tool_container_runtime": v.ContainerRuntime} {
		if strings.HasPrefix(word, "-") || !wordLike().MatchString(word) { // it becomes an argument of the engine
			what := map[string]string{"tool_container_image": "an image, such as docker.io/library/busybox:1.37", "tool_container_runtime": "a runtime, such as runsc or /usr/bin/runsc"}[key]
			v.wrong(key, "%q is not the name of %s", word, what)
		}
	}
	for i, network := range v.ContainerNetworks {
		if network == "" || strings.HasPrefix(network, "-") || !wordLike().MatchString(network) {
			v.wrongItem("tool_container_networks", i, "%q is not the name of a network", network)
		}
	}
	if !userAndGroup().MatchString(v.ContainerUser) {
		v.wrong("tool_container_user", "must be two numbers, UID:GID, such as %s, got %q", sandboxUser, v.ContainerUser)
	}
	v.bounds()
	if v.WASMMaxMemory < leastModule {
		v.wrong("wasm_max_memory", "must be at least %s, got %s", yamldoc.Size(leastModule), v.WASMMaxMemory)
	}
	if v.WASMTotalMemory < leastMemory {
		v.wrong("wasm_total_memory", "must be at least %s, got %s", yamldoc.Size(leastMemory), v.WASMTotalMemory)
	}
	if !dnsLabel().MatchString(v.K8sNamespace) {
		v.wrong("tool_k8s_namespace", "%q is not the name of a namespace", v.K8sNamespace)
	}
	if v.K8sTTL < yamldoc.Duration(time.Second) {
		v.wrong("tool_k8s_ttl", "must be at least 1s, got %s", v.K8sTTL)
	}
}

// ownOfSandbox are the folders that each sandbox has its own version of.
var ownOfSandbox = []string{"/", "/proc", "/sys", "/dev", "/tmp"}

func (v *verdict) sandboxPaths() {
	for i, path := range v.SandboxPaths {
		switch {
		case !filepath.IsAbs(path), filepath.Clean(path) != path:
			v.wrongItem("sandbox_paths", i, "%q is not an absolute path without . and ..", path)
		case slices.Contains(ownOfSandbox, path):
			v.wrongItem("sandbox_paths", i, "%s cannot be shown: a sandbox has its own", path)
		}
	}
}

// The bounds of limits, which are the same in manifests.
const (
	leastMemory         = 1 << 20
	leastModule         = 64 << 10 // a page
	leastCPUs, mostCPUs = 0.01, 4096
	mostPids            = 1 << 22
)

// bounds checks the limits of isolated tools. A ceiling that is not configured is not checked: it is
// equal to its limit.
func (v *verdict) bounds() {
	for _, bound := range [...]struct {
		key                     string
		plain, max, least, most float64
		text                    func(float64) string
	}{
		{"memory", float64(v.ContainerMemory), float64(v.ContainerMaxMemory), leastMemory, math.Inf(1), func(x float64) string { return yamldoc.Size(x).String() }},
		{"cpus", v.ContainerCPUs, v.ContainerMaxCPUs, leastCPUs, mostCPUs, NumberText},
		{"pids_limit", float64(v.ContainerPids), float64(v.ContainerMaxPids), 1, mostPids, NumberText},
	} {
		plain, most := "tool_container_"+bound.key, "tool_container_max_"+bound.key
		within := func(key string, x float64) {
			switch {
			case x >= bound.least && x <= bound.most: // false for NaN
			case math.IsInf(bound.most, 1):
				v.wrong(key, "must be at least %s, got %s", bound.text(bound.least), bound.text(x))
			default:
				v.wrong(key, "must be between %s and %s, got %s", bound.text(bound.least), bound.text(bound.most), bound.text(x))
			}
		}
		within(plain, bound.plain)
		if v.OriginOf(most).Rank == FromDefault {
			continue
		}
		within(most, bound.max)
		if bound.max < bound.plain && bound.max >= bound.least {
			v.wrong(most, "must be at least %s, which is %s, got %s", plain, bound.text(bound.plain), bound.text(bound.max))
		}
	}
}

// NumberText returns a number without an exponent.
func NumberText(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
