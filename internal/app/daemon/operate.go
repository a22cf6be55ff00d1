package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/app/access"
	"github.com/orla-project/orla/internal/app/arguments"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/control/unixsocket"
	"github.com/orla-project/orla/internal/app/decisions"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/recorded"
	"github.com/orla-project/orla/internal/app/version"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/observe/history"
	"github.com/orla-project/orla/internal/observe/logging"
	"github.com/orla-project/orla/internal/observe/telemetry"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/supervisor"
)

// operations is the control.Backend of a running Orla.
type operations struct {
	*server
	*recorded.Records
	*decisions.Decisions
}

func (s *server) operations() operations {
	return operations{s, &recorded.Records{
		Telemetry: s.telemetry, Manifests: s.Supervisor.Manifests, Config: s.current, Home: s.from.Home, AuditErr: s.Audit.Err, Unknown: operations{server: s}.unknown,
	}, s.decisions}
}

var _ control.Backend = operations{}

// Status implements control.Backend.
func (o operations) Status() control.Status {
	cfg := o.current()
	status := control.Status{
		Version:    version.Version(),
		Pid:        os.Getpid(),
		Started:    byClock(o.began, time.Now()),
		URL:        o.url(),
		ToolsDir:   config.Absolute(cfg.Folder()),
		ConfigFile: config.Absolute(cfg.File),
		StateDir:   cfg.StateDir,
		Log:        logDestination(cfg),
		Socket:     o.control.Socket(),
		InFlight:   o.Supervisor.InFlight(),
		Tools:      o.toolStatuses(o.Supervisor.Manifests()),
		Problems:   discovery.Problems(o.problems()),
		Waiting:    o.Waiting(),
		Arguments:  o.arguments.Tools(),
		Denying:    o.Governance.Denies(),
		Callers:    o.callerStatuses(cfg),
	}
	status.Upgrades, status.NotUpgraded = o.upgrades.Last()
	if o.http != nil {
		n := o.http.Sessions()
		status.Sessions = &n
	}
	return status
}

// logDestination says where the log goes, for people.
func logDestination(cfg *config.Loaded) string {
	if cfg.LogFile == "" && cfg.LogFormat == logging.Journal {
		return logging.Journal
	}
	return cmp.Or(config.Absolute(cfg.LogFile), "stderr")
}

// url returns the address at which clients reach this Orla.
func (s *server) url() string {
	if s.web == nil {
		return "stdio"
	}
	return s.web.URL()
}

func (o operations) toolStatuses(served []supervisor.Served) []control.ToolStatus {
	all, lives := o.Supervisor.Lives(), map[string]peer.Life{}
	for _, one := range served {
		if life, ok := all[one.Tool.Name]; ok {
			lives[one.Tool.Name] = life
		}
	}
	usage := o.usageOf(lives)
	list := make([]control.ToolStatus, 0, len(served))
	for _, one := range served {
		t := control.ToolStatus{
			Name: one.Tool.Name, Kind: string(one.Tool.Kind), Version: one.Tool.Version, Source: config.Absolute(one.Tool.Source),
			Isolation: discovery.Isolation(one.Tool), Limits: o.LastProcesses.Limits(one.Tool),
		}
		t.Login, t.NeedLogin = o.Services.Login(one.Tool)
		if life, ok := lives[one.Tool.Name]; ok {
			live(&t, life, usage[one.Tool.Name])
		}
		o.count(&t, one.Listed)
		list = append(list, t)
	}
	return list
}

// live fills in what only a capsule has.
func live(t *control.ToolStatus, life peer.Life, usage telemetry.Usage) {
	now := time.Now()
	t.State, t.Since, t.Reason, t.Held = life.State, byClock(life.Since, now), life.Reason, life.Held
	t.Pid, t.Place, t.Started, t.LastExit, t.Next = life.Pid, life.Place, byClock(life.Started, now), life.LastExit, byClock(life.Next, now)
	t.Restarts, t.Failures = life.Restarts, life.Failures
	t.InFlight, t.Waiting = life.InFlight, life.Waiting
	t.Limits = cmp.Or(life.Limits, t.Limits)
	t.Memory, t.CPU, t.Processes = usage.Memory, usage.CPU.Seconds(), usage.Processes
}

