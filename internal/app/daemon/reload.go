package daemon

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/wiring"
	"github.com/orla-project/orla/internal/call/approvals/announce"
	"github.com/orla-project/orla/internal/cluster/resources"
	"github.com/orla-project/orla/internal/observe/audit"
	"github.com/orla-project/orla/internal/observe/logging"
	"github.com/orla-project/orla/internal/observe/telemetry"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// String names the server's own service, the reloader, in logs.
func (s *server) String() string { return "reloader" }

// Serve reloads whenever it is asked to: by SIGHUP the configuration and the
// folders, by a change in the folders these alone (SPEC H2, H3).
func (s *server) Serve(ctx context.Context) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watching.Go(func() { s.folders.Run(ctx) })
	for {
		select {
		case <-s.hup:
			if s.upgrades.Program.Replaced() {
				s.notifier.Reloading()
				if _, err := s.prepareUpgrade(ctx, ""); err == nil {
					continue // the new program reads everything
				}
			}
			_, _ = s.reload(ctx, "SIGHUP", "") // the result is in the log
		case request := <-s.asked:
			done, err := s.reload(ctx, requested, request.noRules)
			request.answer <- reloaded{done, err}
		case <-s.prepared:
			s.apply(ctx, s.current(), "dependencies are installed")
		case change := <-s.folders.Changed():
			if cfg := s.current(); cfg.AutoReload {
				s.apply(ctx, cfg, change.Path)
			}
		case <-s.Services.Cluster.Changed():
			if cfg := s.current(); cfg.AutoReload {
				s.apply(ctx, cfg, "resources of the cluster")
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// current returns the configuration in force.
func (f *inForce) current() *config.Loaded {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cfg
}

// problems returns what is wrong with the folders of tools now, and what tools offer that is not
// served.
func (s *server) problems() []manifest.Problem {
	offered := slices.Concat(s.Supervisor.Problems(), s.Governance.Problems(), s.Pins.Problems(), wiring.AuditProblems(s.Audit))
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Concat(s.wrong, offered)
}

func (f *inForce) adopt(cfg *config.Loaded, wrong []manifest.Problem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cfg, f.wrong = cfg, wrong
}

// requested is the reason of a reload over the control socket.
const requested = "orla reload"

// asking asks for a reload.
type asking struct {
	answer  chan<- reloaded
	noRules string // who says that rules that are gone are to be gone; "" for nobody
}

// reloaded is the result of a reload.
type reloaded struct {
	applied
	err error // why nothing was changed
}

// applied is what an apply changed, and what is wrong with the folders.
type applied struct {
	supervisor.Diff
	problems []manifest.Problem
	took     time.Duration
}

// reload reads the configuration again and applies what differs. A configuration with faults changes
// nothing. The error is also logged, since not every reload has somebody to return it to. noRules is who says that rules
// that are gone are to be gone; "" for nobody.
func (s *server) reload(ctx context.Context, reason, noRules string) (applied, error) {
	s.notifier.Reloading()
	defer s.notifier.Ready(s.readiness().text) // whether it worked or not: Orla serves
	if err := s.Audit.Reopen(); err != nil {   // also if the configuration has errors: what was moved may soon be compressed
		s.log.Error("the audit log stays in the file that was moved", "path", s.current().AuditPath(), "err", err)
	}
	cfg, err := s.from.Load()
	if err == nil && cfg.ToolsDir != s.current().ToolsDir { // the one that is served may be gone for a while
		err = cfg.CheckToolsDir()
	}
	if err != nil {
		s.log.Error("reload: the configuration has errors; keeping the previous one", "err", err)
		s.telemetry.Reloaded(telemetry.Refused)
		s.govern(ctx)
		return applied{}, faultyConfig{err}
	}
	traces, err := s.tracing(cfg)
	var announced *announce.Settings
	if err == nil {
		announced, err = wiring.Webhook(cfg)
	}
	var logTo *os.File
	if err == nil {
		if logTo, err = logging.OpenFile(cfg.LogFile); err != nil {
			err = cfg.At("log_file", err)
		}
	}
	if err == nil {
		if wiring.ManyCallers(cfg) {
			s.Tenants.Store(true) // before the second of them can call
		}
		if err = s.move(ctx, cfg); err != nil && logTo != nil {
			_ = logTo.Close() // unused
		}
	}
	if err != nil {
		s.log.Error("reload failed; keeping the previous configuration", "err", err)
		s.telemetry.Reloaded(telemetry.Refused)
		s.govern(ctx)
		return applied{}, err
	}
	s.log.Configure(cfg.LogLevel, cfg.LogFormat, logTo)
	s.trace(ctx, traces)
	old := s.current()
	if cfg.Stdio != old.Stdio {
		s.log.Warn("reload: stdio takes effect at the next start")
	}
	if cfg.AuditPath() != old.AuditPath() {
		s.log.Warn("reload: audit_log takes effect at the next start")
	}
	s.Audit.SetFull(cfg.AuditArguments == config.AuditFull)
	if cfg.MaxInline != old.MaxInline {
		s.bridge.SetMaxInline(int64(cfg.MaxInline))
	}
	s.Tenants.Store(wiring.ManyCallers(cfg))
	s.Resize(cfg)
	s.ConfigureApprovals(cfg)
	s.Approving.Announcer.Use(announced)
	s.Services.Configure(cfg)
	s.Modules.Configure(cfg)
	s.folders.Point(ctx, cfg, s.from.Home)
	s.acceptNoRules(noRules)
	done := s.apply(ctx, cfg, reason)
	s.point(cfg)
	return done, nil
}

// acceptNoRules lets the next apply take it as meant that rules are gone, if somebody says so.
func (s *server) acceptNoRules(by string) {
	if by == "" {
		return
	}
	s.log.Warn("governance documents that are gone are to be gone", "by", by)
	s.Governance.AcceptNoRules(func(at string, why error) {
		reason, _, _ := strings.Cut(why.Error(), ";") // what follows is what to do
		s.Audit.RecordNoRules(&audit.NoRules{By: by, At: at, Why: reason})
	})
}

// govern puts governance documents into force when a reload changes nothing else: they hold,
// whatever else is wrong (SPEC-TOOLS 8.3).
func (s *server) govern(ctx context.Context) {
	cfg := s.current()
	found := s.search(ctx, cfg)
	if ctx.Err() != nil {
		return
	}
	s.Governance.Set(&found, cfg)
	s.Governance.Listed(s.Supervisor.Catalog())
	if !slices.ContainsFunc(found.Problems, func(p manifest.Problem) bool { return p.Denies }) {
		return
	}
	s.reportProblems(found.Problems, nil)
	s.adopt(cfg, found.Problems)
}

// search finds the tools, until ctx ends. It reads only files that have changed since the last search.
func (s *server) search(ctx context.Context, cfg *config.Loaded) manifest.Result {
	return discovery.Search{Stopped: ctx.Err, Seen: &s.seen, Cluster: s.Services.Cluster.Snapshot()}.Find(cfg, s.from.Home)
}

// facts are what the status of resources of a cluster is made of.
func (s *server) facts() resources.Facts {
	return resources.Facts{Problems: s.problems(), Served: s.Supervisor.Sources(), Lives: s.Supervisor.Lives()}
}

// faultyConfig is the error of a configuration with faults.
type faultyConfig struct{ error }

// move applies cfg to the HTTP front. On an error the front stays as it is.
func (s *server) move(ctx context.Context, cfg *config.Loaded) error {
	if s.http == nil || cfg.Stdio {
		return nil
	}
	settings, issued, err := s.httpSettings(cfg)
	if err != nil {
		return err
	}
	if err := refuseExposed(cfg, s.given); err != nil {
		return err
	}
	if err := s.web.Listen(ctx, cfg.Address()); err != nil {
		return err
	}
	s.http.Configure(settings)
	s.tokens.Store(&settings.Callers)
	s.openConsole(cfg, &settings)
	s.issuer.Use(issued)
	if s.current().Auth.Required() && !cfg.Auth.Required() {
		s.log.Warn("calls need no token any more", "url", s.web.URL())
	}
	if cfg.Address() != s.current().Address() {
		s.page.EndSessions() // their pages ask on the port that anybody can have now
		s.log.Info("listening elsewhere", "url", s.web.URL())
	}
	return nil
}

// apply finds the tools and serves them. A problem is logged only when it is new. If ctx ends before
// the search has, nothing is changed.
func (s *server) apply(ctx context.Context, cfg *config.Loaded, reason string) applied {
	began := time.Now()
	s.reportWeaker(cfg)
	found := s.search(ctx, cfg)
	if ctx.Err() != nil {
		return applied{}
	}
	denied := s.Governance.Denies()
	whole := found // with the rules that are gone now, until the tools are gone that they may forbid
	whole.Rules = found.Rules.With(s.Governance.Documents())
	s.Governance.Set(&whole, cfg) // before a tool is served that a document may forbid
	found.Problems = whole.Problems
	kept := s.keepLiving(&found, cfg)
	s.postpone(&found, cfg)
	s.Services.Declare(found) // before the tools that may use them
	s.Supervisor.KnowOthers(nil, found.Faulty())
	diff := s.Supervisor.Apply(found.Tools)
	s.Governance.Set(&found, cfg)
	s.Governance.Listed(s.Supervisor.Catalog())
	for _, name := range slices.Sorted(maps.Keys(diff.Failed)) {
		found.Problems = append(found.Problems, manifest.Problem{Tool: name, Severity: manifest.Fault, Err: diff.Failed[name]})
	}
	s.reportProblems(found.Problems, kept)
	s.adopt(cfg, found.Problems)
	s.Services.Cluster.Applied()
	if denied && !s.Governance.Denies() {
		s.log.Info("calls are not denied any more")
	}
	done := applied{diff, found.Problems, time.Since(began)}
	s.Packages.Keep(found.Tools)
	s.arguments.Renew() // there may be other secrets
	if diff.Empty() && !slices.Contains([]string{"start", "SIGHUP", requested}, reason) {
		return done
	}
	s.Lists.Prune(found.Tools)
	s.Pins.Prune(found.Tools)
	s.log.Info("reload", "reason", reason,
		"added", len(diff.Added), "removed", len(diff.Removed), "changed", len(diff.Changed), "kept", diff.Kept,
		"failed", len(diff.Failed), "names", names(diff.Added, diff.Changed, diff.Removed),
		"duration_ms", done.took.Milliseconds())
	if reason != "start" {
		s.telemetry.Reloaded(telemetry.Applied)
	}
	return done
}

// keepLiving keeps a running capsule whose manifest has become faulty, until the manifest is fixed or
// removed: a file that is half saved must not stop a capsule. It returns where the faulty manifests
// are.
func (s *server) keepLiving(found *manifest.Result, cfg *config.Loaded) (kept map[spot]bool) {
	faulty := map[spot]bool{}
	var unread []string // folders that could not be read: what is in them may be there still
	for _, p := range found.Problems {
		if _, asksTooMuch := errors.AsType[discovery.BeyondTerms](p.Err); asksTooMuch {
			continue // the operator does not allow it any more
		}
		if p.Severity == manifest.Fault {
			faulty[spot{p.Path, p.Tool}], faulty[spot{p.Path, anyTool}] = true, true
		}
		if e, ok := errors.AsType[*fs.PathError](p.Err); ok && !errors.Is(e, fs.ErrNotExist) {
			unread = append(unread, p.Path)
		}
	}
	if len(faulty)+len(unread) == 0 {
		return nil
	}
	within := func(path string) bool {
		return slices.ContainsFunc(unread, func(dir string) bool { return strings.HasPrefix(path, dir+string(filepath.Separator)) })
	}
	isFaulty := func(t manifest.Tool) bool {
		if t.Runtime.Generated { // its file has others, each with its own faults, or with one that nobody knows the tool of
			return faulty[spot{t.Source, t.Name}] || faulty[spot{t.Source, ""}]
		}
		return faulty[spot{t.Source, anyTool}] || faulty[spot{t.Dir, anyTool}]
	}
	kept = map[spot]bool{}
	living := s.Supervisor.Living()
	taken := places(found.Tools, living)
	for _, t := range living {
		if _, there := taken[t.Name]; !there && (isFaulty(t) || within(t.Source)) && discovery.ApplyTerms(&t, cfg) == nil {
			found.Tools = append(found.Tools, t)
			if t.Runtime.Generated {
				kept[spot{t.Source, t.Name}], kept[spot{t.Source, ""}] = true, true
			} else {
				kept[spot{t.Source, anyTool}], kept[spot{t.Dir, anyTool}] = true, true
			}
		}
	}
	return kept
}

// spot is where a tool is described: a path, and the tool's name, or "" where
// that is not known.
type spot struct{ path, tool string }

// anyTool stands for every tool of a path. It is not a valid name.
const anyTool = "*"

// names lists what a reload changed, up to a number for which a line of the log has room.
func names(lists ...[]string) []string {
	const most = 20
	all := append([]string{}, slices.Concat(lists...)...) // an empty list is [] in the log, not null
	if len(all) > most {
		all = append(all[:most:most], "…")
	}
	return all
}

// reportProblems logs the new problems. kept are the places of capsules that are still served.
func (s *server) reportProblems(problems []manifest.Problem, kept map[spot]bool) {
	reported := make(map[string]bool, len(problems))
	for _, p := range problems {
		key := p.Path + "\x00" + p.Err.Error()
		reported[key] = true
		if s.reported[key] {
			continue
		}
		switch {
		case p.Denies:
			s.log.Error("every call is denied: a governance document cannot be read or names nothing", "path", p.Path, "err", p.Err)
		case p.Severity == manifest.Fault && (kept[spot{p.Path, p.Tool}] || kept[spot{p.Path, anyTool}]):
			s.log.Error("a capsule's manifest has errors; the capsule goes on unchanged", "path", p.Path, "tool", p.Tool, "err", p.Err)
		case p.Severity == manifest.Fault:
			s.log.Error("a tool is not served", "path", p.Path, "tool", p.Tool, "err", p.Err)
		default:
			s.log.Warn("about the tools folder", "path", p.Path, "tool", p.Tool, "err", p.Err)
		}
	}
	s.reported = reported
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// reportWeaker logs in which ways the configuration isolates tools less, and which of its folders are not there: at the start, and
// when that has changed.
func (s *server) reportWeaker(cfg *config.Loaded) {
	ways := discovery.Weaker(cfg)
	if len(ways) > 0 && !slices.Equal(ways, s.weaker) {
		s.log.Warn("the configuration isolates tools less than by default", "ways", ways)
	}
	s.weaker = ways
	var missing []string
	for _, err := range cfg.Missing() {
		if missing = append(missing, err.Error()); !slices.Contains(s.missing, err.Error()) {
			s.log.Warn("a folder of the configuration is not there", "err", err)
		}
	}
	s.missing = missing
}
