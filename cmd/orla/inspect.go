package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/contract"
	"github.com/orla-project/orla/internal/control"
	"github.com/orla-project/orla/manifest"
)

// newTools lists what would be served.
func newTools(flags *configFlags, std stdio) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "List the tools that are found",
		Long: "List the tools that are found. If an Orla is running that serves this folder, they are\n" +
			"those that its clients can call now, the many tools of a capsule among them; without\n" +
			"one, or with --socket none, nothing is started and a capsule is one line.",
		Example: "  orla tools\n  orla tools --json | jq '.[].name'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, l, err := flags.load(cmd.Flags())
			if err != nil {
				return err
			}
			client, err := serving(cmd.Context(), cfg, l)
			switch {
			case err != nil:
				return err
			case client != nil:
				return toolsRunning(cmd.Context(), client, asJSON, std)
			}
			found := discover(cfg, l.home)
			printProblems(std.err, found.Problems)
			if asJSON {
				return writeIndented(std.out, listTools(found.Tools))
			}
			return printTools(std.out, listTools(found.Tools))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// listedTool is a tool as `orla tools --json` prints it.
type listedTool struct {
	Name         string          `json:"name"`
	Kind         manifest.Kind   `json:"kind"`
	Version      string          `json:"version,omitempty"`
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description,omitempty"`
	Path         string          `json:"path"`
	Source       string          `json:"source"`
	Interpreter  string          `json:"interpreter,omitempty"`
	Service      string          `json:"service,omitempty"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Timeout      string          `json:"timeout"`
	Isolation    string          `json:"isolation,omitempty"`
}

func listTools(tools []manifest.Tool) []listedTool {
	list := make([]listedTool, 0, len(tools))
	for _, t := range tools {
		list = append(list, listedTool{
			Name: t.Name, Kind: t.Kind, Version: t.Version, Title: t.Title, Description: t.Description,
			Path: t.Path, Source: t.Source, Interpreter: runsWith(t), Service: t.Service(),
			InputSchema: t.InputSchema, OutputSchema: t.OutputSchema, Timeout: t.Run.Timeout.String(), Isolation: isolationText(t),
		})
	}
	return list
}

// runsWith is the program that runs a tool, where the tool is none itself.
func runsWith(t manifest.Tool) string {
	switch {
	case t.Kind == manifest.Cli:
		return filepath.Base(t.Resource.CLI.Command)
	case t.Runtime.Generated && t.Path != "":
		return filepath.Base(t.Path)
	}
	return t.Interpreter.Name
}

// toolsRunning lists what the clients of a running Orla can call.
func toolsRunning(ctx context.Context, client *control.Client, asJSON bool, std stdio) error {
	tools, err := client.Tools(ctx)
	if err != nil {
		return talk(err)
	}
	status, err := client.Status(ctx)
	if err != nil {
		return talk(err)
	}
	tellProblems(std.err, status.Problems)
	list := make([]listedTool, 0, len(tools))
	for _, t := range tools {
		list = append(list, listedTool{
			Name: t.Name, Kind: manifest.Kind(t.Kind), Version: t.Version, Title: t.Title, Description: t.Description,
			Path: t.Path, Source: t.Source, Interpreter: t.Interpreter, Service: t.Service,
			InputSchema: t.InputSchema, OutputSchema: t.OutputSchema, Timeout: t.Timeout, Isolation: t.Isolation,
		})
	}
	if asJSON {
		return writeIndented(std.out, list)
	}
	return printTools(std.out, list)
}

func printTools(w io.Writer, tools []listedTool) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tKIND\tRUNS WITH\tDESCRIPTION")
	for _, t := range tools {
		with := cmp.Or(t.Interpreter, t.Service, "itself")
		if t.Isolation != "" {
			with += ", " + t.Isolation
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", t.Name, t.Kind, printable(with), firstLine(t.Description))
	}
	return table.Flush()
}

// firstLine is as much of a description as a table has room for.
func firstLine(text string) string {
	const most = 72
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	line = printable(strings.ReplaceAll(line, "\t", " "))
	if runes := []rune(line); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return line
}

func printProblems(w io.Writer, problems []manifest.Problem) {
	tellProblems(w, shownProblems(problems))
}

// tellProblems writes what is wrong, one fault a line.
func tellProblems(w io.Writer, problems []control.Problem) {
	for _, p := range problems {
		for _, line := range p.Messages {
			if p.Path != "" && !strings.Contains(line, p.Path) {
				line = p.Path + ": " + line
			}
			fmt.Fprintf(w, "orla: %s: %s\n", p.Severity, printable(line))
		}
	}
}

func writeIndented(w io.Writer, v any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	out := text.Bytes()
	if isTerminal(w) {
		out = escaped(out)
	}
	_, err := w.Write(out)
	return err
}

// newValidate checks tools and says what is wrong with them.
func newValidate(flags *configFlags, std stdio) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "validate [PATH]",
		Short: "Check tools and the configuration, and say what is wrong",
		Long: "Check a folder of tools, a package, a tool.yaml, a file of resources or a single\n" +
			"executable; without a path, the configuration and everything that would be served. The\n" +
			"exit code is 4 when something is at fault; warnings alone leave it 0.",
		Example: "  orla validate\n  orla validate tools/report.py\n  orla validate --json my-package/",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l := flags.loader(cmd.Flags())
			cfg, err := l.load()
			if f, ok := errors.AsType[*failure](notLoaded(err)); ok && err != nil && f.code == exitUsage {
				return f
			}
			found := check(cfg, l.home, args, err)
			return reportValidation(found, asJSON, std)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// check finds what `orla validate` speaks of. notLoaded is what is wrong with
// the configuration, which matters only without a path.
func check(cfg *loaded, home string, path []string, notLoaded error) manifest.Result {
	fault := func(err error) manifest.Result {
		return manifest.Result{Problems: []manifest.Problem{{Path: cfg.file, Severity: manifest.Fault, Err: err}}}
	}
	switch {
	case len(path) == 1:
		if notLoaded != nil {
			cfg = &loaded{Config: defaults()}
		}
		return limited(manifest.Validate(path[0]), cfg)
	case notLoaded != nil:
		return fault(notLoaded)
	}
	found := discover(cfg, home)
	if _, _, err := tokenVerifier(cfg); err != nil {
		found.Problems = append(fault(err).Problems, found.Problems...)
	}
	return found
}

// messages are what a problem says, one fault each.
func messages(p manifest.Problem) []string {
	var list []string
	var flatten func(error)
	flatten = func(err error) {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, one := range joined.Unwrap() {
				flatten(one)
			}
			return
		}
		list = append(list, err.Error())
	}
	flatten(p.Err)
	return list
}

// listedProblem is a problem as `orla validate --json` prints it.
type listedProblem struct {
	Severity manifest.Severity `json:"severity"`
	Path     string            `json:"path"`
	Tool     string            `json:"tool,omitempty"`
	Messages []string          `json:"messages"`
}

func reportValidation(found manifest.Result, asJSON bool, std stdio) error {
	faults := 0
	list := []listedProblem{}
	for _, p := range found.Problems {
		texts := messages(p)
		if p.Severity == manifest.Fault {
			faults += len(texts)
		}
		list = append(list, listedProblem{p.Severity, p.Path, p.Tool, texts})
	}
	if asJSON {
		if err := writeIndented(std.out, map[string]any{"tools": listTools(found.Tools), "problems": list}); err != nil {
			return err
		}
	} else {
		printProblems(std.err, found.Problems)
		inOrder := count(len(found.Tools), "tool")
		if n := len(found.Secrets); n > 0 {
			inOrder += " and " + count(n, "secret")
		}
		if _, err := fmt.Fprintf(std.out, "%s in order, %s\n", inOrder, count(faults, "fault")); err != nil {
			return err
		}
	}
	if faults > 0 {
		return &failure{code: exitInvalid, err: fmt.Errorf("%s; see above", count(faults, "fault"))}
	}
	return nil
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// newConfig shows the configuration and where it came from.
func newConfig(flags *configFlags, std stdio) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "config",
		Short:   "Print the configuration and where each value came from",
		Long:    "Print the configuration as it is in force: flags over environment (ORLA_PORT, …)\nover file (--config, ./orla.yaml, ~/.orla/config.yaml) over defaults.",
		Example: "  orla config\n  ORLA_PORT=9000 orla config --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := flags.load(cmd.Flags())
			if err != nil {
				return err
			}
			if asJSON {
				return writeIndented(std.out, configMap(cfg))
			}
			table := tabwriter.NewWriter(std.out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(table, "KEY\tVALUE\tFROM")
			for _, key := range keys() {
				fmt.Fprintf(table, "%s\t%s\t%s\n", key, shown(value(&cfg.Config, key)), cfg.originOf(key).text)
			}
			return table.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func configMap(cfg *loaded) map[string]any {
	type entry struct {
		Value any    `json:"value"`
		From  string `json:"from"`
	}
	m := map[string]any{}
	for _, key := range keys() {
		m[key] = entry{value(&cfg.Config, key).Interface(), cfg.originOf(key).text}
	}
	return m
}

// shown is a value as people read it.
func shown(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case fmt.Stringer:
		return x.String()
	case []string:
		return strings.Join(x, ",")
	case AuthConfig:
		var names []string
		for _, t := range x.Tokens {
			names = append(names, t.Name)
		}
		return strings.Join(names, ",")
	case TracingConfig:
		return x.Endpoint
	}
	return fmt.Sprint(v.Interface())
}

// newSchema prints the JSON Schemas that editors check files with.
func newSchema(std stdio) *cobra.Command {
	return &cobra.Command{
		Use:   "schema [tool.yaml|resource|contract|orla.yaml|orla-tool.json]",
		Short: "Print the JSON Schemas of files, and of what services are told",
		Long: "Print a JSON Schema for your editor: of tool.yaml, of a resource (Tool, McpServer and\n" +
			"Secret; one document of its file), of orla.yaml and of orla-tool.json; and the two of the\n" +
			"tool contract v1, which services and Orla speak. Without a name, all of them.",
		Example:   "  orla schema tool.yaml > tool.schema.json\n  orla schema resource > resource.schema.json",
		ValidArgs: []string{"tool.yaml", "resource", "contract", "orla.yaml", "orla-tool.json"},
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		RunE: func(_ *cobra.Command, args []string) error {
			configSchema, err := configSchema()
			if err != nil {
				return err
			}
			schemas := map[string]json.RawMessage{
				"tool.yaml":      manifest.SchemaJSON(),
				"orla.yaml":      configSchema,
				"orla-tool.json": manifest.CapsuleSchemaJSON(),
				"resource":       manifest.ResourceSchemaJSON(),
				"contract":       fmt.Appendf(nil, `{"request":%s,"response":%s}`, contract.RequestSchema(), contract.ResponseSchema()),
			}
			if len(args) == 1 {
				return writeIndented(std.out, schemas[args[0]])
			}
			return writeIndented(std.out, schemas)
		},
	}
}
