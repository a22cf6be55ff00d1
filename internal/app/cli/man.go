package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/app/version"
)

// This file writes orla(1) from the same texts as --help. cobra's own generator
// would make a page for each command, by way of Markdown and two more modules;
// one page can be searched.

// writeMan writes the man page in the man macros, which groff and mandoc read.
func writeMan(w io.Writer, root *cobra.Command, date string) error {
	m := &manPage{}
	fmt.Fprintf(m, ".TH ORLA 1 %q %q Orla\n", date, "orla "+version.Version()) // mandoc reads no escapes in a date
	m.macro("SH", "NAME")
	m.text("orla - serve the executables of a folder to MCP clients")
	m.macro("SH", "SYNOPSIS")
	m.macro("B", "orla")
	m.text("[command] [flags] [arguments]")
	m.macro("SH", "DESCRIPTION")
	m.paragraphs(root.Long)
	m.macro("SH", "OPTIONS")
	m.text("These flags go with every command.")
	m.flags(grouped(root.PersistentFlags(), ""))
	m.macro("SS", strings.TrimSuffix(config.IsolationGroup, ":"))
	m.flags(grouped(root.PersistentFlags(), config.IsolationGroup))
	m.macro("SH", "COMMANDS")
	m.commands(root)
	m.macro("SH", "CONFIGURATION")
	m.paragraphs("None is needed. Each key below may stand in the configuration file; a simple one also in the environment, " +
		"as ORLA_ and the key in capitals, or as a flag, if there is one. Flags win over environment over file over defaults.")
	for _, k := range config.Described() {
		m.term(k.Key, k.Help)
	}
	for _, s := range manSections {
		m.macro("SH", s.heading)
		for _, e := range s.entries {
			m.term(e.term, e.text)
		}
	}
	m.macro("SH", "EXAMPLES")
	m.text("The first things to do with it:")
	m.example(root.Example)
	m.macro("SH", "SEE ALSO")
	m.text("systemctl(1), journalctl(1), and https://github.com/orla-project/orla")
	_, err := io.WriteString(w, m.String())
	return err
}

type manEntry struct{ term, text string }

// manSections are the sections that do not come from the help of commands.
var manSections = []struct {
	heading string
	entries []manEntry
}{
	{"FILES", []manEntry{
		{"./tools", "The tools: executables, and folders with a tool.yaml. The key tools_dir names another folder."},
		{"~/.orla/tools", "The user's own tools. A tool of the same name in the folder above hides one of these."},
		{"./orla.yaml, ~/.orla/config.yaml", "The configuration file; the first one there is, unless --config names another."},
		{"/etc/orla/orla.yaml, /var/lib/orla/tools", "Configuration and tools of the service orla.service."},
		{"$STATE_DIRECTORY, $XDG_STATE_HOME/orla, ~/.local/state/orla", "What Orla remembers between two starts. It may be removed while Orla does not run."},
	}},
	{"SIGNALS", []manEntry{
		{"SIGHUP", "Read the configuration and the folders again, and apply the changes; reopen the log file. If the terminal that Orla was started on is gone: the same as SIGTERM."},
		{"SIGTERM, SIGINT", "Let calls in flight end, then stop. A second one ends Orla at once."},
		{"SIGUSR1", "Log the state of every capsule."},
	}},
	{"EXIT STATUS", []manEntry{
		{"0", "Done."},
		{"1", "It was tried and did not work."},
		{"2", "The command line is off."},
		{"3", "There is no Orla running to talk to."},
		{"4", "A manifest or the configuration has faults."},
	}},
}

// manPage is a man page that is being written.
type manPage struct{ strings.Builder }

var manEscapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...")

// macro writes a request. Its arguments are quoted.
func (m *manPage) macro(name string, args ...string) {
	fmt.Fprintf(m, ".%s", name)
	for _, a := range args {
		fmt.Fprintf(m, ` "%s"`, strings.ReplaceAll(manEscapes.Replace(a), `"`, `\(dq`))
	}
	m.WriteByte('\n')
}

// text writes lines unchanged. It escapes a dot or a quote at the start of a line, which would be a
// request.
func (m *manPage) text(s string) {
	for line := range strings.Lines(s) {
		line = manEscapes.Replace(strings.TrimRight(line, "\n"))
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		fmt.Fprintln(m, line)
	}
}

// paragraphs writes text that may be filled, with an empty line between paragraphs.
func (m *manPage) paragraphs(s string) {
	for i, p := range strings.Split(strings.TrimSpace(s), "\n\n") {
		if i > 0 {
			m.macro("PP")
		}
		m.filled(p)
	}
}

// filled writes a text whose lines may be broken differently.
func (m *manPage) filled(s string) {
	for _, line := range terminal.Wrap(s, 72) { // escapes make it longer
		m.text(line)
	}
}

// example writes lines that stay as they are.
func (m *manPage) example(s string) {
	if s == "" {
		return
	}
	m.macro("PP")
	m.macro("nf")
	m.macro("RS", "4")
	for line := range strings.Lines(s) {
		m.text(strings.TrimPrefix(line, "  "))
	}
	m.macro("RE")
	m.macro("fi")
}

func (m *manPage) term(term, text string) {
	m.macro("TP")
	m.macro("B", term)
	m.filled(text)
}

func (m *manPage) flags(set *pflag.FlagSet) {
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		usage = strings.TrimSuffix(usage, " "+value)
		term := "--" + f.Name
		if f.Shorthand != "" {
			term = "-" + f.Shorthand + ", " + term
		}
		if value != "" {
			term += " " + value
		}
		m.term(term, usage)
	})
}

// commands writes a section for each command below parent, and those below it.
func (m *manPage) commands(parent *cobra.Command) {
	for _, cmd := range parent.Commands() {
		if cmd.Hidden || !cmd.IsAvailableCommand() && cmd.Name() != "help" {
			continue
		}
		m.macro("SS", strings.TrimSuffix(cmd.UseLine(), " [flags]"))
		isCobras := cmd.Name() == "help" || cmd.HasParent() && cmd.Parent().Name() == "completion" // its long text is about shells
		if cmd.Long == "" || isCobras {
			m.text(cmd.Short + ".")
		} else {
			m.paragraphs(cmd.Long)
		}
		m.flags(cmd.LocalNonPersistentFlags())
		m.example(cmd.Example)
		m.commands(cmd)
	}
}
