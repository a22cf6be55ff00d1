// Package config is Orla's configuration: one table of settings, the struct Config, and
// the sources that they come from: flags, environment, a file and defaults. The same
// table makes the JSON Schema, the sample file and the list of keys in the manual.
package config

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/orla-project/orla/capsule"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/observe/logging"
	"github.com/orla-project/orla/internal/packages/lockfile"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// Config is the whole configuration (RFC 1 §6, SPEC H1). Flags, schema, sample and manual are made from
// its fields. The tags of a key:
//
//	json        its name in orla.yaml; in the environment it is ORLA_ and the name in capitals
//	jsonschema  what it means, and after "Default" what holds without it: for the schema, the
//	            sample, the manual and docs/CONFIGURATION.md
//	flag        what its flag's value is, as --help calls it; - for a switch; no flag without it
//	brief       what --help says of the flag
//	sample      a value for the sample orla.yaml, where the default would not show one
type Config struct {
	ToolsDir              string           `json:"tools_dir,omitempty" jsonschema:"Folder of executables and packages; a relative path is relative to this file's folder. Default ./tools." flag:"DIR" brief:"folder of executables and packages (default ./tools)"`
	Port                  int              `json:"port,omitempty" jsonschema:"TCP port of the HTTP server; 0 picks a free one. Not used on stdio. Default 8080." flag:"PORT" brief:"TCP port, 0 for a free one (default 8080)"`
	Listen                string           `json:"listen,omitempty" jsonschema:"Address or address:port to listen on. Default 127.0.0.1." flag:"ADDR" brief:"address or address:port to listen on (default 127.0.0.1)"`
	Stdio                 bool             `json:"stdio,omitempty" jsonschema:"Serve one client on stdin and stdout instead of HTTP. Default false." flag:"-" brief:"serve one client on stdin and stdout in place of HTTP"`
	Timeout               yamldoc.Duration `json:"timeout,omitempty" jsonschema:"Longest time of one attempt of a call, unless its tool says otherwise: seconds, or a duration such as 1m30s. Default 30s." flag:"DURATION" brief:"longest time of one call (default 30s)"`
	LogFormat             string           `json:"log_format,omitempty" jsonschema:"json, pretty or journald. Default json; pretty on a terminal; journald where stderr is the journal and log_file is not set." flag:"FORMAT" brief:"json, pretty or journald (default json, on a terminal pretty)"`
	LogLevel              string           `json:"log_level,omitempty" jsonschema:"debug, info, warn, error or fatal. Default info." flag:"LEVEL" brief:"debug, info, warn, error or fatal (default info)"`
	LogFile               string           `json:"log_file,omitempty" jsonschema:"File to append the log to, reopened on SIGHUP. A relative path is relative to the folder in which Orla was started. Default: stderr." flag:"FILE" brief:"append the log to a file (default stderr)" sample:"/var/log/orla/orla.log"`
	AuditLog              string           `json:"audit_log,omitempty" jsonschema:"Audit log of all calls and reads: a file to append to, relative to this file's folder and continued in a new file on SIGHUP if it was moved, journal for the systemd journal, or none. It takes effect at the start. Default none." sample:"/var/log/orla/audit.log"`
	AuditArguments        string           `json:"audit_arguments,omitempty" jsonschema:"What the audit log has of the arguments of a call: hash, or full, which adds the arguments themselves up to 16 KiB. Default hash."`
	Socket                string           `json:"socket,omitempty" jsonschema:"Control socket of this Orla: a path, relative to this file's folder, or none. Default: one that is named after the tools folder, in $RUNTIME_DIRECTORY, $XDG_RUNTIME_DIR/orla or the folder run of state_dir." flag:"PATH" brief:"control socket to serve or to talk to, or none (default: found by the tools folder)"`
	AutoReload            bool             `json:"auto_reload,omitempty" jsonschema:"Apply changes in the tools folders at once; false waits for SIGHUP. Default true."`
	MaxOutput             yamldoc.Size     `json:"max_output,omitempty" jsonschema:"Bytes kept of each output stream of a simple tool. Default 8MiB."`
	MaxInline             yamldoc.Size     `json:"max_inline,omitempty" jsonschema:"A larger answer is cut to its beginning and end, and is readable as a resource for ten minutes. Default 4MiB."`
	MaxRequest            yamldoc.Size     `json:"max_request,omitempty" jsonschema:"Largest request from a client. Default 16MiB."`
	MaxConcurrentCalls    int              `json:"max_concurrent_calls,omitempty" jsonschema:"Processes of simple tools at once; other calls wait within their deadline. Default 8 for each core." sample:"16"`
	StructuredResults     bool             `json:"structured_results,omitempty" jsonschema:"Put stdout, stderr and exit_code of simple tools in structuredContent as well. Default false."`
	QueueTimeout          yamldoc.Duration `json:"queue_timeout,omitempty" jsonschema:"How long a call waits for a capsule that starts, reloads, or will soon restart. Default 10s."`
	MaxMessage            yamldoc.Size     `json:"max_message,omitempty" jsonschema:"Largest message of a capsule. Default 16MiB."`
	StateDir              string           `json:"state_dir,omitempty" jsonschema:"Folder for what Orla keeps between two starts: the tools that capsules offered and which of them were accepted, which capsules an operator has stopped, the names in rules, sessions, and logins. Default: $STATE_DIRECTORY, $XDG_STATE_HOME/orla or ~/.local/state/orla." sample:"/var/lib/orla"`
	ShutdownGrace         yamldoc.Duration `json:"shutdown_grace,omitempty" jsonschema:"How long calls in flight may continue when Orla stops. Default 10s."`
	SessionTimeout        yamldoc.Duration `json:"session_timeout,omitempty" jsonschema:"When an idle HTTP session expires; a session with an open event stream is not idle. Sessions outlive a restart of Orla. Default 12h."`
	MaxSessions           int              `json:"max_sessions,omitempty" jsonschema:"HTTP sessions and streams at the same time. Default 10000."`
	AllowedOrigins        []string         `json:"allowed_origins,omitempty" jsonschema:"Web origins whose pages may call, such as https://app.example.com. Default: none." sample:"[https://example.com]"`
	AllowedHosts          []string         `json:"allowed_hosts,omitempty" jsonschema:"Names that a request's Host header may have in addition to localhost, with a port or for any port. Default: none." sample:"[orla.example.com]"`
	SecretsDir            string           `json:"secrets_dir,omitempty" jsonschema:"Folder of secrets that tools refer to: a file NAME, or a folder NAME with a file for each key. A relative path is relative to this file's folder. Default: none." sample:"/etc/orla/secrets"`
	AllowPrivateEndpoints string           `json:"allow_private_endpoints,omitempty" jsonschema:"Non-public addresses that tools may reach: none, loopback, or all, which adds private networks. Link-local and metadata addresses are always refused. Default loopback."`
	ClientMetadataURL     string           `json:"client_metadata_url,omitempty" jsonschema:"Where you host the client id metadata document by which issuers know this Orla in orla login: an https:// URL with a path. Default: none." sample:"https://example.com/orla-client.json"`
	HotLoadFolders        []string         `json:"hot_load_folders,omitempty" jsonschema:"Folders outside of packages that runtime.hot_load.watch of a capsule may name: absolute, or in a file relative to its folder. Default: none." sample:"[/srv/shared]"`
	Insecure              bool             `json:"insecure,omitempty" jsonschema:"Allow listening beyond loopback without authentication. Default false." flag:"-" brief:"allow listening beyond loopback without authentication"`
	Auth                  AuthConfig       `json:"auth,omitzero" jsonschema:"Who may call over HTTP."`
	Callers               []CallerConfig   `json:"callers,omitempty" jsonschema:"What callers and groups may do: roles, toolsets and limits each. Default: none." sample:"[{name: ci, roles: [reader]}]"`
	Toolsets              []ToolsetConfig  `json:"toolsets,omitempty" jsonschema:"Lists of tools that callers can be limited to: a name and tools each. Default: none." sample:"[{name: web, tools: [fetch, 'search__*']}]"`
	Approvals             ApprovalsConfig  `json:"approvals,omitzero" jsonschema:"How people decide about calls that need an approval."`
	Pin                   string           `json:"pin,omitempty" jsonschema:"Definitions that capsules and MCP servers list and that differ from the accepted ones, unless a manifest says otherwise: off (not noticed), warn (served, and reported) or hold (not served until orla pins approve). Default warn."`
	Registries            []string         `json:"registries,omitempty" jsonschema:"Where orla install and orla search look names up, in this order: git repositories with a registry.yaml, and base URLs of MCP registries. Default: none." sample:"[https://example.com/registry.git]"`
	MaxPackage            yamldoc.Size     `json:"max_package,omitempty" jsonschema:"Largest package that orla install accepts, unpacked. Default 256MiB."`
	MaxEnvironment        yamldoc.Size     `json:"max_environment,omitempty" jsonschema:"Largest environment of the dependencies of one installed package, and largest image of a server of a registry. Default 2GiB."`
	Packages              []PackageConfig  `json:"packages,omitempty" jsonschema:"What installed packages may do in place of what orla.lock grants: a name each. Default: none." sample:"[{name: fetch, source: 'https://example.com/ada/fetch.git', permissions: [network]}]"`
	Tracing               TracingConfig    `json:"tracing,omitzero" jsonschema:"Where traces of calls go."`

	Console string `json:"console,omitempty" jsonschema:"Web page at / of the HTTP server, for browsers on this machine that orla console lets in, and for callers with a role in it: on or off. Default on."`

	Kubernetes          bool   `json:"kubernetes,omitempty" jsonschema:"Also serve the Tools, McpServers and rules that are custom resources of a Kubernetes cluster, and use its Secrets; tool_k8s_kubeconfig and tool_k8s_context name the cluster. A tools folder is then optional. It takes effect at the start. Default false." flag:"-" brief:"also serve the custom resources of a Kubernetes cluster"`
	KubernetesNamespace string `json:"kubernetes_namespace,omitempty" jsonschema:"Namespace of these resources and Secrets. It takes effect at the start. Default: the namespace of the pod that Orla runs in, else default." flag:"NAME" brief:"namespace of these resources (default the pod's, else default)" sample:"tools"`

	IsolationConfig
	ReplicasConfig
}

