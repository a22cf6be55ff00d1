// Package logins has the commands that log a person in to remote MCP servers, and out again.
package logins

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/running"
	"github.com/orla-project/orla/internal/app/cli/usage"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/app/wiring"
	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/service/login"
	"github.com/orla-project/orla/manifest"
)

// command is what both commands share.
type command struct {
	flags *config.Flags
	std   terminal.Streams
}

// New returns the commands login and logout.
func New(flags *config.Flags, std terminal.Streams) []*cobra.Command {
	c := command{flags, std}
	return []*cobra.Command{c.login(), c.logout()}
}

// given is what the command line of a login says.
type given struct {
	login.Options
	noBrowser  bool
	secretFile string
}

func (c command) login() *cobra.Command {
	var g given
	cmd := &cobra.Command{
		Use:   "login [SERVER]",
		Short: "Log in to a remote MCP server that asks for OAuth",
		Long: "Log in to a remote McpServer that asks for OAuth: a browser opens the page of its\n" +
			"issuer, and Orla keeps the tokens in state_dir, readable by this user alone. A running\n" +
			"Orla uses them at once, and refreshes them. Without a name, list the servers.\n\n" +
			"If the browser is on another machine, the last page cannot be opened there. Enter the\n" +
			"address of that page here.\n\n" +
			"For a service, log in as its user: sudo -u orla orla login SERVER --config\n" +
			"/etc/orla/orla.yaml",
		Example: "  orla login\n  orla login github\n  orla login github --no-browser\n" +
			"  orla login tickets --issuer https://login.example.com --client-id orla-cli \\\n    --redirect http://127.0.0.1:8765/callback",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, words []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			cfg, l, err := c.flags.LoadTools(cmd.Flags())
			if err != nil {
				return err
			}
			found := discovery.Find(cfg, l.Home)
			if len(words) == 0 {
				return c.list(cfg, found.Tools)
			}
			t, err := serverOf(found, words[0])
			if err != nil {
				return err
			}
			if err := c.run(ctx, cfg, found, t, g); err != nil {
				return failed(ctx, err)
			}
			return c.notify(ctx, cfg, l, t.Name)
		},
		ValidArgsFunction: usage.Complete(1, c.servers),
	}
	cmd.Flags().BoolVar(&g.noBrowser, "no-browser", false, "print the address and open no browser")
	cmd.Flags().StringVar(&g.ClientID, "client-id", "", "`ID` of a client that is registered at the issuer (default: clientID of spec.auth)")
	cmd.Flags().StringVar(&g.secretFile, "client-secret-file", "", "`FILE` with the secret of that client, if it has one")
	cmd.Flags().StringVar(&g.Redirect, "redirect", "", "redirect `URL` of that client on this machine (default http://127.0.0.1/callback with any port)")
	cmd.Flags().StringArrayVar(&g.Scopes, "scope", nil, "a `SCOPE` to ask for in place of those that the server names; may be repeated")
	cmd.Flags().StringVar(&g.Issuer, "issuer", "", "which of the server's issuers to use: its `URL`; --client-id needs it (default: issuer of spec.auth)")
	cmd.Flags().BoolVar(&g.Elsewhere, "endpoints-elsewhere", false, "log in although the page, the tokens and the issuer are at several hosts; the error without it names them")
	return cmd
}

func (c command) logout() *cobra.Command {
	return &cobra.Command{
		Use:   "logout SERVER",
		Short: "Forget the login of a remote MCP server",
		Long: "Remove the tokens of a remote McpServer from state_dir, and ask the issuer to revoke\n" +
			"them. A running Orla stops using them at its next call.",
		Example: "  orla logout github",
		Args:    usage.Words(1, "wants the name of a remote McpServer; orla login lists them"),
		RunE: func(cmd *cobra.Command, words []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			cfg, l, err := c.flags.LoadTools(cmd.Flags())
			if err != nil {
				return err
			}
			t, err := serverOf(discovery.Find(cfg, l.Home), words[0])
			if err != nil {
				return err
			}
			was, others, revoked, err := wiring.Logout(ctx, cfg, t)
			if err != nil {
				return failed(ctx, err)
			}
			text := "nobody was logged in"
			if was {
				text = "logged out"
			}
			c.say("%s: %s", t.Name, text)
			if revoked != nil {
				c.say("%v", revoked)
			}
			for _, file := range others {
				c.say("a login at another endpoint is still in %s", file)
			}
			return nil
		},
		ValidArgsFunction: usage.Complete(1, c.servers),
	}
}

// say prints a line for a person.
func (c command) say(format string, args ...any) {
	fmt.Fprintln(c.std.Out, terminal.Printable(fmt.Sprintf(format, args...)))
}

// failed returns the error of a command.
func failed(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return errors.New("interrupted")
	}
	return err
}

// serverOf returns the server with a name.
func serverOf(found manifest.Result, name string) (manifest.Tool, error) {
	var names []string
	for _, t := range found.Tools {
		takes := wiring.TakesLogin(t)
		switch {
		case t.Name == name && takes:
			return t, nil
		case t.Name == name:
			return t, noLogin(t)
		case takes:
			names = append(names, t.Name)
		}
	}
	f := &exit.Error{Code: exit.Failed, Err: fmt.Errorf("there is no McpServer %q", name)}
	switch near := yamldoc.Nearest(name, names); {
	case slices.ContainsFunc(found.Problems, func(p manifest.Problem) bool { return p.Tool == name }):
		f.Hint = "its file has faults; orla validate shows them"
	case near != "":
		f.Hint = fmt.Sprintf("did you mean %q?", near)
	case len(names) > 0:
		f.Hint = "orla login lists them"
	}
	return manifest.Tool{}, f
}

