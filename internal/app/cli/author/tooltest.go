package author

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/usage"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/service/contract"
	"github.com/orla-project/orla/internal/wasm"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/discover"
)

// moduleFlags are the flags of orla wasm test.
type moduleFlags struct {
	fixtures string
	tool     string
	asJSON   bool

	// In place of what the resource says, where they are given.
	entrypoint string
	fuel       int64
	maxMemory  yamldoc.Size
	wasi       bool
}

// newToolTest runs a module against fixtures (SPEC-TOOLS 9.2).
func newToolTest(flags *config.Flags, std terminal.Streams) *cobra.Command {
	var f moduleFlags
	cmd := &cobra.Command{
		Use:   "test MODULE",
		Short: "Run a WebAssembly module against fixtures",
		Long: `Run a WebAssembly module once for each fixture, as Orla would, and check that it
keeps the contract, that its answer is as expected, and that it stays within its
budgets of fuel and memory. The limits are those of the resource in the module's
folder that names it; flags go before it, and without one the defaults hold. The
exit code is 1 when a fixture fails.

A fixture is a file NAME.json:

  {
    "input":  {"name": "Ada"},                      arguments of the call
    "auth":   {"headers": {"Authorization": "…"}},  what auth would give
    "expect": {
      "status": "ok",                               ok, error or denied
      "output": "Hello, Ada!",                      equal as JSON
      "output_contains": "Ada",                     or only a part of it
      "error": {"code": "…", "message_contains": "…", "retryable": false}
    },
    "budget": {"fuel": 50000, "memory_bytes": 16777216}
  }

All of it may be left out: an empty object calls the module without arguments, and
expects the status ok.`,
		Example: "  orla wasm test greet.wasm\n  orla wasm test greet.wasm --fixtures more --json\n  orla wasm test build/greet.wasm --wasi --fuel 50000 --max-memory 16MiB",
		Args:    usage.One("the path of a module"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, _, err := flags.Load(cmd.Flags())
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return f.run(ctx, cmd, cfg, args[0], std)
		},
		ValidArgsFunction: cobra.FixedCompletions([]string{"wasm"}, cobra.ShellCompDirectiveFilterFileExt),
	}
	cmd.Flags().StringVar(&f.fixtures, "fixtures", "", "`FOLDER` of fixtures (default fixtures, next to the module)")
	cmd.Flags().StringVar(&f.tool, "tool", "", "`NAME` of the tool, where several have the module")
	cmd.Flags().StringVar(&f.entrypoint, "entrypoint", "", "`FUNCTION` to call")
	cmd.Flags().Int64Var(&f.fuel, "fuel", 0, "`UNITS` of work that a call may take")
	cmd.Flags().TextVar(&f.maxMemory, "max-memory", yamldoc.Size(0), "`SIZE` of the memory that a call may take")
	cmd.Flags().BoolVar(&f.wasi, "wasi", false, "give the module stdin, stdout and stderr, by WASI")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	_ = cmd.MarkFlagDirname("fixtures") // the flag is there
	return cmd
}

// run tests a module. The error says that something failed, which was printed.
func (f *moduleFlags) run(ctx context.Context, cmd *cobra.Command, cfg *config.Loaded, module string, std terminal.Streams) error {
	dir := cmp.Or(f.fixtures, filepath.Join(filepath.Dir(module), "fixtures"))
	files, err := findFixtures(dir)
	if err != nil {
		return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("--fixtures: %w", err), Hint: cmd.CommandPath() + " --help shows what a fixture is"}
	}
	data, err := config.ReadRegular(module, wasm.MaxModule+1)
	if err != nil {
		return err
	}
	tool, err := f.toolOf(module, std)
	if err != nil {
		return err
	}
	if err := f.limit(cmd, &tool, cfg); err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	tested, err := newTested(ctx, cfg, tool, data)
	if err != nil {
		return fmt.Errorf("%s: %s", module, fault.From(err).Reason)
	}
	defer tested.runtime.Close()
	w := tool.Resource.WASM
	report := testReport{Module: module, Tool: tool.Name, Limits: testLimits{w.Fuel, w.MaxMemory, tool.Run.Timeout.String(), w.WASI, w.Entrypoint}}
	for _, file := range files {
		one := tested.fixture(ctx, file)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		report.Fixtures = append(report.Fixtures, one)
		if !one.Passed {
			report.Failed++
		}
		if !f.asJSON {
			if err := one.print(std.Out); err != nil {
				return err
			}
		}
	}
	return report.finish(f.asJSON, std)
}