// AuthConfig says who may call over HTTP.
type AuthConfig struct {
	Tokens []TokenConfig `json:"tokens,omitempty" jsonschema:"Static bearer tokens: a name, and a file or a systemd credential each. Default: none." sample:"[{name: ci, file: /etc/orla/ci.token}]"`
	OAuth  OAuthConfig   `json:"oauth,omitzero" jsonschema:"Access tokens of an authorization server."`
}

// TokenConfig is one bearer token and the caller that it identifies.
type TokenConfig struct {
	Name       string `json:"name,omitempty" jsonschema:"The caller's name in logs and rules."`
	File       string `json:"file,omitempty" jsonschema:"File that holds the token; read again on SIGHUP."`
	Credential string `json:"credential,omitempty" jsonschema:"Name of a systemd credential (LoadCredential=) that holds the token."`
}

// OwnCallers are the callers that need no token: who uses stdio, the command line, the console, or HTTP without
// authentication (SPEC-TOOLS 8.1).
var OwnCallers = []string{"stdio", "cli", "console", "anonymous"}

// CallerConfig is what a caller, or each caller of a group, may do (SPEC N1).
type CallerConfig struct {
	Name        string       `json:"name,omitempty" jsonschema:"The caller: the name of a token, oauth: and the subject of an access token, or stdio, cli, console or anonymous."`
	Group       string       `json:"group,omitempty" jsonschema:"In place of name: a group of callers, as their access tokens name it."`
	Roles       []string     `json:"roles,omitempty" jsonschema:"Names of AgentRoles, whose permissions the caller has."`
	Toolsets    []string     `json:"toolsets,omitempty" jsonschema:"Names of toolsets. The caller may call no other tools. Default: all tools."`
	MaySpeakFor []string     `json:"may_speak_for,omitempty" jsonschema:"Agents that the caller may act for, by orloj.dev/agent in _meta."`
	Console     []string     `json:"console,omitempty" jsonschema:"What the caller may do on the page of the console, with its token: viewer (see all of it), operator (start, stop and call tools too) or approver (decide about calls too). Default: not enter it."`
	Limits      LimitsConfig `json:"limits,omitzero" jsonschema:"How much the caller may do."`
}

