package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/running"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// logFlags are the flags of `orla logs` and `orla events`.
type logFlags struct {
	control.Query
	last  int
	since string
	json  bool
}

// newLogs shows what a running Orla logged last.
func newLogs(flags *config.Flags, std terminal.Streams) *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use:   "logs [NAME...]",
		Short: "Show what a running Orla logged last",
		Long: "Show the last lines of the log of a running Orla, of some tools or of all: every line\n" +
			"at info and above, wherever else the log goes. What a capsule writes to stderr is\n" +
			"there, and why it was started and ended. Orla keeps the last lines of each tool in\n" +
			"memory. With --since, older ones come from log_file, if it is set and has JSON,\n" +
			"and from what logrotate has made of it (.1, .2.gz, -20261126); or from\n" +
			"the journal, if the log goes there and Orla may read it.",
		Example:           "  orla logs notes\n  orla logs notes -f\n  orla logs notes mail --grep timeout\n  orla logs notes --stream stderr\n  orla logs --level warn\n  orla logs --since 10m\n  orla logs notes --json -n -1 | jq -r .msg",
		ValidArgsFunction: completeManifests(flags, 0, nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			return showLines(cmd, flags, args, f, std)
		},
	}
	const usual = 100 // without --since, which shows all lines since then
	f.add(cmd, usual)
	cmd.Flags().StringVar(&f.Level, "level", "", "lines of this `LEVEL` and above: info, warn, error or fatal")
	cmd.Flags().StringVar(&f.Grep, "grep", "", "lines with this `TEXT`, in upper or lower case, in the message, the tool, or key=value")
	cmd.Flags().StringVar(&f.Stream, "stream", "", "what tools printed to this `STREAM` only: stderr")
	cmd.Flags().BoolVarP(&f.Follow, "follow", "f", false, "go on with new lines until interrupted")
	return cmd
}

// newEvents shows what happens in a running Orla.
func newEvents(flags *config.Flags, std terminal.Streams) *cobra.Command {
	f := logFlags{Query: control.Query{Follow: true, Events: control.Events()}}
	cmd := &cobra.Command{
		Use:   "events [NAME...]",
		Short: "Show what happens in a running Orla, as it happens",
		Long: "Show what happens in a running Orla, to some tools or to all, until interrupted:\n" +
			"states, processes, reloads and calls. These are the lines of orla logs -f without\n" +
			"what capsules write to stderr.",
		Example:           "  orla events\n  orla events notes --since 1h\n  orla events --json | jq -r 'select(.msg == \"call\") | .tool'",
		ValidArgsFunction: completeManifests(flags, 0, nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			return showLines(cmd, flags, args, f, std)
		},
	}
	f.add(cmd, 0)
	return cmd
}

// all is the number of lines that stands for all lines that are kept.
const all = -1

func (f *logFlags) add(cmd *cobra.Command, usual int) {
	cmd.Flags().IntVarP(&f.last, "lines", "n", usual, "begin with the last `LINES` lines; -1 for all that are kept, as with --since alone")
	cmd.Flags().StringVar(&f.since, "since", "", "lines since this `TIME`: 10m, 2d, 2026-01-02T15:04:05Z, or 2026-01-02 15:04")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the lines as the JSON log has them")
}

// showLines prints lines of the log.
func showLines(cmd *cobra.Command, flags *config.Flags, names []string, f logFlags, std terminal.Streams) error {
	q := f.Query
	if f.since != "" && !cmd.Flags().Changed("lines") {
		f.last = all
	}
	switch {
	case f.last < all:
		return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("--lines: wants a number of lines, or -1 for all, got %d", f.last)}
	case f.last == 0:
		q.Last = -1
	case f.last > 0:
		q.Last = f.last
	}
	var err error
	if q.Since, err = terminal.ParseSince(f.since, time.Now()); err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	if q.Level != "" && !slices.Contains(control.Levels(), q.Level) {
		return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("--level %s: wants one of %s", q.Level, strings.Join(control.Levels(), ", "))}
	}
	if q.Stream != "" && q.Stream != "stdout" && q.Stream != "stderr" {
		return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("--stream %s: wants stdout or stderr", q.Stream)}
	}
	q.Tools = names
	client, err := running.Any(flags, cmd)
	if err != nil {
		return err
	}
	shown := false
	people := &lineWriter{colours: terminal.Colourful(std.Out), onlySome: q.Level != "" || q.Grep != "" || len(q.Events) > 0}
	for line, err := range client.Logs(cmd.Context(), q) {
		if err != nil {
			return running.NearName(cmd.Context(), client, names, running.Explain(err))
		}
		if !f.json {
			line = []byte(people.text(line))
		}
		if _, err := std.Out.Write(append(line, '\n')); err != nil {
			return err
		}
		shown = true
	}
	if !shown && cmd.Context().Err() == nil {
		fmt.Fprintln(std.Err, "no line of the log fits")
	}
	return nil
}