// toolOf returns the tool whose module this is, as a resource in its folder
// declares it, or else one that declares nothing.
func (f *moduleFlags) toolOf(module string, std terminal.Streams) (manifest.Tool, error) {
	real, err := filepath.EvalSymlinks(module)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return manifest.Tool{}, err
	}
	found := discover.Validate(filepath.Dir(module))
	var names []string
	var tools []manifest.Tool
	for _, t := range found.Tools {
		if t.Kind == manifest.Wasm && t.Resource.WASM.Module == real && (f.tool == "" || f.tool == t.Name) {
			tools, names = append(tools, t), append(names, t.Name)
		}
	}
	switch {
	case len(tools) == 1:
		return tools[0], nil
	case len(tools) > 1:
		return manifest.Tool{}, &exit.Error{Code: exit.Usage, Err: fmt.Errorf("%s is the module of %s", module, strings.Join(names, " and ")), Hint: "choose one with --tool NAME; its limits apply"}
	case f.tool != "":
		return manifest.Tool{}, &exit.Error{Code: exit.Usage, Err: fmt.Errorf("--tool: no tool %q in the module's folder has it", f.tool)}
	}
	if faults := slices.DeleteFunc(found.Problems, func(p manifest.Problem) bool { return p.Severity != manifest.Fault }); len(faults) > 0 {
		discovery.PrintProblems(std.Err, faults)
		return manifest.Tool{}, &exit.Error{Code: exit.Invalid, Err: errors.New("the limits are not known; see above")}
	}
	name := strings.TrimSuffix(filepath.Base(module), filepath.Ext(module))
	fmt.Fprintf(std.Err, "orla: no resource in %s names %s: the default limits hold\n", filepath.Dir(module), filepath.Base(module))
	return manifest.Tool{
		Name: name, Kind: manifest.Wasm, Run: manifest.Run{Timeout: 30 * time.Second},
		Resource: &manifest.Resource{
			Namespace: "default", Risk: manifest.RiskLow,
			WASM: &manifest.WASM{Module: real, Entrypoint: wasm.DefaultEntrypoint, MaxMemory: wasm.DefaultMaxMemory, Fuel: wasm.DefaultFuel},
		},
	}, nil
}

// limit puts the limits that flags give in the place of the resource's.
func (f *moduleFlags) limit(cmd *cobra.Command, t *manifest.Tool, cfg *config.Loaded) error {
	const page = 64 << 10
	resource, module := *t.Resource, *t.Resource.WASM
	resource.WASM, t.Resource = &module, &resource
	given := func(name string) bool { return cmd.Flags().Changed(name) }
	if given("fuel") {
		module.Fuel = f.fuel
	}
	if given("max-memory") {
		module.MaxMemory = int64(f.maxMemory)
	}
	switch {
	case module.Fuel < 1:
		return errors.New("--fuel: must be above 0")
	case module.MaxMemory < page:
		return errors.New("--max-memory: must be 64KiB, which is one page, or more")
	}
	if given("entrypoint") {
		module.Entrypoint = f.entrypoint
	}
	if given("wasi") {
		module.WASI = f.wasi
	}
	if given("timeout") || t.Run.Timeout == 0 {
		t.Run.Timeout = time.Duration(cfg.Timeout)
	}
	t.Run.MaxOutput = cmp.Or(t.Run.MaxOutput, int64(cfg.MaxOutput))
	return nil
}

// testedModule is a module under test.
type testedModule struct {
	tool     manifest.Tool
	runtime  *wasm.Runtime
	module   *wasm.Module
	contract *contract.Tool
}

func newTested(ctx context.Context, cfg *config.Loaded, t manifest.Tool, data []byte) (*testedModule, error) {
	spoken, err := contract.For(t)
	if err != nil {
		return nil, err
	}
	runtime := wasm.NewRuntime(wasm.Options{CacheDir: config.StateDir(cfg, "compiled"), Log: slog.New(slog.DiscardHandler)})
	w := t.Resource.WASM
	module, err := runtime.Compile(ctx, data, wasm.Limits{MaxMemory: w.MaxMemory, Fuel: w.Fuel, WASI: w.WASI, Entrypoint: w.Entrypoint})
	if err != nil {
		runtime.Close()
		return nil, err
	}
	return &testedModule{tool: t, runtime: runtime, module: module, contract: spoken}, nil
}

// testLimits are what bounds a call, as --json has it.
type testLimits struct {
	Fuel       int64  `json:"fuel"`
	Memory     int64  `json:"memory_bytes"`
	Timeout    string `json:"timeout"`
	WASI       bool   `json:"wasi"`
	Entrypoint string `json:"entrypoint"`
}

// tried is a fixture, and what came of it.
type tried struct {
	Name         string   `json:"name"`
	Passed       bool     `json:"passed"`
	Problems     []string `json:"problems,omitempty"`
	Status       string   `json:"status,omitempty"` // that the module gave; "" where it gave none
	Fuel         int64    `json:"fuel_used"`
	FuelBudget   int64    `json:"fuel_budget"`
	Memory       int64    `json:"memory_peak_bytes"`
	MemoryBudget int64    `json:"memory_budget_bytes"`
	Took         float64  `json:"took_ms"`
	Stderr       string   `json:"stderr,omitempty"`
}

