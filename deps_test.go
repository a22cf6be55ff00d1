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
	"internal/service/address":    {}, // which addresses no tool may reach
	"internal/call/callid":        {},
	"internal/call/fault":         {},
	"internal/mcp/peer":           {"internal/mcp/rawjson", "internal/call/turns", "internal/mcp/urimatch"}, // what a peer says of its questions; whose share a call takes; the URIs of its templates
	"internal/mcp/jsondiff":       {},
	"internal/mcp/urimatch":       {},
	"internal/mcp/rawjson":        {},
	"internal/call/rejudge":       {"internal/call/rules"}, // what lets a call wait may end it when the rules change
	"internal/call/recovered":     {},                      // a panic in a goroutine fails what it was doing, and no more
	"internal/call/pace":          {},
	"internal/observe/brief":      {}, // what others say, shortened for errors and the log
	"internal/observe/tail":       {},
	"internal/call/turns":         {},
	"internal/file/wholefile":     {},
	"internal/file/memfile":       {}, // bytes outside of the heap
	"internal/app/version":        {},
	"internal/app/terminal":       {}, // text for people: escaped, coloured, shortened
	"internal/observe/linefilter": {},
	"internal/observe/history":    {"internal/observe/tail"}, // what the log said last, in a ring of lines
	"internal/app/systemd":        {},                        // notifications, sockets, the journal
	"internal/call/trace":         {"internal/call/callid"},  // the W3C trace context of a call, without OpenTelemetry
	"internal/launch/cgroup":      {},
	"internal/app/doctor":         {}, // what a machine has and lacks; internal/app/cli says what matters
	"internal/file/yamldoc":       {"internal/observe/brief"},

	"internal/mcp/schema":     {"internal/call/fault", "internal/mcp/rawjson", "internal/call/turns", "internal/observe/brief"},
	"internal/launch":         {"internal/launch/carry", "internal/launch/mainthread", "internal/launch/slack", "internal/launch/guard", "internal/launch/procfs", "internal/launch/trees", "internal/call/recovered", "internal/call/fault", "internal/launch/cgroup", "internal/call/pace"},
	"internal/mcp/rpc":        {"internal/call/fault", "internal/mcp/rawjson", "internal/call/turns"},                    // the calls on one connection, whatever carries them
	"internal/mcp/linerpc":    {"internal/call/pace", "internal/mcp/rawjson", "internal/mcp/rpc", "internal/call/turns"}, // lines on the pipes of a process
	"internal/service/secret": {"internal/call/fault"},
	"manifest":                {"internal/file/regularfile", "internal/service/secret", "internal/file/yamldoc"},
	"internal/call/rules":     {"manifest", "internal/mcp/rawjson"},                                                                                                                                                                                            // who may call what
	"internal/call/pins":      {"internal/mcp/jsondiff", "internal/file/regularfile", "internal/cluster/documents", "internal/call/recovered", "internal/call/fault", "internal/file/wholefile", "internal/mcp/rawjson", "internal/observe/brief", "manifest"}, // which definitions were accepted

	// Descriptions of tools, read into manifest.Tool.
	"internal/file/diskroom":    {},
	"internal/file/regularfile": {}, // files of folders that strangers may fill
	"internal/file/watch":       {"internal/file/regularfile"},
	"manifest/keys":             {"internal/file/regularfile", "internal/mcp/rawjson", "internal/mcp/schema", "internal/service/secret", "internal/file/yamldoc", "manifest"},
	"manifest/toolfile":         {"internal/file/regularfile", "internal/file/yamldoc", "manifest", "manifest/keys"},
	"manifest/resource":         {"internal/service/address", "internal/file/regularfile", "internal/service/secret", "internal/file/yamldoc", "manifest", "manifest/keys"},
	"manifest/discover":         {"internal/file/regularfile", "internal/service/secret", "internal/file/yamldoc", "manifest", "manifest/resource", "manifest/toolfile"},

	// Packages that come from elsewhere (docs/decisions/0048).
	"internal/packages/permission": {"internal/file/regularfile"},                                                                                                                                             // what they ask for, and were granted
	"internal/packages/lockfile":   {"internal/file/wholefile", "internal/file/regularfile", "internal/file/yamldoc", "internal/packages/permission", "internal/service/secret", "manifest", "manifest/keys"}, // orla.lock, and the record in a package

	"internal/packages": {"internal/file/wholefile", "internal/file/regularfile", "internal/file/yamldoc", "internal/packages/lockfile", "internal/packages/origin", "internal/packages/permission", "manifest", "manifest/discover", "manifest/keys", "manifest/toolfile"}, // install, update, remove, verify

	// What a process inherits, as its manifest has it.
	"internal/launch/environ": {"internal/call/fault", "internal/deps", "internal/service/secret", "internal/file/regularfile", "manifest"},

	// The packages of Python and Node that a tool's files name (docs/decisions/0047).
	"internal/deps/versions": {}, // compares numbers
	"internal/deps/envlock":  {"internal/call/pace"},
	"internal/deps/printed":  {"internal/observe/brief"},
	"internal/deps/envfiles": {"internal/call/recovered", "internal/file/yamldoc"},
	"internal/deps/declared": {"internal/deps/printed", "internal/deps/versions", "internal/file/regularfile", "internal/file/yamldoc"}, // what packages from elsewhere ask for
	"internal/deps":          {"internal/deps/declared", "internal/deps/printed", "internal/deps/envfiles", "internal/deps/envlock", "internal/deps/versions", "internal/file/regularfile", "internal/file/wholefile", "internal/call/pace", "internal/call/recovered", "internal/call/turns", "internal/launch"},

	// Packages that come from elsewhere (docs/decisions/0048).
	"internal/packages/registry": {"internal/packages/origin", "internal/file/regularfile", "internal/file/wholefile", "internal/file/yamldoc", "internal/observe/brief"},                                                                                           // which repository or server a name stands for
	"internal/packages/bundle":   {"internal/file/diskroom", "internal/deps", "internal/deps/printed", "internal/packages/origin", "internal/packages/registry", "internal/file/watch", "internal/observe/brief", "manifest", "manifest/keys", "manifest/toolfile"}, // packages of MCP bundles and of the servers of registries
	"internal/packages/origin":   {"internal/file/diskroom", "internal/file/regularfile", "internal/observe/brief"},                                                                                                                                                 // trees from repositories, archives and folders

	// Providers: what answers a call.
	"simple": {"internal/deps", "internal/call/rejudge", "internal/call/turns", "internal/mcp/peer", "manifest", "internal/service/secret", "internal/launch/environ", "internal/launch", "internal/launch/cgroup", "internal/call/fault", "internal/mcp/schema", "internal/call/callid", "internal/call/trace", "internal/mcp/rawjson", "internal/observe/brief"},

	// A capsule, and what it is made of.
	"capsule/clients":   {"internal/call/fault", "internal/mcp/peer", "internal/mcp/rawjson", "internal/call/recovered", "internal/mcp/rpc", "internal/call/turns", "internal/call/pace"},          // what a capsule says to clients, and asks of them
	"capsule/protocol":  {"internal/call/pace", "internal/mcp/peer", "internal/mcp/rawjson", "internal/call/recovered", "internal/mcp/rpc", "internal/call/trace", "manifest"},                     // MCP as Orla speaks it with a capsule
	"capsule/records":   {"internal/mcp/rawjson", "internal/file/regularfile", "internal/file/wholefile", "manifest"},                                                                              // what is kept of capsules between two runs of Orla
	"capsule/offers":    {"capsule/records", "internal/call/fault", "internal/call/pins", "internal/mcp/peer", "internal/mcp/rawjson", "manifest", "internal/observe/brief", "internal/call/pace"}, // what a capsule offers, under the names of clients
	"capsule/files":     {"internal/call/recovered", "internal/file/watch", "manifest"},                                                                                                            // changes of a capsule's files
	"capsule/refusal":   {"internal/call/fault", "internal/mcp/rpc", "internal/observe/brief"},                                                                                                     // why something was refused
	"capsule/wishes":    {"internal/mcp/peer"},                                                                                                                                                     // what clients asked for, for each new process
	"capsule/handshake": {"capsule/protocol", "capsule/refusal", "internal/mcp/rpc", "internal/observe/brief", "manifest"},                                                                         // until a process has said who it is
	"capsule/handover":  {"capsule/protocol", "capsule/records", "capsule/stdio", "internal/launch", "internal/launch/cgroup", "manifest"},                                                         // a capsule for the program that follows
	"capsule/restarts":  {"manifest"},                                                                                                                                                              // when a capsule that failed is started again
	"capsule/stdio":     {"internal/call/fault", "internal/launch", "internal/mcp/linerpc", "internal/call/pace", "internal/mcp/rpc", "internal/observe/tail"},                                     // a connection with a process
	"capsule":           {"capsule/handover", "capsule/handshake", "capsule/refusal", "capsule/wishes", "internal/deps", "internal/call/rejudge", "capsule/clients", "capsule/files", "capsule/offers", "capsule/protocol", "capsule/records", "capsule/restarts", "capsule/stdio", "internal/call/pins", "internal/call/recovered", "internal/observe/history", "internal/call/turns", "manifest", "internal/launch/environ", "internal/launch", "internal/file/watch", "internal/observe/tail", "internal/call/fault", "internal/call/trace", "internal/launch/cgroup", "internal/mcp/peer", "internal/mcp/rawjson", "internal/mcp/rpc", "internal/service/secret", "internal/observe/brief", "internal/call/pace"},

	// Tool resources: what all services are spoken to with, and a kind of tool each.
	"internal/service/outbound": {"internal/call/rejudge", "internal/service/address", "internal/call/fault", "internal/call/turns", "internal/observe/brief"},                                                                           // HTTP to services, and the addresses it may reach
	"internal/service/auth":     {"manifest", "internal/call/fault", "internal/service/secret", "internal/service/outbound"},                                                                                                             // a profile and a secret become a header
	"internal/service/oauth":    {"internal/call/turns", "internal/service/outbound", "internal/observe/brief"},                                                                                                                          // the access tokens of callers
	"internal/service/login":    {"internal/call/fault", "internal/call/pace", "internal/call/recovered", "internal/file/wholefile", "internal/service/oauth", "internal/service/outbound", "internal/service/secret"},                   // logins at remote MCP servers
	"internal/service/contract": {"internal/call/turns", "manifest", "internal/call/fault", "internal/mcp/peer", "internal/mcp/rawjson", "internal/mcp/schema", "internal/call/callid", "internal/call/trace", "internal/observe/brief"}, // what is said in both directions
	"internal/kind/post":        {"internal/call/turns", "manifest", "internal/call/fault", "internal/mcp/peer", "internal/service/outbound", "internal/service/auth", "internal/service/contract", "internal/call/trace"},
	"internal/kind/webhook":     {"internal/call/callid", "internal/call/rejudge", "internal/call/recovered", "internal/kind/post", "manifest", "internal/call/fault", "internal/mcp/peer", "internal/service/outbound", "internal/service/contract", "internal/call/trace", "internal/call/turns"}, // it POSTs as external does
	"internal/kind/grpc":        {"internal/kind/post", "internal/call/turns", "manifest", "internal/call/fault", "internal/mcp/peer", "internal/service/outbound", "internal/service/auth", "internal/service/contract", "internal/call/trace", "internal/observe/brief"},
	"internal/kind/mcptool":     {"manifest", "internal/call/fault", "internal/mcp/peer", "supervisor"},                                                                                                                                                                    // one tool of an McpServer under a name of its own
	"internal/service/remote":   {"internal/call/pace", "internal/call/turns", "manifest", "internal/call/fault", "internal/mcp/rawjson", "internal/service/outbound", "internal/service/auth", "internal/mcp/rpc", "internal/call/trace", "internal/mcp/peer", "capsule"}, // a session with a far MCP server
	"internal/call/retry":       {"internal/call/rejudge", "manifest", "internal/call/fault", "internal/mcp/peer", "internal/call/callid", "internal/mcp/rawjson", "supervisor", "internal/observe/brief"},
	"internal/app/clientconf":   {"internal/service/address", "manifest", "manifest/resource", "internal/mcp/rawjson", "internal/file/yamldoc", "internal/service/secret"}, // mcpServers files of MCP clients, and the secrets in them

	// Makes a test binary act as a capsule; only tests import it.
	"internal/testing/capsuletest": {"manifest"},
	// Stands in for an MCP registry; only tests import it.
	"internal/testing/mcpregistry": {},
	// Does to connections what networks do; only tests import it.
	"internal/testing/faultproxy": {},

	// What Orla knows of the processes of this machine, and what ends those that a killed Orla leaves.
	"internal/launch/procfs": {},
	// What goes on in this process when it executes another program (docs/decisions/0051).
	"internal/launch/mainthread":  {},
	"internal/launch/carry":       {"internal/launch/mainthread"},
	"internal/launch/slack":       {},
	"internal/launch/slack/early": {"internal/launch/slack"},
	"internal/launch/trees":       {"internal/launch/procfs"},
	"internal/launch/guard":       {"internal/launch/carry", "internal/launch/cgroup", "internal/launch/procfs", "internal/launch/trees"},

	// Where processes live (docs/decisions/0019).
	"internal/launch/sandbox":    {"internal/file/regularfile", "internal/launch", "internal/launch/shim", "internal/launch/cgroup", "internal/call/fault"}, // the shim's plan is what it computes
	"internal/launch/shim":       {},                                                                                                                        // runs before all else in a sandbox's first process: it imports next to nothing
	"internal/launch/container":  {"internal/file/diskroom", "internal/launch/procfs", "internal/launch/trees", "internal/call/recovered", "internal/file/wholefile", "internal/launch", "internal/launch/cgroup", "internal/call/fault", "internal/service/secret", "internal/call/pace"},
	"internal/cluster/kubeapi":   {"internal/file/yamldoc"},                                                                                                                                                                                                                                                           // the requests that Jobs need, and kubeconfigs
	"internal/cluster/lease":     {"internal/call/pace", "internal/call/recovered", "internal/cluster/kubeapi"},                                                                                                                                                                                                       // at most one process holds a Lease
	"internal/cluster/crd":       {"internal/mcp/rawjson", "manifest/resource"},                                                                                                                                                                                                                                       // definitions of the custom resources
	"internal/cluster/objects":   {"internal/call/pace", "internal/call/recovered", "internal/cluster/kubeapi", "internal/file/yamldoc"},                                                                                                                                                                              // list and watch
	"internal/cluster/resources": {"internal/call/fault", "internal/call/pace", "internal/call/recovered", "internal/cluster/kubeapi", "internal/cluster/lease", "internal/cluster/objects", "internal/mcp/peer", "internal/observe/brief", "internal/service/secret", "manifest", "manifest/discover", "supervisor"}, // custom resources
	"internal/launch/kube":       {"internal/cluster/kubeapi", "internal/call/recovered", "internal/launch", "internal/launch/cgroup", "internal/call/fault", "internal/service/secret", "internal/observe/brief", "internal/call/pace", "internal/launch/kube/podio"},
	"internal/cluster/replicas":  {"internal/call/pace", "internal/call/recovered", "internal/call/turns", "internal/cluster/kubeapi", "internal/cluster/lease", "internal/observe/brief"},               // which processes serve the same clients
	"internal/cluster/documents": {"internal/call/recovered", "internal/cluster/kubeapi", "internal/cluster/objects", "internal/cluster/replicas", "internal/observe/brief"},                             // what all replicas have in common
	"internal/cluster/sealed":    {"internal/call/pace", "internal/cluster/documents", "internal/cluster/replicas", "mcpbridge", "mcpbridge/sessionlog", "mcpbridge/transport/passed", "mcpbridge/wire"}, // sessions in their ids

	"internal/launch/kube/podio": {"internal/cluster/kubeapi", "internal/call/recovered", "internal/observe/tail"},

	// WebAssembly: a module is metered, fetched, run, and asked by the contract.
	"internal/wasm/wasmfuel": {},
	"internal/wasm":          {"internal/file/regularfile", "internal/call/recovered", "internal/call/turns", "internal/wasm/wasmfuel", "internal/call/fault", "internal/observe/brief", "internal/call/pace"},
	"internal/wasm/artifact": {"internal/call/turns", "internal/file/wholefile", "internal/call/fault", "internal/service/outbound", "internal/service/secret", "internal/mcp/rawjson"}, // to count the values of a manifest
	"internal/kind/wasm":     {"internal/file/regularfile", "internal/observe/tail", "internal/call/turns", "internal/wasm", "manifest", "internal/call/fault", "internal/mcp/peer", "internal/service/secret", "internal/service/auth", "internal/call/callid", "internal/service/contract"},

	// What tests need of the machine they run on; only tests import them.
	"internal/testing/needs":         {},
	"internal/testing/containertest": {"internal/testing/needs"},
	"internal/testing/kubetest":      {"internal/cluster/kubeapi", "internal/testing/needs"}, // a real Kubernetes
	"internal/testing/leaks":         {},
	"internal/testing/issuer":        {}, // an authorization server, and tokens that are forged
	"internal/testing/attack":        {},
	"internal/testing/costtest":      {}, // fails what grows faster than its input
	"internal/testing/testkit":       {}, // waits, files

	// Folders of tools, and checks of what is found in them; only tests import it.
	"internal/testing/manifesttest": {"internal/mcp/schema", "internal/file/yamldoc", "manifest"},

	// The supervisor holds providers without knowing which; the bridge holds the supervisor.
	"supervisor/claim":              {"internal/mcp/rawjson", "internal/call/rules", "internal/file/regularfile", "internal/file/wholefile"},
	"supervisor/services":           {},
	"supervisor/inflight":           {"internal/call/fault", "internal/call/turns"}, // the calls that are being answered
	"supervisor/owner":              {"internal/call/rules", "manifest"},
	"supervisor":                    {"supervisor/claim", "supervisor/inflight", "supervisor/owner", "supervisor/services", "internal/call/pins", "internal/call/rejudge", "internal/call/rules", "internal/call/recovered", "internal/call/turns", "internal/mcp/urimatch", "manifest", "internal/call/fault", "internal/mcp/schema", "internal/call/callid", "internal/mcp/peer", "internal/mcp/rawjson", "internal/observe/brief"},
	"mcpbridge/client":              {"internal/call/rules", "internal/mcp/rawjson", "internal/call/recovered", "internal/call/trace", "internal/call/turns", "mcpbridge/wire"},           // who asks
	"mcpbridge/wire":                {"internal/mcp/rawjson", "internal/observe/brief"},                                                                                                   // the messages of clients
	"mcpbridge/results":             {"internal/file/memfile", "internal/call/fault", "internal/mcp/peer", "internal/mcp/rawjson", "internal/call/turns", "mcpbridge/wire", "supervisor"}, // what clients get of a call
	"mcpbridge/listing":             {"internal/call/turns", "mcpbridge/wire"},                                                                                                            // the lists that clients get
	"mcpbridge/subscription":        {"internal/call/fault", "internal/call/rules", "internal/call/turns", "mcpbridge/client", "mcpbridge/wire", "supervisor"},                            // who follows which resources
	"mcpbridge/sessionlog":          {"internal/mcp/rawjson", "internal/call/recovered", "internal/file/regularfile", "internal/file/wholefile"},                                          // sessions that outlive a process
	"mcpbridge/budget":              {"internal/call/fault", "internal/call/turns", "mcpbridge/results", "mcpbridge/wire"},                                                                // the bytes of requests
	"mcpbridge/conversation":        {"internal/call/turns", "internal/mcp/peer", "internal/mcp/rawjson", "mcpbridge/budget", "mcpbridge/results", "mcpbridge/wire"},                      // requests that are answered with questions
	"mcpbridge":                     {"internal/file/memfile", "internal/call/rules", "mcpbridge/subscription", "mcpbridge/listing", "mcpbridge/client", "mcpbridge/budget", "mcpbridge/conversation", "mcpbridge/wire", "mcpbridge/results", "internal/call/recovered", "internal/call/turns", "supervisor", "internal/call/fault", "internal/call/callid", "internal/mcp/peer", "internal/mcp/rawjson", "internal/call/trace", "internal/call/pace"},
	"mcpbridge/transport/stdio":     {"internal/call/fault", "internal/mcp/rawjson", "internal/call/pace", "internal/call/recovered", "internal/call/turns", "mcpbridge", "mcpbridge/budget", "mcpbridge/client", "mcpbridge/wire"},
	"mcpbridge/transport/httpfront": {"internal/call/fault", "internal/call/recovered", "internal/mcp/rawjson", "internal/call/turns", "mcpbridge", "mcpbridge/budget", "mcpbridge/client", "mcpbridge/sessionlog", "mcpbridge/transport/held", "mcpbridge/transport/hosts", "mcpbridge/transport/legacysse", "mcpbridge/transport/passed", "mcpbridge/wire"},
	"mcpbridge/transport/legacysse": {"internal/call/turns", "mcpbridge", "mcpbridge/budget", "mcpbridge/client", "mcpbridge/transport/stdio", "mcpbridge/wire"}, // the transport of 2024-11-05
	"mcpbridge/transport/held":      {"internal/call/turns", "internal/mcp/rawjson", "mcpbridge/wire"},                                                           // events for clients that come back
	"mcpbridge/transport/hosts":     {},                                                                                                                          // the Host and Origin headers
	"mcpbridge/transport/passed":    {"mcpbridge/sessionlog"},                                                                                                    // whose a request is that another replica passes on

	// What operators see and do.
	"internal/app/control/unixsocket": {"internal/call/pace", "internal/file/regularfile", "internal/launch/carry"}, // where the socket is, and who has it
	"internal/app/control":            {"internal/app/control/looks", "internal/app/control/unixsocket", "internal/observe/linefilter", "internal/call/turns", "internal/mcp/peer", "internal/mcp/rawjson", "internal/call/fault", "internal/call/recovered"},
	"internal/app/control/looks":      {},                                                                                                                                                      // what is new of many things, for streams that tell of it
	"internal/console":                {"internal/call/pace", "internal/call/turns", "internal/observe/brief"},                                                                                 // the web page: its files, and who gets in; whose share a request takes
	"internal/observe/telemetry":      {"internal/call/recovered", "mcpbridge", "mcpbridge/client", "internal/call/fault", "internal/mcp/peer", "internal/call/trace", "internal/app/version"}, // the codes bound a label's values

	// The program: how it ends, what it says, what it is told. cmd/orla only starts it.
	"internal/app/exit":        {"internal/app/terminal"},
	"internal/observe/logging": {"internal/mcp/rawjson", "internal/call/turns", "internal/app/terminal", "internal/call/fault", "internal/observe/history", "internal/app/systemd"},
	"internal/observe/audit":   {"internal/app/terminal", "internal/call/turns", "internal/mcp/peer", "internal/call/recovered", "internal/file/regularfile", "internal/call/approvals/passkey", "internal/app/systemd", "internal/file/wholefile", "internal/mcp/rawjson", "internal/observe/brief"},                                                                                                                                                                                                            // the audit log: who called what, and what was decided
	"internal/app/config":      {"internal/file/regularfile", "internal/packages/lockfile", "internal/packages/permission", "internal/call/approvals", "internal/service/oauth", "internal/observe/audit", "internal/service/address", "internal/app/exit", "internal/observe/logging", "internal/app/terminal", "internal/app/control/unixsocket", "internal/service/outbound", "internal/app/systemd", "internal/file/yamldoc", "manifest", "capsule", "simple", "mcpbridge", "mcpbridge/transport/httpfront"}, // the defaults are the packages' own

	// What answers calls, joined: tools as the configuration has them, and the parts that run them.
	"internal/call/approvals":          {"internal/mcp/jsondiff", "internal/mcp/rawjson", "internal/file/regularfile", "internal/call/pace", "internal/cluster/documents", "internal/call/fault", "internal/call/recovered", "internal/call/turns", "internal/file/wholefile", "internal/observe/brief", "manifest"},                                                                                                      // calls that somebody has to approve
	"internal/call/approvals/passkey":  {"internal/file/regularfile", "internal/file/wholefile"},                                                                                                                                                                                                                                                                                                                          // what passkeys sign, and their public keys
	"internal/app/decisions":           {"internal/mcp/rawjson", "internal/call/turns", "internal/app/control", "internal/call/approvals", "internal/call/approvals/passkey", "manifest"},                                                                                                                                                                                                                                 // people decide, at the socket and on the page
	"internal/call/approvals/announce": {"internal/call/approvals", "internal/call/fault", "internal/call/recovered", "internal/call/turns", "internal/service/outbound", "manifest"},                                                                                                                                                                                                                                     // tells a webhook of them
	"internal/call/governance":         {"internal/app/terminal", "internal/file/regularfile", "internal/file/wholefile", "internal/call/rejudge", "internal/file/yamldoc", "internal/call/approvals", "internal/call/recovered", "internal/call/turns", "internal/app/config", "internal/call/fault", "internal/call/rules", "internal/mcp/peer", "internal/mcp/rawjson", "manifest", "supervisor", "manifest/resource"}, // the rules in force, and the gate
	"internal/call/audited":            {"internal/call/callid", "internal/call/fault", "internal/call/rules", "internal/call/trace", "internal/call/turns", "internal/mcp/peer", "internal/mcp/rawjson", "internal/observe/audit", "mcpbridge/results", "supervisor"},                                                                                                                                                    // a line in the audit log for each call
	"internal/app/discovery":           {"internal/file/regularfile", "internal/packages/lockfile", "internal/packages/permission", "internal/cluster/kubeapi", "internal/app/config", "internal/app/control", "internal/call/fault", "internal/call/governance", "internal/app/terminal", "internal/service/secret", "internal/file/yamldoc", "manifest", "manifest/discover", "manifest/toolfile", "capsule/records", "internal/deps", "internal/launch/environ"},
	"internal/app/listen":              {"internal/launch/carry", "internal/call/pace", "internal/call/turns", "internal/app/exit"},
	"internal/app/sources":             {"internal/app/config", "internal/app/discovery", "internal/call/recovered", "internal/file/watch"}, // says when tools may have changed
	"internal/app/wiring": {
		"capsule", "capsule/handover", "capsule/records", "manifest", "mcpbridge", "mcpbridge/budget", "mcpbridge/client", "mcpbridge/results", "mcpbridge/sessionlog", "mcpbridge/transport/httpfront", "mcpbridge/transport/passed", "mcpbridge/wire", "simple", "supervisor",
		"internal/app/config", "internal/app/discovery", "internal/app/doctor", "internal/app/systemd", "internal/app/terminal", "internal/app/version",
		"internal/call/approvals", "internal/call/approvals/announce", "internal/call/approvals/passkey", "internal/call/audited", "internal/call/fault", "internal/call/governance", "internal/call/pace", "internal/call/pins", "internal/call/recovered", "internal/call/retry", "internal/call/rules", "internal/call/trace", "internal/call/turns",
		"internal/cluster/documents", "internal/cluster/kubeapi", "internal/cluster/replicas", "internal/cluster/resources", "internal/cluster/sealed",
		"internal/console",
		"internal/deps",
		"internal/file/watch",
		"internal/kind/grpc", "internal/kind/mcptool", "internal/kind/post", "internal/kind/wasm", "internal/kind/webhook",
		"internal/launch", "internal/launch/cgroup", "internal/launch/container", "internal/launch/environ", "internal/launch/guard", "internal/launch/kube", "internal/launch/sandbox",
		"internal/mcp/peer",
		"internal/observe/audit", "internal/observe/brief",
		"internal/service/auth", "internal/service/login", "internal/service/oauth", "internal/service/outbound", "internal/service/remote", "internal/service/secret",
		"internal/wasm", "internal/wasm/artifact",
	},

	// How the running process executes another binary.
	"internal/app/upgrade": {"internal/call/pace", "internal/app/control", "internal/app/control/unixsocket", "internal/app/listen", "internal/app/version", "internal/app/wiring", "internal/launch", "internal/launch/carry", "internal/observe/brief"},

	// The arguments of calls that operators look at.
	"internal/app/arguments": {"internal/app/config", "internal/app/control", "internal/app/decisions", "internal/call/fault", "internal/observe/audit", "internal/service/secret", "manifest", "mcpbridge", "supervisor"},

	// What Orla has written down, for the control API.
	"internal/app/recorded": {"internal/mcp/peer", "internal/app/config", "internal/app/control", "internal/app/discovery", "internal/file/yamldoc", "manifest/resource", "internal/observe/audit", "internal/observe/telemetry", "internal/packages/lockfile", "supervisor"},

	// Who may call over HTTP.
	"internal/app/access": {"internal/app/config", "internal/app/wiring", "internal/service/oauth", "mcpbridge/transport/httpfront"},

	// Where spans go.
	"internal/app/tracing": {"internal/app/config", "internal/observe/telemetry"},

	// One call without a server.
	"internal/app/oneshot": {"internal/app/config", "internal/app/discovery", "internal/app/exit", "internal/app/wiring", "internal/call/fault", "internal/call/rules", "internal/mcp/peer", "manifest", "mcpbridge/results", "supervisor"},

	"internal/app/daemon": {
		"manifest", "mcpbridge", "mcpbridge/conversation", "mcpbridge/transport/httpfront", "mcpbridge/transport/stdio", "supervisor", "supervisor/services",
		"internal/app/access", "internal/app/arguments", "internal/app/config", "internal/app/control", "internal/app/control/unixsocket", "internal/app/decisions", "internal/app/discovery", "internal/app/exit", "internal/app/listen", "internal/app/recorded", "internal/app/sources", "internal/app/systemd", "internal/app/terminal", "internal/app/tracing", "internal/app/upgrade", "internal/app/version", "internal/app/wiring",
		"internal/call/approvals", "internal/call/approvals/announce", "internal/call/fault", "internal/call/pins", "internal/call/rules", "internal/call/turns",
		"internal/cluster/resources", "internal/console", "internal/file/regularfile", "internal/kind/webhook", "internal/launch/carry", "internal/mcp/peer", "internal/service/secret",
		"internal/observe/audit", "internal/observe/history", "internal/observe/logging", "internal/observe/telemetry",
	},

	// The command line. It asks a running Orla, or looks at files itself.
	"internal/app/cli/author": {
		"internal/app/cli/usage", "internal/app/exit", "internal/app/terminal", "internal/app/config", "internal/app/discovery", "internal/call/callid", "internal/app/clientconf", "internal/service/contract", "internal/app/doctor", "internal/call/fault",
		"internal/deps/versions", "internal/mcp/peer", "internal/wasm", "internal/file/yamldoc", "manifest", "manifest/discover",
	},
	"internal/app/cli/usage":   {"internal/app/exit"},                                                                                                                                                                                                                   // the words of command lines, and how they are completed
	"internal/app/cli/running": {"internal/app/config", "internal/app/control", "internal/app/control/unixsocket", "internal/app/discovery", "internal/app/exit", "internal/call/fault", "internal/file/yamldoc", "manifest"},                                           // the Orla that a command asks
	"internal/app/cli/approve": {"internal/app/cli/usage", "manifest", "internal/app/cli/running", "internal/app/config", "internal/app/control", "internal/app/exit", "internal/app/terminal", "internal/call/approvals", "internal/mcp/rawjson", "manifest/resource"}, // a person decides
	"internal/app/cli/logins":  {"internal/app/cli/usage", "internal/app/cli/running", "internal/app/config", "internal/app/control", "internal/app/discovery", "internal/app/exit", "internal/app/terminal", "internal/app/wiring", "internal/file/yamldoc", "internal/service/login", "manifest"},
	"internal/app/cli/pinned":  {"internal/app/doctor", "internal/app/cli/usage", "internal/app/cli/running", "internal/app/config", "internal/app/control", "internal/app/exit", "internal/app/terminal", "internal/mcp/rawjson", "manifest"},
	"internal/app/cli/packaged": {
		"internal/app/cli/usage", "internal/app/cli/running", "internal/deps/versions", "internal/file/regularfile", "internal/file/yamldoc",
		"internal/app/doctor", "internal/deps", "internal/app/config", "internal/app/control", "internal/app/discovery", "internal/app/exit", "internal/app/terminal", "internal/app/version", "internal/app/wiring",
		"internal/packages", "internal/packages/lockfile", "internal/packages/origin", "internal/packages/permission", "internal/packages/registry", "internal/packages/bundle", "manifest", "manifest/keys", "manifest/toolfile",
	},
	"internal/app/cli/auditlog":   {"internal/app/config", "internal/app/exit", "internal/app/terminal", "internal/observe/audit"},
	"internal/app/cli/upgrading":  {"internal/app/cli/running", "internal/app/config", "internal/app/control", "internal/app/control/unixsocket", "internal/app/exit", "internal/app/terminal", "internal/call/pace"},
	"internal/app/cli/statuspage": {"internal/app/control", "internal/app/terminal"},
	"internal/app/cli/top":        {"internal/app/cli/running", "internal/app/config", "internal/app/cli/statuspage", "internal/app/control", "internal/app/exit", "internal/app/terminal"},
	"internal/app/cli": {
		"internal/app/cli/usage",
		"internal/observe/logging", // drops what Go's library logs
		"internal/mcp/rawjson",     // lines of the log
		"internal/deps/versions", "internal/deps/printed",
		"internal/app/cli/running", "internal/app/cli/upgrading", "internal/app/upgrade", "internal/cluster/crd",
		"internal/app/cli/statuspage", "internal/file/wholefile", "internal/file/regularfile",
		"internal/deps", "internal/launch/environ", // which packages tools need
		"internal/packages/permission", // validate reads those of packages
		"internal/call/rules",
		"internal/app/cli/top", "internal/app/cli/author", "internal/app/cli/approve", "internal/app/cli/auditlog", "internal/app/cli/logins", "internal/app/cli/packaged", "internal/app/cli/pinned", "internal/app/exit", "internal/call/fault", "internal/app/terminal", "internal/app/config", "internal/app/access", "internal/app/control", "internal/app/control/unixsocket", "internal/app/daemon", "internal/app/oneshot", "internal/app/discovery", "internal/app/doctor", "internal/service/contract",
		"internal/app/version", "internal/file/yamldoc", "manifest", "manifest/discover", "manifest/resource", "manifest/toolfile",
		"internal/app/wiring", // what doctor tries, and the hidden commands
		"capsule/files",       // which rules of a capsule are too many
		"simple",              // which stream of a simple tool a part of its answer was
	},

	"internal/testing/program": {}, // tests alone, of the program as a whole
	"deploy/container":         {}, // tests alone
	"deploy/helm":              {}, // tests alone
	"deploy/package":           {}, // tests alone

	"internal/testing/bench": {anything},              // measures the product, and is not part of it
	"internal/testing/scale": {},                      // arithmetic
	"internal/testing/soak":  {},                      // judges the product from outside
	"internal/testing/chaos": {"internal/call/fault"}, // judges the product from outside; the codes are a promise
	"cmd/orla":               {"internal/launch/mainthread", "internal/launch/slack/early", "internal/app/cli", "internal/app/terminal"},
}

