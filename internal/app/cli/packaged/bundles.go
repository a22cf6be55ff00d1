package packaged

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/app/wiring"
	"github.com/orla-project/orla/internal/packages"
	"github.com/orla-project/orla/internal/packages/bundle"
	"github.com/orla-project/orla/internal/packages/lockfile"
	"github.com/orla-project/orla/internal/packages/registry"
)

// fromLocal brings a package from a folder or a file.
func (c command) fromLocal(ctx context.Context, s *packages.Session, path string, w wanted) (*packages.Candidate, error) {
	if !strings.EqualFold(filepath.Ext(path), ".mcpb") {
		return s.Local(ctx, path)
	}
	path = config.Absolute(path)
	return c.fromBundle(ctx, s, lockfile.Source{Kind: lockfile.Bundle, URL: path}, path, "", w)
}

// fromBundle makes a package of an MCP bundle, which must have a name unless that is empty. It asks what the bundle has
// to know.
func (c command) fromBundle(ctx context.Context, s *packages.Session, source lockfile.Source, file, name string, w wanted) (*packages.Candidate, error) {
	answers, kept, err := w.given(ctx, s)
	if err != nil {
		return nil, err
	}
	var made *bundle.Made
	var candidate *packages.Candidate
	err = c.answering(ctx, answers, func() (err error) {
		candidate, err = w.make(ctx, s, source, packages.From{Name: name}, func(dir string) (err error) {
			made, err = bundle.Import(ctx, file, dir, answers, s.Limits())
			return err
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	c.notes(made.Notes)
	return c.finish(candidate, s, made, answers, kept, time.Time{})
}

// answering repeats make, and asks for the answers that it lacks.
func (c command) answering(ctx context.Context, answers map[string]string, make func() error) error {
	for {
		err := make()
		if err == nil {
			return nil
		}
		if err := c.answer(ctx, err, answers); err != nil {
			return err
		}
	}
}

// fromServer makes a package of a server of an MCP registry.
func (c command) fromServer(ctx context.Context, p *place, s *packages.Session, entry registry.Entry, w wanted) (*packages.Candidate, error) {
	answers, kept, err := w.given(ctx, s)
	if err != nil {
		return nil, err
	}
	engine := engineOf(p.cfg)
	var made *bundle.Made
	if err := c.answering(ctx, answers, func() (err error) {
		made, err = bundle.Server(entry, answers, bundle.Options{Engine: engine})
		return err
	}); err != nil {
		return nil, err
	}
	c.notes(made.Notes)
	source := lockfile.Source{Kind: lockfile.Server, URL: entry.Registry, Registry: entry.Registry, Server: entry.Name}
	if made.Bundle != nil {
		dir, err := os.MkdirTemp("", "orla-bundle-")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }() // it was only read
		file := filepath.Join(dir, "bundle.mcpb")
		if err := bundle.Fetch(ctx, *made.Bundle, file, s.Limits(), nil); err != nil {
			return nil, err
		}
		source.Kind = lockfile.Bundle
		return c.fromBundle(ctx, s, source, file, made.Name, w)
	}
	if before := w.entry; before != nil && made.Resource != nil && made.Version != before.Version { // before anything is pulled
		return nil, packages.OneVersion(*before)
	}
	if made.Image != "" {
		if _, err := exec.LookPath(engine); err != nil {
			return nil, fmt.Errorf("the image %s is run by %s, by its name alone, and that is not in PATH", made.Image, cmp.Or(engine, "podman or docker"))
		}
		if err := c.pull(ctx, made, engine, int64(p.cfg.MaxEnvironment), w); err != nil {
			return nil, err
		}
	}
	var at, until time.Time
	if w.exact {
		until = w.entry.Source.Made.Time()
	}
	candidate, err := w.make(ctx, s, source, packages.From{Name: made.Name, Version: made.Version}, func(dir string) error {
		if made.Resource != nil {
			return os.WriteFile(filepath.Join(dir, packages.ServerFile), made.Resource, 0o644) //nolint:gosec // it has no secrets
		}
		if err := made.Write(dir); err != nil {
			return err
		}
		at = time.Now()
		locker, end, err := wiring.OpenLocker()
		if err != nil {
			return err
		}
		defer end()
		known := len(made.Notes)
		locked, err := made.Lock(ctx, dir, until, locker)
		c.notes(made.Notes[known:])
		if err == nil && !locked {
			c.say("there is no uv in PATH: only the version of the package itself is fixed, not those of what it needs")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	candidate.Tool.Description = cmp.Or(candidate.Tool.Description, entry.Description) // an McpServer has none of its own
	return c.finish(candidate, s, made, answers, kept, at)
}

// pull asks whether the image of a server may be pulled, and pulls it, which has to be before its permissions are shown: its digest is
// among what is agreed to. An image that is too large is refused, and so is one whose size is not known, unless the engine has it.
func (c command) pull(ctx context.Context, made *bundle.Made, engine string, most int64, w wanted) error {
	image := made.Image
	if !w.Permissions && !c.asks() {
		return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("the image %s has to be pulled, and there is no terminal to ask on; nothing was changed", image), Hint: "--yes agrees to that, and to the permissions of the server"}
	}
	size, err := made.Measure(ctx, nil)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		if made.Pin(ctx, engine) == nil {
			c.say("the image %s is the one that %s has: %v", image, engine, err)
			return nil
		}
		return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("the size of the image %s is not known, so it is not pulled: %w", image, err), Hint: engine + " pull " + image + " pulls it without a bound; then Orla takes that one"}
	case size > most:
		return tooLarge(image, size, most)
	case !w.Permissions && !c.ask(ctx, "Pull the image "+image+" ("+bundle.InMiB(size)+")? [y/N] ", "y", "yes"):
		return fmt.Errorf("%w that the image is pulled", packages.ErrConsent)
	}
	c.say("pulling the image %s (%s)", made.Image, bundle.InMiB(size))
	return made.Pull(ctx, engine, most)
}

// notes prints what somebody should know.
func (c command) notes(list []string) {
	for _, note := range list {
		c.say("%s", note)
	}
}

// engineOf is the container engine by its name in PATH: so a lock is the same for machines that have it elsewhere, and nothing
// is run that only the orla.yaml of a repository of others names.
func engineOf(cfg *config.Loaded) string {
	if cfg.ContainerEngine != config.Auto && cfg.ContainerEngine != config.NoEngine {
		return filepath.Base(cfg.ContainerEngine)
	}
	for _, engine := range []string{"podman", "docker"} {
		if _, err := exec.LookPath(engine); err == nil {
			return engine
		}
	}
	return ""
}

// answers are those of the command line.
func (w wanted) answers() (map[string]string, error) {
	answers := map[string]string{}
	for _, set := range w.set {
		key, value, ok := strings.Cut(set, "=")
		if !ok {
			return nil, &exit.Error{Code: exit.Usage, Err: fmt.Errorf("--set wants KEY=VALUE, got %q", key)}
		}
		if file, isFile := strings.CutPrefix(value, "@"); isFile {
			text, err := config.ReadSmall(file)
			if err != nil {
				return nil, err
			}
			value = strings.TrimSuffix(string(text), "\n")
		}
		answers[key] = value
	}
	return answers, nil
}

// answer asks the questions that err is about, if it is about questions and there is a terminal.
func (c command) answer(ctx context.Context, err error, answers map[string]string) error {
	open, ok := errors.AsType[*bundle.UnansweredError](err)
	if !ok || len(open.Questions) == 0 || !c.asks() {
		if ok {
			return &exit.Error{Code: exit.Failed, Err: err, Hint: "answer with --set KEY=VALUE, or with --set KEY=@FILE for the content of a file"}
		}
		return err
	}
	for _, q := range open.Questions {
		c.say("%s: %s", q.Key, strings.TrimSpace(q.Title+" "+q.Description))
		if len(q.Choices) > 0 {
			c.say("  one of %s", strings.Join(q.Choices, ", "))
		}
		read := c.line
		if q.Secret {
			read = c.hidden
		}
		line, ok := read(ctx, q.Key+" ("+q.Type+"): ")
		if !ok || line == "" {
			return fmt.Errorf("%s was not answered; nothing was changed", q.Key)
		}
		answers[q.Key] = line
	}
	return nil
}

// line asks for a line of text.
func (c command) line(ctx context.Context, question string) (string, bool) {
	_, _ = io.WriteString(c.std.Err, terminal.Printable(question)) // whoever cannot see it answers nothing
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(io.LimitReader(c.std.In, 16<<10)).ReadString('\n') // what cannot be read is nothing
		said <- strings.TrimSpace(line)
	}()
	select {
	case line := <-said:
		return line, true
	case <-ctx.Done():
		return "", false
	}
}

// hidden is line for a secret: the terminal does not show what is typed.
func (c command) hidden(ctx context.Context, question string) (string, bool) {
	in, ok := c.std.In.(*os.File)
	if !ok {
		return c.line(ctx, question)
	}
	_, _ = io.WriteString(c.std.Err, terminal.Printable(question)) // whoever cannot see it answers nothing
	line, ok := terminal.Hidden(ctx, in)
	_, _ = io.WriteString(c.std.Err, "\n") // in place of that of the answer
	return line, ok
}

func (c command) pack() *cobra.Command {
	var out, format string
	cmd := &cobra.Command{
		Use:   "pack [FOLDER]",
		Short: "Pack a package as an archive or an MCP bundle",
		Long: "Pack the package in a folder, or in this one, as a .tar.gz or .mcpb. The same files make\n" +
			"the same bytes. What .gitignore files ignore is left out.",
		Example: "  orla pack\n  orla pack fetch --format mcpb -o fetch.mcpb",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, words []string) error {
			dir := "."
			if len(words) == 1 {
				dir = words[0]
			}
			as := bundle.Format(format)
			if as != bundle.TarGz && as != bundle.MCPB {
				return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("--format must be tar.gz or mcpb, got %q", format)}
			}
			if out == "" {
				out = filepath.Base(config.Absolute(dir)) + "." + format
			}
			f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // it is to be published
			if err != nil {
				return err
			}
			names, err := bundle.Pack(dir, f, as)
			if err := errors.Join(err, f.Close()); err != nil {
				_ = os.Remove(out) // err is more useful
				return err
			}
			isHidden := func(name string) bool { return strings.HasPrefix(name, ".") && !strings.HasPrefix(name, ".git") }
			if i := slices.IndexFunc(names, isHidden); i >= 0 {
				c.say("it has hidden files, such as %s; a .gitignore leaves out what is not for others", names[i])
			}
			return c.print(out + "\n")
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "write to `FILE` (default: the name of the folder)")
	cmd.Flags().StringVar(&format, "format", "tar.gz", "`FORMAT`: tar.gz or mcpb")
	return cmd
}
