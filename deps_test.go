package orla_test

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/orla-project/orla"

// anything stands for every package of ours.
const anything = "*"

// imports says which of our packages each of our packages may import, leaving
// tests aside. The arrows point one way: a reader goes from cmd/orla down and
// never turns back. A package that is missing here fails the test; one that is
// not written yet does no harm.
var imports = map[string][]string{
	".": {},

	// Leaves.
	"internal/address":   {}, // which addresses no tool may reach
	"internal/callid":    {},
	"internal/fault":     {},
	"internal/peer":      {"internal/rawjson", "internal/turns", "internal/urimatch"}, // what a peer says of its questions; whose share a call takes; the URIs of its templates
	"internal/urimatch":  {},
	"internal/rawjson":   {},
	"internal/recovered": {}, // a panic in a goroutine fails what it was doing, and no more
	"internal/pace":      {},
	"internal/tail":      {},
	"internal/turns":     {},
	"internal/wholefile": {},
	"internal/version":   {},
	"internal/terminal":  {}, // text for people: escaped, coloured, shortened
	"internal/watch":     {},
	"internal/history":   {"internal/tail"}, // what the log said last, in a ring of lines
	"internal/systemd":   {},                // notifications, sockets, the journal
	"internal/trace":     {},                // the W3C trace context of a call, without OpenTelemetry
	"internal/cgroup":    {},
	"internal/doctor":    {}, // what a machine has and lacks; internal/cli says what matters
	"internal/yamldoc":   {},

	"internal/schema":  {"internal/fault", "internal/rawjson", "internal/turns"},
	"internal/launch":  {"internal/launch/guard", "internal/launch/procfs", "internal/launch/trees", "internal/recovered", "internal/fault", "internal/cgroup"},
	"internal/rpc":     {"internal/fault", "internal/rawjson", "internal/turns"}, // the calls on one connection, whatever carries them
	"internal/linerpc": {"internal/pace", "internal/rpc", "internal/turns"},      // lines on the pipes of a process
	"internal/secret":  {"internal/fault"},
	"manifest":         {"internal/regularfile", "internal/secret", "internal/yamldoc"},

	// Descriptions of tools, read into manifest.Tool.
	"internal/regularfile": {}, // files of folders that strangers may fill
	"manifest/keys":        {"internal/regularfile", "internal/schema", "internal/secret", "internal/yamldoc", "manifest"},
	"manifest/toolfile":    {"internal/regularfile", "internal/yamldoc", "manifest", "manifest/keys"},
	"manifest/resource":    {"internal/address", "internal/regularfile", "internal/secret", "internal/yamldoc", "manifest", "manifest/keys"},
	"manifest/discover":    {"internal/regularfile", "internal/secret", "internal/yamldoc", "manifest", "manifest/resource", "manifest/toolfile"},

	// What a process inherits, as its manifest has it.
	"internal/environ": {"manifest"},

	// Providers: what answers a call.
	"simple": {"internal/turns", "internal/peer", "manifest", "internal/secret", "internal/environ", "internal/launch", "internal/cgroup", "internal/fault", "internal/schema", "internal/callid", "internal/trace", "internal/rawjson"},

	// A capsule, and what it is made of.
	"capsule/clients":  {"internal/fault", "internal/peer", "internal/rawjson", "internal/recovered", "internal/rpc", "internal/turns"}, // what a capsule says to clients, and asks of them
	"capsule/protocol": {"internal/peer", "internal/rawjson", "internal/recovered", "internal/rpc", "internal/trace", "manifest"},       // MCP as Orla speaks it with a capsule
	"capsule/records":  {"internal/wholefile", "manifest"},                                                                              // what is kept of capsules between two runs of Orla
	"capsule/offers":   {"capsule/records", "internal/peer", "internal/rawjson", "manifest"},                                            // what a capsule offers, under the names of clients
	"capsule/files":    {"internal/recovered", "internal/watch", "manifest"},                                                            // changes of a capsule's files
	"capsule/restarts": {"manifest"},                                                                                                    // when a capsule that failed is started again
	"capsule/stdio":    {"internal/fault", "internal/launch", "internal/linerpc", "internal/pace", "internal/rpc", "internal/tail"},     // a connection with a process
	"capsule":          {"capsule/clients", "capsule/files", "capsule/offers", "capsule/protocol", "capsule/records", "capsule/restarts", "capsule/stdio", "internal/recovered", "internal/history", "internal/turns", "manifest", "internal/environ", "internal/launch", "internal/watch", "internal/tail", "internal/fault", "internal/trace", "internal/cgroup", "internal/peer", "internal/rawjson", "internal/rpc", "internal/secret"},

	// Tool resources: what all services are spoken to with, and a kind of tool each.
	"internal/outbound":     {"internal/address", "internal/fault"},                                                                                      // HTTP to services, and the addresses it may reach
	"internal/auth":         {"manifest", "internal/fault", "internal/secret", "internal/outbound"},                                                      // a profile and a secret become a header
	"internal/contract":     {"manifest", "internal/fault", "internal/peer", "internal/rawjson", "internal/schema", "internal/callid", "internal/trace"}, // what is said in both directions
	"internal/kind/post":    {"internal/turns", "manifest", "internal/fault", "internal/peer", "internal/outbound", "internal/auth", "internal/contract", "internal/trace"},
	"internal/kind/webhook": {"internal/recovered", "internal/kind/post", "manifest", "internal/fault", "internal/peer", "internal/outbound", "internal/contract", "internal/trace", "internal/turns"}, // it POSTs as external does
	"internal/kind/grpc":    {"internal/turns", "manifest", "internal/fault", "internal/peer", "internal/outbound", "internal/auth", "internal/contract", "internal/trace"},
	"internal/kind/mcptool": {"manifest", "internal/fault", "internal/peer", "supervisor"},                                                                                                                             // one tool of an McpServer under a name of its own
	"internal/remote":       {"internal/pace", "internal/turns", "manifest", "internal/fault", "internal/rawjson", "internal/outbound", "internal/auth", "internal/rpc", "internal/trace", "internal/peer", "capsule"}, // a session with a far MCP server
	"internal/retry":        {"manifest", "internal/fault", "internal/peer", "internal/callid", "internal/rawjson", "supervisor"},
	"internal/clientconf":   {"internal/address", "manifest", "manifest/resource", "internal/rawjson", "internal/yamldoc", "internal/secret"}, // mcpServers files of MCP clients, and the secrets in them

	// Makes a test binary act as a capsule; only tests import it.
	"internal/testing/capsuletest": {"manifest"},
	// Does to connections what networks do; only tests import it.
	"internal/testing/faultproxy": {},

	// What Orla knows of the processes of this machine, and what ends those that a killed Orla leaves.
	"internal/launch/procfs": {},
	"internal/launch/trees":  {"internal/launch/procfs"},
	"internal/launch/guard":  {"internal/cgroup", "internal/launch/procfs", "internal/launch/trees"},

	// Where processes live (docs/decisions/0019).
	"internal/launch/sandbox":   {"internal/launch", "internal/launch/shim", "internal/cgroup", "internal/fault"}, // the shim's plan is what it computes
	"internal/launch/shim":      {},                                                                               // runs before all else in a sandbox's first process: it imports next to nothing
	"internal/launch/container": {"internal/recovered", "internal/wholefile", "internal/launch", "internal/cgroup", "internal/fault", "internal/secret"},
	"internal/launch/kube":      {"internal/recovered", "internal/launch", "internal/cgroup", "internal/fault", "internal/secret"},

	// WebAssembly: a module is metered, fetched, run, and asked by the contract.
	"internal/wasmfuel":  {},
	"internal/wasm":      {"internal/recovered", "internal/turns", "internal/wasmfuel", "internal/fault"},
	"internal/artifact":  {"internal/wholefile", "internal/fault", "internal/outbound", "internal/secret"},
	"internal/kind/wasm": {"internal/tail", "internal/turns", "internal/wasm", "manifest", "internal/fault", "internal/peer", "internal/secret", "internal/auth", "internal/callid", "internal/contract"},

	// What tests need of the machine they run on; only tests import them.
	"internal/testing/needs":         {},
	"internal/testing/containertest": {"internal/testing/needs"},
	"internal/testing/leaks":         {},
	"internal/testing/attack":        {},
	"internal/testing/costtest":      {}, // fails what grows faster than its input
	"internal/testing/testkit":       {}, // waits, files

	// Folders of tools, and checks of what is found in them; only tests import it.
	"internal/testing/manifesttest": {"internal/schema", "internal/yamldoc", "manifest"},

	// The supervisor holds providers without knowing which; the bridge holds the supervisor.
	"supervisor":                    {"internal/wholefile", "internal/recovered", "internal/turns", "internal/urimatch", "manifest", "internal/fault", "internal/schema", "internal/callid", "internal/peer", "internal/rawjson"},
	"mcpbridge/client":              {"internal/rawjson", "internal/recovered", "internal/trace", "internal/turns", "mcpbridge/wire"}, // who asks
	"mcpbridge/wire":                {"internal/rawjson"},                                                                             // the messages of clients
	"mcpbridge/results":             {"internal/fault", "internal/rawjson", "internal/turns", "mcpbridge/wire", "supervisor"},         // what clients get of a call
	"mcpbridge/budget":              {"internal/fault", "internal/turns", "mcpbridge/results", "mcpbridge/wire"},                      // the bytes of requests
	"mcpbridge":                     {"mcpbridge/client", "mcpbridge/budget", "mcpbridge/wire", "mcpbridge/results", "internal/recovered", "internal/turns", "supervisor", "internal/fault", "internal/callid", "internal/peer", "internal/rawjson", "internal/trace"},
	"mcpbridge/transport/stdio":     {"internal/rawjson", "internal/recovered", "internal/turns", "mcpbridge", "mcpbridge/budget", "mcpbridge/client", "mcpbridge/wire"},
	"mcpbridge/transport/httpfront": {"internal/recovered", "internal/rawjson", "internal/turns", "mcpbridge", "mcpbridge/budget", "mcpbridge/client", "mcpbridge/transport/stdio", "mcpbridge/wire"},

	// What operators see and do.
	"internal/control":   {"internal/fault"},
	"internal/telemetry": {"mcpbridge", "mcpbridge/client", "internal/fault", "internal/peer", "internal/trace", "internal/version"}, // the codes bound a label's values

	// The program: how it ends, what it says, what it is told. cmd/orla only starts it.
	"internal/exit":    {"internal/terminal"},
	"internal/logging": {"internal/terminal", "internal/fault", "internal/history", "internal/systemd"},
	"internal/config":  {"internal/address", "internal/exit", "internal/logging", "internal/terminal", "internal/control", "internal/outbound", "internal/systemd", "internal/yamldoc", "manifest", "capsule", "simple", "mcpbridge", "mcpbridge/transport/httpfront"}, // the defaults are the packages' own

	// What answers calls, joined: tools as the configuration has them, and the parts that run them.
	"internal/governance": {"internal/config", "internal/fault", "internal/peer", "manifest", "manifest/discover", "supervisor"},
	"internal/discovery":  {"internal/config", "internal/control", "internal/governance", "internal/terminal", "internal/yamldoc", "manifest", "manifest/discover", "manifest/toolfile", "capsule/records"},
	"internal/listen":     {"internal/turns", "internal/exit"},
	"internal/wiring": {
		"internal/config", "internal/discovery", "internal/doctor", "internal/governance", "internal/version", "internal/environ", "internal/cgroup", "internal/fault", "internal/watch",
		"internal/launch", "internal/launch/guard", "internal/launch/sandbox", "internal/launch/container", "internal/launch/kube", "internal/secret", "internal/outbound", "internal/auth", "internal/artifact",
		"internal/retry", "internal/remote", "internal/wasm", "internal/kind/post", "internal/kind/webhook", "internal/kind/grpc", "internal/kind/mcptool", "internal/kind/wasm",
		"manifest", "simple", "capsule", "capsule/records", "supervisor",
	},

	"internal/daemon": {
		"manifest/discover", "internal/exit", "internal/terminal", "internal/logging", "internal/config", "internal/discovery", "internal/listen", "internal/wiring", "internal/control", "internal/fault",
		"internal/history", "internal/kind/webhook", "internal/launch/guard", "internal/peer", "internal/recovered", "internal/systemd", "internal/telemetry", "internal/version", "internal/watch",
		"manifest", "mcpbridge", "mcpbridge/results", "mcpbridge/transport/httpfront", "mcpbridge/transport/stdio", "supervisor",
	},

	// The command line. It asks a running Orla, or looks at files itself.
	"internal/cli/author": {
		"internal/exit", "internal/terminal", "internal/config", "internal/discovery", "internal/callid", "internal/clientconf", "internal/contract", "internal/doctor", "internal/fault",
		"internal/peer", "internal/wasm", "internal/yamldoc", "manifest", "manifest/discover",
	},
	"internal/cli": {
		"internal/cli/author", "internal/exit", "internal/fault", "internal/terminal", "internal/config", "internal/control", "internal/daemon", "internal/discovery", "internal/doctor", "internal/contract",
		"internal/version", "internal/yamldoc", "manifest", "manifest/discover", "manifest/resource", "manifest/toolfile",
		"internal/wiring", // what doctor tries, and the hidden commands
		"simple",          // which stream of a simple tool a part of its answer was
	},

	"internal/testing/program": {}, // tests alone, of the program as a whole
	"deploy/container":         {}, // tests alone
	"deploy/package":           {}, // tests alone

	"internal/testing/bench": {anything},         // measures the product, and is no part of it
	"internal/testing/chaos": {"internal/fault"}, // judges the product from outside; the codes are a promise
	"cmd/orla":               {"internal/cli", "internal/terminal"},
}