// LimitsConfig is how much one caller may do. Zero means no limit of its own.
type LimitsConfig struct {
	CallsInFlight  int          `json:"calls_in_flight,omitempty" jsonschema:"Calls at the same time. Default: no limit of its own."`
	CallsPerMinute int          `json:"calls_per_minute,omitempty" jsonschema:"Calls in a minute. Default: no limit."`
	Sessions       int          `json:"sessions,omitempty" jsonschema:"Sessions and streams over HTTP at the same time. Default: no limit of its own."`
	Subscriptions  int          `json:"subscriptions,omitempty" jsonschema:"Resources that it follows at the same time, counted once for each session. Default: no limit of its own."`
	KeptMemory     yamldoc.Size `json:"kept_memory,omitempty" jsonschema:"Bytes of large answers that are kept to be read as resources; see max_inline. Default: no limit of its own."`
}

// ToolsetConfig is a list of tools with a name.
type ToolsetConfig struct {
	Name  string   `json:"name,omitempty" jsonschema:"The name by which callers refer to it."`
	Tools []string `json:"tools,omitempty" jsonschema:"Names of tools; * in a name stands for any characters."`
}

// Defaults returns the default configuration.
func Defaults() Config {
	return Config{
		ToolsDir:              "./tools",
		Port:                  8080,
		Listen:                "127.0.0.1",
		Timeout:               yamldoc.Duration(30 * time.Second),
		LogFormat:             logging.JSON,
		LogLevel:              "info",
		AuditLog:              NoAudit,
		AuditArguments:        AuditHash,
		AutoReload:            true,
		MaxOutput:             manifest.DefaultMaxOutput,
		MaxInline:             mcpbridge.DefaultMaxInline,
		MaxRequest:            httpfront.DefaultMaxRequest,
		MaxConcurrentCalls:    8 * runtime.NumCPU(),
		QueueTimeout:          yamldoc.Duration(capsule.DefaultQueueTimeout),
		MaxMessage:            capsule.DefaultMaxMessage,
		ShutdownGrace:         yamldoc.Duration(10 * time.Second),
		SessionTimeout:        yamldoc.Duration(httpfront.DefaultSessionTimeout),
		MaxSessions:           httpfront.DefaultMaxSessions,
		Approvals:             approvalsDefaults(),
		Pin:                   string(manifest.PinWarn),
		MaxPackage:            defaultMaxPackage,
		MaxEnvironment:        defaultMaxEnvironment,
		Console:               ConsoleOn,
		Tracing:               TracingConfig{SampleRatio: 1},
		AllowPrivateEndpoints: string(outbound.PrivateLoopback),
		IsolationConfig:       isolationDefaults(),
		ReplicasConfig:        replicasDefaults(),
	}
}

