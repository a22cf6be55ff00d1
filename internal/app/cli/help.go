package cli

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/terminal"
)

// groups are the groups of commands in `orla --help`.
var groups = []struct{ id, title, commands string }{
	{"run", "Run tools:", "serve dev call"},
	{"look", "See what runs:", "tools status top console logs events audit"},
	{"make", "Make and check tools:", "new wasm import validate schema"},
	{"packages", "Install tools of others:", "install list search info update use uninstall verify pack cache tool"},
	{"operate", "Operate:", "start stop restart reload upgrade login logout approvals pins can config doctor"},
	{"other", "Other:", "version completion help"},
}

// groupCommands puts every command in its group, in the order of groups.
func groupCommands(root *cobra.Command) {
	cobra.EnableCommandSorting = false // the order says what to read first
	commands := map[string]*cobra.Command{}
	for _, cmd := range root.Commands() {
		commands[cmd.Name()] = cmd
	}
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for name := range strings.FieldsSeq(g.commands) {
			cmd := commands[name]
			cmd.GroupID = g.id
			root.RemoveCommand(cmd)
			root.AddCommand(cmd)
		}
	}
}

// grouped returns the flags of a set that are in a group; those in none for "".
func grouped(set *pflag.FlagSet, group string) *pflag.FlagSet {
	of := pflag.NewFlagSet(group, pflag.ContinueOnError)
	set.VisitAll(func(f *pflag.Flag) {
		if strings.Join(f.Annotations[config.GroupAnnotation], "") == group {
			of.AddFlag(f)
		}
	})
	return of
}

// groupFlags hides the flags about isolation in the help of every command but serve, which shows them in
// a separate section.
func groupFlags(root *cobra.Command) {
	usage, group := root.UsageFunc(), grouped(root.PersistentFlags(), config.IsolationGroup)
	hide := func(on bool) { group.VisitAll(func(f *pflag.Flag) { f.Hidden = on }) }
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		hide(true)
		err := usage(cmd)
		hide(false)
		if err != nil {
			return err
		}
		if cmd.Name() == "serve" {
			_, err = fmt.Fprintf(cmd.OutOrStderr(), "\n%s\n%s", config.IsolationGroup, group.FlagUsages())
		} else {
			_, err = fmt.Fprint(cmd.OutOrStderr(), "\n\"orla serve --help\" also has the flags that say how tools are isolated.\n")
		}
		return err
	})
}

const (
	// helpWidth is how wide help is where there is no terminal.
	helpWidth = 80
	// leastWidth is how wide what follows a name has to be to stand beside it, else it stands below.
	leastWidth, below = 24, 10
)

// foldHelp breaks the lines of help that are wider than out.
func foldHelp(root *cobra.Command, out io.Writer) {
	help, width := root.HelpFunc(), helpWidth
	if terminal.IsTerminal(out) {
		width = terminal.Width(out)
	}
	root.SetHelpFunc(func(cmd *cobra.Command, words []string) {
		to := cmd.OutOrStdout()
		var text bytes.Buffer
		cmd.SetOut(&text)
		help(cmd, words)
		cmd.SetOut(to)
		_, _ = io.WriteString(to, folded(text.String(), width)) // see written
	})
}

// folded breaks the lines of a text that are wider than that: those of a list below what follows the name, and those of a paragraph
// as a whole. Examples and other lines that are indented stay.
func folded(text string, width int) string {
	isText := func(line string) bool { return line != "" && line[0] != ' ' }
	var all []string
	for lines := strings.Split(text, "\n"); len(lines) > 0; {
		n := 1
		for isText(lines[0]) && n < len(lines) && isText(lines[n]) {
			n++
		}
		paragraph := lines[:n]
		lines = lines[n:]
		switch at := second(paragraph[0]); {
		case !slices.ContainsFunc(paragraph, func(line string) bool { return len(line) > width }):
			all = append(all, paragraph...)
		case isText(paragraph[0]):
			all = append(all, terminal.Wrap(strings.Join(paragraph, " "), width)...)
		case at == 0:
			all = append(all, paragraph...)
		default:
			name, said := paragraph[0][:at], paragraph[0][at:]
			if width-at < leastWidth {
				all = append(all, strings.TrimRight(name, " "))
				at = below
				name = strings.Repeat(" ", at)
			}
			for _, line := range terminal.Wrap(said, width-at) {
				all = append(all, name+line)
				name = strings.Repeat(" ", at)
			}
		}
	}
	return strings.Join(all, "\n")
}

// second returns where the second column of an indented line begins; 0 if there is none.
func second(line string) int {
	first := len(line) - len(strings.TrimLeft(line, " "))
	end := strings.Index(line[first:], "  ")
	if end < 0 {
		return 0
	}
	rest := line[first+end:]
	return first + end + len(rest) - len(strings.TrimLeft(rest, " "))
}

// written remembers the first error of a writer: who prints help does not look.
type written struct {
	io.Writer
	err error
}

func (w *written) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if w.err == nil {
		w.err = err
	}
	return n, err
}