// noLogin is the error for a tool that nobody can log in to.
func noLogin(t manifest.Tool) error {
	if t.Runtime.Remote != nil {
		return fmt.Errorf("%s has credentials in spec.auth (%s); remove them to log in", t.Name, t.Runtime.Remote.Auth.Profile)
	}
	return fmt.Errorf("%s is not a remote McpServer (transport http), so nobody can log in to it", t.Name)
}

// list shows who is logged in where.
func (c command) list(cfg *config.Loaded, tools []manifest.Tool) error {
	tools = slices.DeleteFunc(slices.Clone(tools), func(t manifest.Tool) bool { return !wiring.TakesLogin(t) })
	if len(tools) == 0 {
		c.say("there is no remote McpServer that takes a login")
		return nil
	}
	table := tabwriter.NewWriter(c.std.Out, 0, 4, 2, ' ', 0)
	for _, t := range tools {
		fmt.Fprintf(table, "%s\t%s\n", t.Name, terminal.Printable(wiring.DescribeLogin(cfg, t)))
	}
	return table.Flush()
}

// run logs in to a server.
func (c command) run(ctx context.Context, cfg *config.Loaded, found manifest.Result, t manifest.Tool, g given) error {
	opts := g.Options
	if opts.Redirect != "" {
		if _, err := login.CheckRedirect(opts.Redirect); err != nil {
			return err
		}
	}
	switch {
	case g.secretFile != "" && opts.ClientID == "":
		return errors.New("--client-secret-file goes with --client-id")
	case g.secretFile != "":
		var err error
		if opts.ClientSecret, err = secretIn(g.secretFile); err != nil {
			return err
		}
	}
	opts.Hosts = func(page, tokens string) { c.say("log in at %s; the tokens come from %s", page, tokens) }
	opts.Show = func(open, _ string) {
		c.say("To log in to %s, open this address in a browser within %s:", t.Name, terminal.ShortAge(login.Patience))
		fmt.Fprintf(c.std.Out, "\n  %s\n\n", terminal.Printable(open))
		c.say("If the browser is on another machine, enter here the address of the page that it cannot open at the end.")
	}
	if !g.noBrowser {
		opts.Open = func(address string) {
			if OpenBrowser(ctx, address) == nil {
				c.say("A browser was asked to open it.")
			}
		}
	}
	pasted := make(chan string)
	opts.Pasted = pasted
	opts.Refused = func(why error) { c.say("%v; the login still waits", why) }
	over, end := context.WithCancel(ctx)
	defer end()
	go readLines(over, c.std.In, pasted)
	r, err := wiring.Login(ctx, cfg, found, t, opts)
	if err != nil {
		return err
	}
	c.say("%s: %s", t.Name, r.Summary())
	return nil
}

// maxLine bounds a line of a person in bytes.
const maxLine = 16 << 10

// readLines passes on the lines of a stream until ctx ends.
func readLines(ctx context.Context, in io.Reader, to chan<- string) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		select {
		case to <- lines.Text():
		case <-ctx.Done():
			return
		}
	}
}

// secretIn returns the secret in a file.
func secretIn(path string) (string, error) {
	path, err := config.PathOf(path)
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxLine))
	if err != nil {
		return "", err
	}
	value := strings.TrimSpace(string(text))
	if value == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return value, nil
}

// HasDesktop reports whether there may be a browser to open.
func HasDesktop() bool {
	return runtime.GOOS == "darwin" || os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "" || os.Getenv("BROWSER") != ""
}

// OpenBrowser asks the desktop to open a URL that begins with http, or an absolute path. There is no shell. Every user of the
// machine can see what is opened.
func OpenBrowser(ctx context.Context, url string) error {
	if !HasDesktop() {
		return errors.New("there is no desktop")
	}
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, url)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // how it ends does not matter
	return nil
}

// notify has the running Orla use a new login, if it waits for one.
func (c command) notify(ctx context.Context, cfg *config.Loaded, l *config.Loader, name string) error {
	client, err := running.Serving(ctx, cfg, l)
	if err != nil || client == nil {
		return nil //nolint:nilerr // the login is there for the next start
	}
	status, err := client.Status(ctx)
	if err != nil {
		return nil //nolint:nilerr // the same
	}
	if config.Absolute(status.StateDir) != config.Absolute(cfg.StateDir) {
		c.say("The running Orla (pid %d) has another state_dir, %s, and does not see this login. Log in with its configuration, as its user.", status.Pid, status.StateDir)
		return nil
	}
	i := slices.IndexFunc(status.Tools, func(t control.ToolStatus) bool { return t.Name == name })
	if i < 0 || status.Tools[i].State == "READY" || status.Tools[i].Held {
		return nil
	}
	now, err := client.Operate(ctx, name, control.Start)
	if err != nil {
		return fmt.Errorf("the login is stored, and the running Orla cannot use the server: %w", err)
	}
	c.say("%s: %s", name, now.State)
	return nil
}

// servers lists the servers that take a login.
func (c command) servers(cmd *cobra.Command, _ []string) (names []string) {
	cfg, l, err := c.flags.LoadTools(cmd.Flags())
	if err != nil {
		return nil
	}
	for _, t := range discovery.Find(cfg, l.Home).Tools {
		if wiring.TakesLogin(t) {
			names = append(names, t.Name)
		}
	}
	return names
}