// The values of console.
const (
	ConsoleOn  = "on"
	ConsoleOff = "off"
)

// Rank orders the sources of a setting: a higher one wins (SPEC H1).
type Rank int

// The sources, the lowest first.
const (
	FromDefault Rank = iota
	FromFile
	FromEnviron
	FromFlag
)

// Origin says where a setting's value came from.
type Origin struct {
	Rank Rank
	Text string // as `orla config` shows it
}

// Setting is a value from the command line, and its key.
type Setting struct{ Key, Value, Flag string }

// Loader knows the sources of the configuration. Loading may be repeated.
type Loader struct {
	Path    string    // of --config; "" looks in the usual places
	Flags   []Setting // in the order of the command line
	Environ []string
	Home    string // the user's home; "" if there is none
	journal bool   // stderr is systemd's journal
	Only    string // the one path to serve, of `orla dev`; "" for the folders
	Serving bool   // for a process that serves: the tools folder is absolute, as its messages are read elsewhere

	terminal bool // stderr is one
}

// Loaded is a configuration, and where its values came from.
type Loaded struct {
	Config
	File    string            // the file it was read from; "" for none
	doc     *yamldoc.Doc      // that file; nil for none
	origins map[string]Origin // by key; what is missing is a default
	Only    string            // the one path to serve in place of tools_dir; "" for none
}