// owners says which of our packages may import each foreign module, tests aside.
// A module with one owner can be exchanged there and nowhere else.
var owners = map[string][]string{
	// Its wire types (Tool, CallToolResult, Content) are the domain, and twin
	// types would drift. Its servers, clients and sessions stay in the bridge.
	"github.com/modelcontextprotocol/go-sdk": {"mcpbridge/listing", "manifest", "manifest/keys", "manifest/resource", "simple", "capsule", "capsule/clients", "capsule/offers", "capsule/protocol", "capsule/refusal", "internal/call/pins", "supervisor", "mcpbridge", "mcpbridge/conversation", "internal/service/contract", "internal/kind/post", "internal/kind/webhook", "internal/kind/grpc", "internal/kind/mcptool", "internal/kind/wasm", "internal/service/remote", "internal/call/audited", "internal/call/retry", "internal/mcp/rpc", "internal/mcp/peer", "internal/service/oauth", "internal/service/login", "internal/app/wiring", "internal/app/daemon", "internal/app/control", "internal/app/recorded", "internal/app/cli", "internal/testing/bench", "mcpbridge/wire", "mcpbridge/results", "mcpbridge/budget", "mcpbridge/client", "mcpbridge/transport/held", "mcpbridge/transport/httpfront", "mcpbridge/transport/stdio", "internal/app/access", "internal/app/oneshot"},

	"github.com/bmatcuk/doublestar/v4":         {"internal/file/watch"},
	"github.com/coder/websocket":               {"internal/cluster/kubeapi"},
	"github.com/cenkalti/backoff/v4":           {"capsule/restarts", "internal/call/retry", "internal/call/approvals/announce", "internal/cluster/objects"},
	"code.dny.dev/ssrf":                        {"internal/service/address"},
	"connectrpc.com/connect":                   {"internal/kind/grpc", "internal/testing/bench"},
	"golang.org/x/oauth2":                      {"internal/service/auth", "internal/service/login"},
	"github.com/coreos/go-systemd/v22":         {"internal/app/systemd"},
	"github.com/fsnotify/fsnotify":             {"internal/file/watch"},
	"github.com/go-jose/go-jose/v4":            {"internal/service/oauth"},
	"github.com/google/jsonschema-go":          {"internal/file/yamldoc"}, // the schemas of our own files, as the SDK writes a tool's
	"github.com/lmittmann/tint":                {"internal/observe/logging"},
	"github.com/tailscale/hujson":              {"internal/app/clientconf"},
	"github.com/prometheus/client_golang":      {"internal/observe/telemetry"},
	"github.com/santhosh-tekuri/jsonschema/v6": {"internal/mcp/schema"},
	"github.com/segmentio/encoding":            {"internal/mcp/rawjson"},
	"github.com/spf13/cobra":                   {"internal/app/cli/usage", "internal/app/cli/running", "internal/app/cli/packaged", "internal/app/cli/upgrading", "internal/app/cli", "internal/app/cli/top", "internal/app/cli/author", "internal/app/cli/approve", "internal/app/cli/auditlog", "internal/app/cli/logins", "internal/app/cli/pinned"},
	"github.com/spf13/pflag":                   {"internal/app/config", "internal/app/cli"},
	"github.com/thejerf/suture/v4":             {"supervisor", "supervisor/services", "internal/app/daemon"},
	"github.com/yosida95/uritemplate/v3":       {"internal/mcp/urimatch"}, // what the SDK matches templates with
	"go.opentelemetry.io":                      {"internal/observe/telemetry"},
	"google.golang.org/protobuf":               {"internal/observe/telemetry", "internal/kind/grpc"},               // the encoding of OTLP, and of a status's details
	"github.com/tetratelabs/wazero":            {"internal/wasm", "internal/testing/bench"},                        // which measures a module without meters
	"oras.land/oras-go/v2":                     {"internal/wasm/artifact", "internal/packages/bundle"},             // modules; the sizes of images
	"github.com/opencontainers/go-digest":      {"internal/wasm/artifact", "internal/packages/bundle"},             // in oras-go's own types
	"github.com/opencontainers/image-spec":     {"internal/wasm/artifact", "internal/packages/bundle"},             // the same
	"go.uber.org/goleak":                       {"internal/testing/leaks"},                                         // tests alone
	"golang.org/x/mod":                         {"manifest", "internal/observe/audit", "internal/packages/origin"}, // versions; signed notes; digests of trees
	"golang.org/x/net":                         {"internal/service/outbound", "internal/cluster/kubeapi"},          // HTTP/2 whose client does not stand still
	"golang.org/x/sys":                         {"internal/packages", "mcpbridge/sessionlog", "internal/file/wholefile", "internal/launch/carry", "internal/launch/slack", "internal/file/memfile", "internal/call/approvals", "internal/file/regularfile", "manifest/resource", "internal/launch", "internal/launch/guard", "internal/launch/procfs", "internal/launch/trees", "internal/launch/sandbox", "internal/launch/cgroup", "internal/app/systemd", "internal/app/control/unixsocket", "internal/testing/costtest", "internal/app/doctor", "internal/file/watch", "internal/service/outbound", "internal/app/cli", "internal/observe/logging", "internal/app/terminal", "internal/testing/bench", "internal/testing/chaos", "internal/testing/testkit"},
	"golang.org/x/term":                        {"internal/app/terminal"},
	"golang.org/x/text":                        {"internal/app/config", "internal/call/rules", "internal/packages/origin", "internal/service/oauth"}, // Unicode forms of names
	"gopkg.in/yaml.v3":                         {"internal/file/yamldoc"},
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
		for i, target := range allowed {
			if slices.Contains(allowed[:i], target) {
				t.Errorf("the row of %s has %s more than once", name, target)
			}
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