// byClock returns a moment of this process as the clock of the machine would have shown it if it had always been as it is now: it
// may have been set back since. A clock that went ahead may be that of a machine that has slept, whose moments are right.
func byClock(at, now time.Time) time.Time {
	if back := now.Round(0).Sub(at.Round(0)) - now.Sub(at); back <= -time.Second && !at.IsZero() {
		return at.Add(back.Round(time.Second)) // else each look would differ a little from the last one
	}
	return at
}

// count fills in the numbers of calls of a manifest's tools.
func (o operations) count(t *control.ToolStatus, listed []*mcp.Tool) {
	seen := o.telemetry.Latencies(peer.NamesOf(listed)...)
	t.Calls, t.Errors = seen.Calls, seen.Errors
	t.P50, t.P99 = milliseconds(seen.P50), milliseconds(seen.P99)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// shownStderr is how many lines of stderr are shown for one tool.
const shownStderr = 10

// Tool implements control.Backend.
func (o operations) Tool(name string) (control.ToolStatus, error) {
	served := o.Supervisor.Manifests()
	i := slices.IndexFunc(served, func(one supervisor.Served) bool { return one.Tool.Name == name })
	if i < 0 {
		return control.ToolStatus{}, o.unknown(name)
	}
	t := o.toolStatuses(served[i : i+1])[0]
	for _, line := range o.log.History().Last(history.Query{Tools: []string{name}, Events: []string{"stderr"}, Last: shownStderr}) {
		var said struct{ Text string }
		if err := json.Unmarshal(line.JSON, &said); err == nil {
			t.Stderr = append(t.Stderr, said.Text)
		}
	}
	for _, p := range o.problems() {
		if p.Tool == name {
			t.Problems = append(t.Problems, discovery.Messages(p)...)
		}
	}
	return t, nil
}

// unknown returns the error for a name that no manifest has.
func (o operations) unknown(name string) error {
	if _, err := o.Supervisor.Operate(name); errors.Is(err, supervisor.ErrUnknownTool) {
		return err
	}
	return fault.New(fault.UnsupportedTool, "there is no tool %q", name) // it has just gone
}

// Tools implements control.Backend.
func (o operations) Tools(ctx context.Context) []control.ListedTool {
	o.Supervisor.Settle(ctx)
	list := []control.ListedTool{}
	for _, one := range o.Supervisor.Manifests() {
		t := one.Tool
		for _, offered := range one.Listed {
			list = append(list, control.ListedTool{
				Name: offered.Name, Of: t.Name, Kind: string(t.Kind), Version: t.Version, Title: offered.Title, Description: offered.Description,
				Path: t.Path, Source: t.Source, Interpreter: discovery.Interpreter(t), Service: t.Service(),
				InputSchema: asJSON(offered.InputSchema), OutputSchema: asJSON(offered.OutputSchema), Timeout: t.Run.Timeout.String(),
				Isolation: discovery.Isolation(t),
			})
		}
	}
	slices.SortFunc(list, func(a, b control.ListedTool) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// asJSON is a schema as JSON; nil if there is none.
func asJSON(schema any) json.RawMessage {
	if schema == nil {
		return nil
	}
	raw, err := json.Marshal(schema)
	if err != nil { // it has been compiled, or passed on as JSON
		return nil
	}
	return raw
}

// listed reports whether clients can call a tool of that name.
func (o operations) listed(tool string) bool {
	return slices.ContainsFunc(o.Supervisor.Catalog().Tools, func(t *mcp.Tool) bool { return t.Name == tool })
}

// newArguments returns what keeps the arguments of calls.
func (s *server) newArguments() *arguments.Keeper {
	return arguments.New(arguments.Options{
		Listed: operations{server: s}.listed, Audit: s.Audit, Log: s.log.Logger,
		Secrets: func() ([]secret.Value, error) {
			if accepted := s.tokens.Load(); accepted != nil {
				if err := access.Unchanged(s.current(), *accepted); err != nil {
					return nil, err
				}
			}
			return arguments.Secrets(s.current(), s.Supervisor.Manifests(), s.Services.Secrets())
		},
	})
}

// Call implements control.Backend.
func (o operations) Call(ctx context.Context, by control.Caller, tool string, arguments json.RawMessage, client peer.Client) (json.RawMessage, error) {
	if !o.listed(tool) {
		o.Supervisor.Settle(ctx) // a capsule that is starting may have it
	}
	result, rpcErr := o.bridge.Call(ctx, peer.Call{Tool: tool, Args: arguments, Caller: by.Name, Groups: by.Groups, Client: client})
	switch {
	case rpcErr == nil:
		return result, nil
	case !o.listed(tool):
		return nil, fault.New(fault.UnsupportedTool, "%s", rpcErr.Message)
	}
	return nil, fault.New(fault.ExecutionFailed, "%s", rpcErr.Message)
}

// Operate implements control.Backend.
func (o operations) Operate(ctx context.Context, name string, action control.Action) error {
	operator, err := o.Supervisor.Operate(name)
	if err != nil {
		return err
	}
	switch action {
	case control.Stop:
		return operator.Stop(ctx)
	case control.Start:
		return operator.Start(ctx)
	case control.Restart:
		return operator.Restart(ctx)
	}
	return &control.Error{Code: control.CodeBadRequest, Message: "there is no action " + string(action)}
}

// Reload implements control.Backend. The reloader does it, as for SIGHUP.
func (o operations) Reload(ctx context.Context, by control.Peer, asked control.ReloadRequest) (control.Reload, error) {
	answer := make(chan reloaded, 1) // the reloader does not wait for a client that has left
	request := asking{answer: answer}
	if asked.AcceptNoRules {
		if err := o.Audit.Err(); err != nil {
			return control.Reload{}, unrecorded(err)
		}
		request.noRules = decisions.NameOf(by)
	}
	select {
	case o.asked <- request:
	case <-ctx.Done():
		return control.Reload{}, context.Cause(ctx)
	}
	var done reloaded
	select {
	case done = <-answer:
	case <-ctx.Done():
		return control.Reload{}, context.Cause(ctx)
	}
	if done.err != nil {
		return control.Reload{}, refusedReload(done.err)
	}
	diff := control.Reload{
		Added: append([]string{}, done.Added...), Removed: append([]string{}, done.Removed...), Changed: append([]string{}, done.Changed...),
		Kept: done.Kept, Failed: map[string]string{}, Problems: discovery.Problems(done.problems), Duration: milliseconds(done.took),
	}
	for name, err := range done.Failed {
		diff.Failed[name] = err.Error()
	}
	return diff, nil
}

// unrecorded is the error of an acceptance that would have no line in the audit log.
func unrecorded(err error) error {
	return &control.Error{Code: control.CodeRefused, Message: "the audit log cannot be written, and nothing is accepted without a line in it: " + err.Error()}
}

// refusedReload returns the error of a reload that changed nothing.
func refusedReload(err error) error {
	if _, ok := errors.AsType[faultyConfig](err); ok {
		return &control.Error{Code: control.CodeConfiguration, Message: err.Error(), Hint: "nothing was changed"}
	}
	e := &control.Error{Code: control.CodeReload, Message: err.Error(), Hint: "nothing was changed"}
	if f, ok := errors.AsType[*exit.Error](err); ok && f.Hint != "" {
		e.Hint += "; " + f.Hint
	}
	return e
}

// point moves the control socket to where cfg says, as soon as possible.
func (s *server) point(cfg *config.Loaded) (tried <-chan struct{}) {
	return s.control.Point(cfg.ControlSocket(s.from), unixsocket.Owner{Pid: os.Getpid(), ToolsDir: config.Absolute(cfg.Folder()), URL: s.url(), Started: s.began, Dir: config.Absolute(".")})
}

// awaitControl waits until the control socket exists, or could not be made, before the log says that
// Orla serves.
func (s *server) awaitControl(ctx context.Context, cfg *config.Loaded) {
	select {
	case <-s.point(cfg):
	case <-ctx.Done():
	}
}