// flagFault is a fault of a flag, not of a file or the environment.
type flagFault struct {
	error
	plain bool // it says what to do
}

// NotLoaded returns the error with which the program ends if the configuration has faults. If all of
// them are of flags, the exit code is that of wrong usage.
func NotLoaded(err error) error {
	faults := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		faults = joined.Unwrap()
	}
	hint := ""
	for _, fault := range faults {
		f, ok := errors.AsType[flagFault](fault)
		if !ok {
			return &exit.Error{Code: exit.Invalid, Err: err}
		}
		if !f.plain {
			hint = exit.UsageHint
		}
	}
	return &exit.Error{Code: exit.Usage, Err: err, Hint: hint}
}

// Load reads every source and merges them. Every fault of every source is in
// the error.
func (l *Loader) Load() (*Loaded, error) {
	c := &Loaded{Config: Defaults(), origins: map[string]Origin{}, Only: l.Only}
	if l.Only != "" {
		c.LogFormat = logging.Pretty
	}
	c.StateDir = l.stateDir()
	var faults []error
	if err := l.readFile(c); err != nil {
		faults = append(faults, err)
	}
	bad := map[string]bool{}
	for _, key := range Keys() {
		name := variable(key)
		value, ok := LookupEnv(l.Environ, name)
		if !ok || value == "" {
			continue
		}
		c.origins[key] = Origin{FromEnviron, "environment " + name}
		if err := set(&c.Config, key, value); err != nil {
			bad[key] = true
			faults = append(faults, fmt.Errorf("%s: %s: %w", name, key, err))
		}
	}
	for _, f := range l.Flags {
		c.origins[f.Key] = Origin{FromFlag, "flag --" + f.Flag}
		if err := set(&c.Config, f.Key, f.Value); err != nil {
			bad[f.Key] = true
			faults = append(faults, flagFault{error: fmt.Errorf("--%s: %w", f.Flag, err)})
		} else {
			delete(bad, f.Key)
		}
	}
	if l.Only == "" && c.OriginOf("log_format").Rank == FromDefault && c.OriginOf("log_file").Rank == FromDefault {
		switch {
		case l.journal:
			c.LogFormat = logging.Journal
			c.origins["log_format"] = Origin{FromDefault, "stderr is the journal"}
		case l.terminal:
			c.LogFormat = logging.Pretty
			c.origins["log_format"] = Origin{FromDefault, "stderr is a terminal"}
		}
	}
	l.locate(c)
	c.nameCallers()
	c.ceilings()
	faults = append(faults, c.check(bad)...)
	if c.doc != nil && c.doc.Err() != nil {
		faults = append([]error{c.doc.Err()}, faults...)
	}
	return c, errors.Join(faults...)
}