// owners says which of our packages may import each foreign module, tests aside.
// A module with one owner can be exchanged there and nowhere else.
var owners = map[string][]string{
	// Its wire types (Tool, CallToolResult, Content) are the domain, and twin
	// types would drift. Its servers, clients and sessions stay in the bridge.
	"github.com/modelcontextprotocol/go-sdk": {"manifest", "manifest/keys", "manifest/resource", "simple", "capsule", "capsule/clients", "capsule/offers", "capsule/protocol", "supervisor", "mcpbridge", "internal/contract", "internal/kind/post", "internal/kind/webhook", "internal/kind/grpc", "internal/kind/mcptool", "internal/kind/wasm", "internal/remote", "internal/retry", "internal/rpc", "internal/peer", "internal/daemon", "internal/cli", "internal/testing/bench", "mcpbridge/wire", "mcpbridge/results", "mcpbridge/budget", "mcpbridge/client", "mcpbridge/transport/httpfront", "mcpbridge/transport/stdio"},

	"github.com/bmatcuk/doublestar/v4":         {"internal/watch"},
	"github.com/cenkalti/backoff/v4":           {"capsule/restarts", "internal/retry"},
	"code.dny.dev/ssrf":                        {"internal/address"},
	"connectrpc.com/connect":                   {"internal/kind/grpc", "internal/testing/bench"},
	"golang.org/x/oauth2":                      {"internal/auth"},
	"github.com/coreos/go-systemd/v22":         {"internal/systemd"},
	"github.com/fsnotify/fsnotify":             {"internal/watch"},
	"github.com/google/jsonschema-go":          {"internal/yamldoc"}, // the schemas of our own files, as the SDK writes a tool's
	"github.com/lmittmann/tint":                {"internal/logging"},
	"github.com/tailscale/hujson":              {"internal/clientconf"},
	"github.com/prometheus/client_golang":      {"internal/telemetry"},
	"github.com/santhosh-tekuri/jsonschema/v6": {"internal/schema"},
	"github.com/segmentio/encoding":            {"internal/rawjson"},
	"github.com/spf13/cobra":                   {"internal/cli", "internal/cli/author"},
	"github.com/spf13/pflag":                   {"internal/config", "internal/cli"},
	"github.com/thejerf/suture/v4":             {"supervisor", "internal/daemon"},
	"github.com/yosida95/uritemplate/v3":       {"internal/urimatch"}, // what the SDK matches templates with
	"go.opentelemetry.io":                      {"internal/telemetry"},
	"google.golang.org/protobuf":               {"internal/telemetry", "internal/kind/grpc"}, // the encoding of OTLP, and of a status's details
	"github.com/tetratelabs/wazero":            {"internal/wasm", "internal/testing/bench"},  // which measures a module without meters
	"oras.land/oras-go/v2":                     {"internal/artifact"},
	"github.com/opencontainers/go-digest":      {"internal/artifact"}, // in oras-go's own types
	"github.com/opencontainers/image-spec":     {"internal/artifact"}, // the same
	"k8s.io/client-go":                         {"internal/launch/kube"},
	"k8s.io/apimachinery":                      {"internal/launch/kube"},
	"k8s.io/klog/v2":                           {"internal/launch/kube"},   // to silence it
	"go.uber.org/goleak":                       {"internal/testing/leaks"}, // tests alone
	"golang.org/x/mod":                         {"manifest"},
	"golang.org/x/sys":                         {"manifest/resource", "internal/launch", "internal/launch/guard", "internal/launch/procfs", "internal/launch/trees", "internal/launch/sandbox", "internal/cgroup", "internal/systemd", "internal/control", "internal/testing/costtest", "internal/doctor", "internal/watch", "internal/outbound", "internal/cli", "internal/logging", "internal/terminal", "internal/testing/bench", "internal/testing/chaos"},
	"golang.org/x/term":                        {"internal/terminal"},
	"golang.org/x/text":                        {"internal/schema"}, // in the validator's own error type
	"gopkg.in/yaml.v3":                         {"internal/yamldoc"},
}

