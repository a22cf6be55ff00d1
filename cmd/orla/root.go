package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/orla-project/orla/internal/systemd"
	"github.com/orla-project/orla/internal/version"
)

const rootExample = `  orla                                  serve ./tools on http://127.0.0.1:8080/mcp
  orla --tools-dir examples/tools       serve another folder
  orla --stdio                          serve one client on stdin and stdout
  orla dev tools/notes                  serve one tool, and show what it does
  orla tools                            list what would be served
  orla call hello --arg name=Ada        call one tool from the shell
  orla status                           show what a running Orla is doing
  orla logs notes -f                    follow what one of its tools does
  orla validate                         check every tool and say what is wrong`

// newRoot builds the command line.
func newRoot(std stdio) *cobra.Command {
	flags := &configFlags{}
	serveHere := func(cmd *cobra.Command, _ []string) error {
		return serve(cmd.Context(), flags.loader(cmd.Flags()), std)
	}
	root := &cobra.Command{
		Use:           "orla",
		Short:         "Serve the executables in ./tools to MCP clients",
		Long:          "Orla finds executables and packages in ./tools and serves each as a tool of one\nMCP endpoint. Without a command it serves.",
		Example:       rootExample,
		Version:       version.Version(),
		Args:          noCommand,
		RunE:          serveHere,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	root.SetVersionTemplate("orla {{.Version}}\n")
	flags.add(root.PersistentFlags())
	groupFlags(root)
	root.AddCommand(
		&cobra.Command{
			Use:     "serve",
			Short:   "Serve until a signal (the same as orla without a command)",
			Example: "  orla serve --port 9000\n  orla serve --stdio",
			Args:    cobra.NoArgs,
			RunE:    serveHere,
		},
		newDev(flags, std),
		newTools(flags, std),
		newCall(flags, std),
		newStatus(flags, std),
		newLogs(flags, std),
		newEvents(flags, std),
		newReload(flags, std),
		newValidate(flags, std),
		newConfig(flags, std),
		newSchema(std),
		newNew(flags, std),
		newToolGroup(flags, std),
		newImport(flags, std),
		newDoctor(flags, std),
		newVersion(std),
		newDocs(),
	)
	root.AddCommand(newByHand(flags, std)...)
	endWell(root)
	return root
}

// noCommand refuses a word that is no command. cobra suggests near ones only
// for a root without arguments.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	f := &failure{code: exitUsage, err: fmt.Errorf("there is no command %q", args[0]), hint: usageHint}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		f.hint = "did you mean orla " + near[0] + "?"
	}
	return f
}

// configFlags are the flags that stand for keys of the configuration.
type configFlags struct {
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

func (f *configFlags) add(set *pflag.FlagSet) {
	set.StringVarP(&f.config, "config", "c", "", "configuration `FILE` (default ./orla.yaml, then ~/.orla/config.yaml)")
	for _, k := range slices.Concat(flagKeys[:], isolationFlags[:]) {
		set.Var(&textFlag{kind: k.kind}, k.flag(), k.help)
	}
	for _, k := range slices.Concat(switchKeys[:], isolationSwitches[:]) {
		set.Bool(k.flag(), false, k.help)
	}
	for _, k := range slices.Concat(isolationFlags[:], isolationSwitches[:]) {
		set.Lookup(k.flag()).Annotations = map[string][]string{flagGroup: {isolationGroup}}
	}
}

// textFlag is a flag whose value is the text of a key.
type textFlag struct{ kind, text string }

func (t *textFlag) String() string        { return t.text }
func (t *textFlag) Set(text string) error { t.text = text; return nil }
func (t *textFlag) Type() string          { return t.kind }

// loader returns what loads the configuration for the flags that a command was given.
func (f *configFlags) loader(set *pflag.FlagSet) *loader {
	l := &loader{path: f.config, environ: os.Environ(), journal: systemd.StderrIsJournal(), terminal: isTerminal(os.Stderr)}
	if home, err := os.UserHomeDir(); err == nil {
		l.home = home
	}
	for _, k := range slices.Concat(flagKeys[:], isolationFlags[:], switchKeys[:], isolationSwitches[:]) {
		if flag := set.Lookup(k.flag()); flag.Changed {
			l.flags = append(l.flags, setting{k.key, flag.Value.String(), flag.Name})
		}
	}
	return l
}

// load loads the configuration for a command that does not serve.
func (f *configFlags) load(set *pflag.FlagSet) (*loaded, *loader, error) {
	l := f.loader(set)
	cfg, err := l.load()
	if err != nil {
		return nil, nil, notLoaded(err)
	}
	return cfg, l, nil
}