// fixture runs one.
func (m *testedModule) fixture(ctx context.Context, file string) tried {
	f, err := readFixture(file)
	v := tried{Name: f.name}
	if err != nil {
		v.Problems = []string{fmt.Sprintf("it is not a fixture: %v", err)}
		return v
	}
	w := m.tool.Resource.WASM
	v.FuelBudget, v.MemoryBudget = w.Fuel, w.MaxMemory
	if f.Budget.Fuel > 0 {
		v.FuelBudget = min(f.Budget.Fuel, v.FuelBudget)
	}
	if f.Budget.Memory > 0 {
		v.MemoryBudget = min(f.Budget.Memory, v.MemoryBudget)
	}
	m.call(ctx, f, &v)
	if v.Fuel > v.FuelBudget {
		v.Problems = append(v.Problems, fmt.Sprintf("fuel: used %d, and the budget is %d", v.Fuel, v.FuelBudget))
	}
	if v.Memory > v.MemoryBudget {
		v.Problems = append(v.Problems, fmt.Sprintf("memory: used %d bytes, and the budget is %d", v.Memory, v.MemoryBudget))
	}
	v.Passed = len(v.Problems) == 0
	return v
}

// call calls the module and judges its answer.
func (m *testedModule) call(ctx context.Context, f fixture, v *tried) {
	timeout := m.tool.Run.Timeout
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fault.New(fault.Timeout, "no answer within %s", timeout))
	defer cancel()
	x := m.contract.Exchange(callid.With(ctx, callid.New()), peer.Call{Tool: m.tool.Name, Args: f.Input, Caller: "test", Attempt: 1}, noCredentials{})
	r, w := m.tool.Resource, m.tool.Resource.WASM
	request := x.Module(contract.ModuleRequest{
		Capabilities: r.Capabilities,
		RiskLevel:    string(r.Risk),
		Runtime: contract.ModuleRuntime{
			IsolationMode: string(manifest.IsolationWASM), Timeout: timeout.String(), MaxMemoryBytes: w.MaxMemory, Fuel: w.Fuel,
		},
		Auth: contract.ModuleAuth{Headers: f.Auth.Headers},
	})
	began := time.Now()
	outcome, err := m.module.Run(ctx, request.JSON(), m.tool.Run.MaxOutput)
	v.Took = float64(time.Since(began).Microseconds()) / 1000
	v.Fuel, v.Memory, v.Stderr = outcome.FuelUsed, outcome.MemoryPeak, string(outcome.Stderr)
	if err != nil {
		v.Problems = append(v.Problems, fault.From(err).Reason)
		return
	}
	var said response
	_, err = x.ModuleAnswer(outcome.Stdout)
	failed := fault.From(err)
	if broken := json.Unmarshal(outcome.Stdout, &said); broken != nil || err != nil && !said.means(failed) {
		v.Problems = append(v.Problems, failed.Reason)
		return
	}
	v.Status = said.Status
	v.Problems = append(v.Problems, f.Expect.judge(said, failed)...)
}

// noCredentials are those of a call without.
type noCredentials struct{}

// Contract implements contract.Credentials.
func (noCredentials) Contract() (typ, token string) { return "", "" }

// Redact implements contract.Credentials.
func (noCredentials) Redact(text string) string { return text }

// RedactBody implements contract.Credentials.
func (noCredentials) RedactBody(body []byte) []byte { return body }

// print writes it for people: a line, and what is wrong below it.
func (v tried) print(w io.Writer) error {
	word := "ok  "
	if !v.Passed {
		word = "FAIL"
	}
	line := fmt.Sprintf("%s  %s", word, terminal.Printable(v.Name))
	if v.FuelBudget > 0 {
		line += fmt.Sprintf("  (fuel %d of %d, memory %s of %s)", v.Fuel, v.FuelBudget, terminal.ShortSize(v.Memory), terminal.ShortSize(v.MemoryBudget))
	}
	if _, err := fmt.Fprintln(w, line); err != nil {
		return err
	}
	said := v.Problems
	if text := strings.TrimSpace(v.Stderr); !v.Passed && text != "" && !slices.ContainsFunc(said, func(p string) bool { return strings.Contains(p, text) }) {
		said = append(slices.Clone(said), "stderr: "+text)
	}
	for _, text := range said {
		for line := range strings.Lines(text) {
			if _, err := fmt.Fprintf(w, "      %s\n", terminal.Printable(strings.TrimRight(line, "\n"))); err != nil {
				return err
			}
		}
	}
	return nil
}

// testReport is all that came of a test, as --json prints it.
type testReport struct {
	Module   string     `json:"module"`
	Tool     string     `json:"tool"`
	Limits   testLimits `json:"limits"`
	Fixtures []tried    `json:"fixtures"`
	Failed   int        `json:"failed"`
}

// finish prints the end of the report, and fails as it says.
func (r *testReport) finish(asJSON bool, std terminal.Streams) error {
	var err error
	if asJSON {
		err = terminal.WriteJSON(std.Out, r)
	} else if r.Failed == 0 {
		_, err = fmt.Fprintf(std.Out, "%s passed\n", terminal.Count(len(r.Fixtures), "fixture"))
	}
	if err == nil && r.Failed > 0 {
		return fmt.Errorf("%d of %s failed", r.Failed, terminal.Count(len(r.Fixtures), "fixture"))
	}
	return err
}
