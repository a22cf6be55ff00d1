package config

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/orla-project/orla/internal/systemd"
	"github.com/orla-project/orla/internal/terminal"
)

// Flags are the flags that stand for keys of the configuration.
type Flags struct {
	config string
}

// flagKey is a key that has a flag, with what its help says.
type flagKey struct{ key, kind, help string }

// flag is the key's, as the command line has it.
func (k flagKey) flag() string { return strings.ReplaceAll(k.key, "_", "-") }

// flagKeys are the keys that every command's help has a flag for.
var flagKeys = [...]flagKey{
	{"tools_dir", "DIR", "folder of executables and packages (default ./tools)"},
	{"port", "PORT", "TCP port, 0 for a free one (default 8080)"},
	{"listen", "ADDR", "address or address:port to listen on (default 127.0.0.1)"},
	{"timeout", "DURATION", "longest time of one call (default 30s)"},
	{"log_level", "LEVEL", "debug, info, warn, error or fatal (default info)"},
	{"log_format", "FORMAT", "json, pretty or journald (default json, on a terminal pretty)"},
	{"log_file", "FILE", "append the log to a file (default stderr)"},
	{"socket", "PATH", "control socket to serve or to talk to, or none (default: found by the tools folder)"},
}

// switchKeys are those whose flag needs no value.
var switchKeys = [...]flagKey{
	{"stdio", "", "serve one client on stdin and stdout in place of HTTP"},
	{"insecure", "", "allow listening beyond loopback without authentication"},
}

// Add adds the flags to a set.
func (f *Flags) Add(set *pflag.FlagSet) {
	set.StringVarP(&f.config, "config", "c", "", "configuration `FILE` (default ./orla.yaml, then ~/.orla/config.yaml)")
	for _, k := range slices.Concat(flagKeys[:], isolationFlags[:]) {
		set.Var(&textFlag{kind: k.kind}, k.flag(), k.help)
	}
	for _, k := range slices.Concat(switchKeys[:], isolationSwitches[:]) {
		set.Bool(k.flag(), false, k.help)
	}
	for _, k := range slices.Concat(isolationFlags[:], isolationSwitches[:]) {
		set.Lookup(k.flag()).Annotations = map[string][]string{GroupAnnotation: {IsolationGroup}}
	}
}

// textFlag is a flag whose value is the text of a key.
type textFlag struct{ kind, text string }

func (t *textFlag) String() string { return t.text }

func (t *textFlag) Set(text string) error { t.text = text; return nil }

func (t *textFlag) Type() string { return t.kind }

// Loader returns what loads the configuration for the flags that a command was given.
func (f *Flags) Loader(set *pflag.FlagSet) *Loader {
	l := &Loader{Path: f.config, Environ: os.Environ(), journal: systemd.StderrIsJournal(), terminal: terminal.IsTerminal(os.Stderr)}
	if home, err := os.UserHomeDir(); err == nil {
		l.Home = home
	}
	for _, k := range slices.Concat(flagKeys[:], isolationFlags[:], switchKeys[:], isolationSwitches[:]) {
		if flag := set.Lookup(k.flag()); flag.Changed {
			l.Flags = append(l.Flags, Setting{k.key, flag.Value.String(), flag.Name})
		}
	}
	return l
}

// Load loads the configuration for a command that does not serve.
func (f *Flags) Load(set *pflag.FlagSet) (*Loaded, *Loader, error) {
	l := f.Loader(set)
	cfg, err := l.Load()
	if err != nil {
		return nil, nil, NotLoaded(err)
	}
	return cfg, l, nil
}

// flagGroup is the annotation of flags that help shows apart, so that they do
// not drown the rest, and isolationGroup one such group.
const (
	GroupAnnotation = "orla_group"
	IsolationGroup  = "How tools are isolated (docs/ISOLATION.md):"
)