// goPackage is what the tests need of go list's answer.
type goPackage struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

// ours lists the packages of this module. An import that cannot be resolved is
// for the compiler to report (-e), and a file that a build constraint leaves
// out here is checked where it is built.
func ours(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Dir,GoFiles,Imports", "./...")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var packages []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return packages
		case err != nil:
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// local returns the path of a package inside the module, and whether it is ours.
func local(path string) (string, bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

func TestImports(t *testing.T) {
	for _, p := range ours(t) {
		name, _ := local(p.ImportPath)
		allowed, listed := imports[name]
		if !listed {
			t.Errorf("%s: not in the table of imports: say there what it may import", name)
			continue
		}
		for _, path := range p.Imports {
			target, isOurs := local(path)
			switch {
			case isOurs && !slices.Contains(allowed, target) && !slices.Contains(allowed, anything):
				t.Errorf("%s imports %s: the table of imports does not allow it", name, target)
			case !isOurs && strings.Contains(strings.Split(path, "/")[0], "."):
				checkOwner(t, name, path)
			}
		}
	}
}

func checkOwner(t *testing.T, name, path string) {
	t.Helper()
	for foreign, allowed := range owners {
		if path == foreign || strings.HasPrefix(path, foreign+"/") {
			if !slices.Contains(allowed, name) {
				t.Errorf("%s imports %s: only %s may", name, path, strings.Join(allowed, ", "))
			}
			return
		}
	}
	t.Errorf("%s imports %s: not in the table of owners; a new dependency needs a decision note", name, path)
}

// A table that names what is not there, or goes round in circles, says nothing.
func TestTablesAreSound(t *testing.T) {
	for name, allowed := range imports {
		for _, target := range allowed {
			if _, listed := imports[target]; !listed && target != anything {
				t.Errorf("%s may import %s, which is not in the table of imports", name, target)
			}
		}
	}
	for foreign, allowed := range owners {
		for _, name := range allowed {
			if _, listed := imports[name]; !listed {
				t.Errorf("%s belongs to %s, which is not in the table of imports", foreign, name)
			}
		}
	}

	var visit func(name string, path []string)
	visit = func(name string, path []string) {
		if slices.Contains(path, name) {
			t.Fatalf("the table of imports has a cycle: %s", strings.Join(append(path, name), " -> "))
		}
		for _, target := range imports[name] {
			if target != anything {
				visit(target, append(slices.Clone(path), name))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(imports)) {
		visit(name, nil)
	}
}