// lineWriter writes lines of the JSON log for people: time, level, tool,
// message, and the rest as key=value in the order of the line. What a tool wrote to
// stderr follows the tool's name, as it was written.
type lineWriter struct {
	colours  bool
	onlySome bool // of the lines; those of stderr may be missing
}

// levelWords are the names of levels that tint writes.
var levelWords = map[string]struct{ word, colour string }{
	"debug": {"DBG", terminal.Faint}, "info": {"INF", terminal.Green}, "warn": {"WRN", terminal.Yellow}, "error": {"ERR", terminal.Red}, "fatal": {"FTL", terminal.Red},
}

// text returns a line of the log for people.
func (l *lineWriter) text(line []byte) string {
	var list []pair
	isOurs := rawjson.Valid(line) && rawjson.AllMembers(line, func(key []byte, value json.RawMessage) bool {
		list = append(list, pair{string(key), value})
		return true
	})
	if !isOurs {
		return terminal.Printable(string(line))
	}
	return l.readable(list)
}

// readableLine returns a line of the log as one line for people.
func readableLine(line []byte) string { return terminal.OneLine((&lineWriter{}).text(line)) }

// pair is one member of a JSON object.
type pair struct {
	key   string
	value json.RawMessage
}

func (l *lineWriter) readable(list []pair) string {
	first := map[string]string{} // what stands before the rest
	for _, p := range list {
		switch p.key {
		case "time", "level", "msg", "tool", "text", "stderr":
			first[p.key] = valueText(p.value)
		}
	}
	at := first["time"]
	if t, err := time.Parse(time.RFC3339Nano, at); err == nil {
		at = t.Local().Format("2006-01-02 15:04:05.000")
	}
	at = l.paint(terminal.Faint, terminal.Printable(at))
	if text, ok := first["text"]; ok && first["msg"] == "stderr" {
		return at + " " + terminal.Labelled(first["tool"], text)
	}
	level, known := levelWords[first["level"]]
	if !known {
		level.word = first["level"]
	}
	parts := []string{at, l.paint(level.colour, terminal.Printable(level.word))}
	if tool := first["tool"]; tool != "" {
		parts = append(parts, terminal.Printable(tool)+":")
	}
	parts = append(parts, terminal.Printable(first["msg"]))
	below := ""
	for _, p := range list {
		value := valueText(p.value)
		switch p.key {
		case "time", "level", "msg", "tool":
			continue
		case "stderr": // its lines are in the log by themselves
			if l.onlySome {
				below = "\n" + terminal.Labelled(first["tool"], value)
			}
			continue
		case "reason":
			value = terminal.OneLine(value)
		}
		parts = append(parts, l.paint(terminal.Faint, terminal.Printable(p.key)+"=")+quoted(value))
	}
	return strings.Join(parts, " ") + below
}

func (l *lineWriter) paint(colour, text string) string {
	return terminal.Paint(l.colours, colour, text)
}

// valueText is a JSON value as text: strings as they are, the rest as JSON.
func valueText(value json.RawMessage) string {
	var text string
	if err := json.Unmarshal(value, &text); err == nil && value[0] == '"' {
		return text
	}
	var list []string
	if err := json.Unmarshal(value, &list); err == nil && value[0] == '[' {
		return "[" + strings.Join(list, ",") + "]"
	}
	return string(value)
}

// quoted returns a value, in quotes if it would run into the next one otherwise.
func quoted(text string) string {
	if text == "" || strings.ContainsAny(text, " =\"") {
		return `"` + strings.ReplaceAll(terminal.Printable(text), `"`, `\"`) + `"`
	}
	return terminal.Printable(text)
}