// stateDir returns the default of state_dir: the folder that systemd gives (StateDirectory=), else
// that of the user; "" if there is neither.
func (l *Loader) stateDir() string {
	if given, ok := LookupEnv(l.Environ, "STATE_DIRECTORY"); ok && given != "" {
		first, _, _ := strings.Cut(given, ":")
		return first
	}
	if xdg, ok := LookupEnv(l.Environ, "XDG_STATE_HOME"); ok && filepath.IsAbs(xdg) {
		return filepath.Join(xdg, "orla")
	}
	if l.Home == "" {
		return ""
	}
	return filepath.Join(l.Home, ".local", "state", "orla")
}

// variable returns the environment variable of a key.
func variable(key string) string { return "ORLA_" + strings.ToUpper(key) }

// readFile reads the first configuration file that exists. The faults of its values are in c.doc; an
// error means that it cannot be read.
func (l *Loader) readFile(c *Loaded) error {
	path := l.Path
	if path == "" {
		if path = l.find(); path == "" {
			return nil
		}
		if from := lockfile.Inside(regularfile.Real(filepath.Dir(path))); from != "" { // strangers wrote it (SPEC M7)
			return fmt.Errorf("configuration file: %s came with the package that was installed in %s (its %s says that), and does not configure Orla; run the command in the folder of your project", path, from, lockfile.RecordName)
		}
	}
	data, err := ReadSmall(path)
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	c.File = path
	c.doc, _ = yamldoc.Decode(path, data, &c.Config, yamldoc.Options{}) // the error is c.doc's
	for _, key := range Keys() {
		if c.doc.Has(key) {
			c.origins[key] = Origin{FromFile, path}
		}
	}
	return nil
}

// maxSmall bounds a file of the configuration, in bytes. It is more than any of them needs.
const maxSmall = 1 << 20

// ReadSmall reads a file of the configuration. It refuses anything but a regular file: reading a FIFO
// waits for its writer, and the next reload would find it empty.
func ReadSmall(path string) ([]byte, error) {
	if path == os.DevNull {
		return nil, nil
	}
	return ReadRegular(path, maxSmall+1) // one byte over, so that the excess shows
}

// ReadRegular returns the first most bytes of a regular file. Anything else, such as a FIFO, may have no
// end, and not even a beginning.
func ReadRegular(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a FIFO does not wait
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	return io.ReadAll(io.LimitReader(f, most))
}

// find returns the configuration file in the usual places, or "".
func (l *Loader) find() string {
	paths := []string{"orla.yaml"}
	if l.Home != "" {
		paths = append(paths, filepath.Join(l.Home, ".orla", "config.yaml"))
	}
	for _, path := range paths {
		// A file that exists but cannot be read is returned, so that reading it reports the
		// error. A home that is not a folder, or that this user cannot enter, has no file.
		if _, err := os.Lstat(path); err == nil {
			return path
		}
	}
	return ""
}

// Address returns the host:port to listen on. A port in listen is used unless port comes from a source
// that outranks it.
func (c *Loaded) Address() string {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return net.JoinHostPort(strings.Trim(c.Listen, "[]"), strconv.Itoa(c.Port))
	}
	if c.OriginOf("port").Rank > c.OriginOf("listen").Rank {
		port = strconv.Itoa(c.Port)
	}
	return net.JoinHostPort(host, port)
}

// IsLoopback reports whether a host can only be reached from this machine.
func IsLoopback(host string) bool {
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// OriginOf returns where the value of a key came from.
func (c *Loaded) OriginOf(key string) Origin {
	if o, ok := c.origins[key]; ok {
		return o
	}
	return Origin{FromDefault, "default"}
}

// LookupEnv finds a variable in an environment.
func LookupEnv(environ []string, name string) (string, bool) {
	for _, kv := range slices.Backward(environ) {
		if n, v, ok := strings.Cut(kv, "="); ok && n == name {
			return v, true
		}
	}
	return "", false
}
