package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control/unixsocket"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/doctor"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/app/version"
	"github.com/orla-project/orla/internal/app/wiring"
	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/discover"
)

// doctorPatience bounds all checks. Those that take longer are left out.
const doctorPatience = 45 * time.Second

// newDoctor checks what this machine lacks.
func newDoctor(flags *config.Flags, std terminal.Streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this machine has what Orla needs",
		Long: "Look at the configuration, the tools, the rules, interpreters, what installs packages,\n" +
			"folders, what can hold isolated tools, the issuer of access tokens, logins, limits of\n" +
			"the system, the port, systemd and the clock. Each line is ok, warn or fail, with what\n" +
			"fixes it where that is known.\n" +
			"A container is run, of an image that is made for it and removed; nothing else is\n" +
			"changed. The exit code is 1 if anything fails. For a service, ask as its user:\n" +
			"sudo -u orla orla doctor --config /etc/orla/orla.yaml",
		Example: "  orla doctor\n  orla doctor --json | jq '.[] | select(.level != \"ok\")'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), doctorPatience)
			defer cancel()
			findings := examine(ctx, flags.Loader(cmd.Flags()), std)
			if asJSON {
				if err := terminal.WriteJSON(std.Out, findings); err != nil {
					return err
				}
			} else if err := printFindings(std, findings); err != nil {
				return err
			}
			findings = slices.DeleteFunc(findings, func(f doctor.Finding) bool { return f.Level != doctor.Fail })
			if len(findings) > 0 {
				return errors.New(terminal.Count(len(findings), "failure"))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printFindings(std terminal.Streams, findings []doctor.Finding) error {
	table := tabwriter.NewWriter(std.Out, 0, 4, 2, ' ', 0)
	for _, f := range findings {
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.Level, f.Check, terminal.Printable(f.Text))
		if f.Fix != "" && f.Level != doctor.OK {
			fmt.Fprintf(table, "\t\tfix: %s\n", terminal.Printable(f.Fix))
		}
	}
	return table.Flush()
}

// examine makes all checks. On a terminal it says which check takes long.
func examine(ctx context.Context, l *config.Loader, std terminal.Streams) []doctor.Finding {
	var environment []doctor.Finding
	for _, text := range l.Misspelled() {
		environment = append(environment, doctor.Finding{Check: "environment", Level: doctor.Warn, Text: text})
	}
	cfg, err := l.Load()
	if err != nil {
		text, _, _ := strings.Cut(err.Error(), "\n")
		found := doctor.Finding{Check: "configuration", Level: doctor.Fail, Text: text, Fix: validating(l)}
		return slices.Concat([]doctor.Finding{found}, environment, examineMachine(ctx, &config.Loaded{Config: config.Defaults()}))
	}
	found := discovery.Find(cfg, l.Home)
	running, pids := examineSockets(ctx, cfg, l)
	findings := slices.Concat(
		[]doctor.Finding{{Check: "configuration", Level: doctor.OK, Text: cmp.Or(cfg.File, "no file, and none is needed")}},
		environment,
		examineTools(found, l),
		wiring.ExamineRules(cfg, found, validating(l)),
		examineDependencies(ctx, found.Tools),
		[]doctor.Finding{doctor.Git(ctx)},
		examineFolders(cfg, l),
		wiring.Examine(ctx, cfg, found.Tools, len(pids) > 0, func(what string) {
			if terminal.IsTerminal(std.Err) {
				fmt.Fprintf(std.Err, "%s …\n", what)
			}
		}),
		wiring.ExamineIssuer(ctx, cfg),
		wiring.ExamineLogins(cfg, found.Tools),
		[]doctor.Finding{running},
	)
	if !cfg.Stdio {
		findings = append(findings, doctor.Machine{}.Port(ctx, cfg.Address(), pids...))
	}
	return append(findings, examineMachine(ctx, cfg)...)
}

// validating returns the command that shows what is wrong with the tools that l loads.
func validating(l *config.Loader) string {
	command := []string{"orla validate"}
	if l.Path != "" {
		command = append(command, "--config", doctor.Quote(l.Path))
	}
	for _, f := range l.Flags {
		if f.Key == "tools_dir" {
			command = append(command, "--tools-dir", doctor.Quote(f.Value))
		}
	}
	return strings.Join(command, " ")
}

// examineTools checks the tools and their interpreters.
func examineTools(found manifest.Result, l *config.Loader) []doctor.Finding {
	needed, missing, faults := map[string][]string{}, map[string][]string{}, 0
	for _, t := range found.Tools {
		if name := t.Interpreter.Name; name != "" {
			needed[name] = append(needed[name], t.Name)
		}
	}
	for _, p := range found.Problems {
		if no, ok := errors.AsType[*manifest.NoInterpreterError](p.Err); ok {
			missing[no.Interpreter.Name] = append(missing[no.Interpreter.Name], p.Path)
		} else if p.Severity == manifest.Fault && !p.Denies {
			faults++
		}
	}
	tools := doctor.Finding{Check: "tools", Level: doctor.OK, Text: terminal.Count(len(found.Tools), "tool") + " in order"}
	if faults > 0 {
		tools.Level, tools.Fix = doctor.Fail, validating(l)
		tools.Text += ", " + terminal.Count(faults, "fault")
	}
	return append([]doctor.Finding{tools}, doctor.Programs(needed, missing)...)
}

func examineFolders(cfg *config.Loaded, l *config.Loader) []doctor.Finding {
	findings := []doctor.Finding{doctor.Readable("tools_dir", config.Absolute(cfg.ToolsDir))}
	if cfg.CheckToolsDir() != nil { // somebody named it, so that Orla would not start
		findings[0].Level = doctor.Fail
		findings[0].Text = config.Absolute(cfg.ToolsDir) + " was named and is not a folder; Orla does not start without it"
	}
	if own := discovery.Folders(cfg, l.Home).UserDir; own != "" {
		if _, err := os.Lstat(own); err == nil {
			findings = append(findings, doctor.Readable("tools_dir", own))
		}
	}
	if cfg.StateDir == "" {
		findings = append(findings, doctor.Finding{
			Check: "state_dir", Level: doctor.Warn,
			Text: "there is none, as this user has no home; what capsules offered is forgotten when Orla stops",
		})
	} else {
		findings = append(findings, doctor.Kept("state_dir", config.Absolute(cfg.StateDir)))
	}
	if cfg.SecretsDir != "" {
		findings = append(findings, doctor.Secrets("secrets_dir", config.Absolute(cfg.SecretsDir)))
	}
	if socket := cfg.ControlSocket(l).Socket; socket != "" {
		findings = append(findings, doctor.Writable("socket", filepath.Dir(socket)))
	}
	if cfg.LogFile != "" {
		findings = append(findings, doctor.LogFile("log_file", config.Absolute(cfg.LogFile)))
	}
	if path := cfg.AuditPath(); filepath.IsAbs(path) { // and not the journal
		findings = append(findings, doctor.File("audit_log", path))
	}
	return findings
}

// examineSockets reports whether an Orla runs, and returns the processes of all that run.
func examineSockets(ctx context.Context, cfg *config.Loaded, l *config.Loader) (found doctor.Finding, pids []int) {
	all, _ := unixsocket.All(ctx, cfg.SocketDirs(l)) // those of other users cannot be asked, nor have to be
	found = doctor.Finding{Check: "running", Level: doctor.OK, Text: "no Orla serves " + config.Absolute(cfg.Folder())}
	serves := func(one *unixsocket.Running) string {
		return fmt.Sprintf("Orla serves %s (pid %d)", one.ToolsDir, one.Pid)
	}
	for _, one := range all {
		pids = append(pids, one.Pid)
		if regularfile.Real(one.ToolsDir) == regularfile.Real(cfg.Folder()) { // a service has its socket elsewhere
			found.Text = serves(one)
		}
	}
	socket := cfg.ControlSocket(l).Socket
	if socket == "" {
		return found, pids
	}
	one, err := unixsocket.Find(ctx, socket)
	_, gone := os.Lstat(socket)
	switch {
	case err == nil:
		found.Text = serves(one)
		if !slices.Contains(pids, one.Pid) {
			pids = append(pids, one.Pid)
		}
	case errors.Is(err, unixsocket.ErrNotRunning) && errors.Is(gone, fs.ErrNotExist):
	case errors.Is(err, unixsocket.ErrNotRunning):
		found.Level, found.Text = doctor.Warn, socket+" is left over from an Orla that was killed; the next one takes it over"
		found.Fix = "rm " + socket
	default:
		found.Level, found.Text = doctor.Fail, err.Error()
	}
	return found, pids
}

// examineMachine makes the checks that do not depend on the configuration, except for the folders to
// watch.
func examineMachine(ctx context.Context, cfg *config.Loaded) []doctor.Finding {
	built, _ := time.Parse(time.RFC3339, version.Date()) // the zero time if nobody knows
	var m doctor.Machine
	findings := []doctor.Finding{m.Inotify(watchedFolders(ctx, cfg.Folder())), m.OpenFiles(), m.Cgroup()}
	findings = append(findings, m.Systemd(ctx, "orla.service")...)
	return append(findings, doctor.Clock(time.Now(), built))
}

// watchedFolders counts the folders below a folder of tools as far as there is time.
func watchedFolders(ctx context.Context, dir string) int {
	n := 0
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error { // it is cut short when time is up
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil, !entry.IsDir():
			return nil //nolint:nilerr // what cannot be read is not watched
		case path != dir && (strings.HasPrefix(entry.Name(), ".") || discover.Skips(entry.Name())):
			return fs.SkipDir
		}
		n++
		return nil
	})
	return n
}
