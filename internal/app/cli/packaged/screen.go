package packaged

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/packages"
	"github.com/orla-project/orla/internal/packages/lockfile"
	"github.com/orla-project/orla/internal/packages/origin"
	"github.com/orla-project/orla/internal/packages/permission"
)

// describe is the text that a person agrees to. Everything in it that the package says is escaped.
func describe(candidate offer, cfg *config.Loaded) string {
	var text strings.Builder
	e := candidate.Entry
	line := func(format string, args ...any) {
		text.WriteString(terminal.Printable(fmt.Sprintf(format, args...)) + "\n")
	}
	line("%s %s", e.Name, e.Version)
	if about := terminal.FirstLine(candidate.Tool.Description); about != "" {
		line("  %s", about)
	}
	line("  from %s%s", e.Source.URL, ofRegistry(e.Source))
	if e.Source.Kind == lockfile.Git {
		line("  %s", revision(e))
		line("  %s", signature(e))
	}
	if b := candidate.Before; !candidate.IsFirst() && b.Version != e.Version {
		line("  %s %s serves now", b.Name, b.Version)
	}
	if made := e.Source.Made; made != nil && len(made.Answers) > 0 { // a lock may be somebody else's: they say where secrets go, and stand before what is asked for
		line("It is set up with these answers:")
		for _, key := range slices.Sorted(maps.Keys(made.Answers)) {
			line("  %s: %s", key, made.Answers[key])
		}
	}
	asked(&text, candidate.Asked, candidate.More)
	if isSecret := func(p permission.Permission) bool { return p.Kind == permission.Secret }; slices.ContainsFunc(candidate.Asked, isSecret) {
		line("Its secrets are those of the Secret packages/%s, and no others.", e.Source.SecretName(e.Name))
	}
	if len(candidate.Unenforced) > 0 {
		line("Orla cannot enforce:")
		for i, p := range candidate.Unenforced {
			line("  %s: %s", p, candidate.Reasons[i])
		}
	}
	for _, one := range given(candidate, cfg) {
		line("%s", one)
	}
	return text.String()
}

func ofRegistry(source lockfile.Source) string {
	if source.Registry == "" {
		return ""
	}
	return ", which " + source.Registry + " names"
}

func revision(e lockfile.Package) string {
	if e.Tag != "" {
		return "tag " + e.Tag + ", commit " + e.Commit
	}
	return "commit " + e.Commit
}

func signature(e lockfile.Package) string {
	if e.Signer == "" {
		return "not signed"
	}
	return "signed by " + origin.Fingerprint(e.Signer)
}

// asked writes permissions, and marks the new ones.
func asked(text *strings.Builder, list, more []permission.Permission) {
	if len(list) == 0 {
		text.WriteString("It asks for no permissions.\n")
		return
	}
	text.WriteString("It asks for:\n")
	forAll := func(p permission.Permission) bool { return p.Target == "" }
	one := func(p permission.Permission) bool { return p.Target != "" }
	list = append(slices.DeleteFunc(slices.Clone(list), one), slices.DeleteFunc(slices.Clone(list), forAll)...) // the widest come first
	for _, p := range list {
		mark := ""
		if len(more) < len(list) && slices.Contains(more, p) {
			mark = " (new)"
		}
		text.WriteString(terminal.Printable(fmt.Sprintf("  %s: %s%s", p, p.Explain(), mark)) + "\n")
	}
}

// consent shows what a package asks for, and asks what the command line did not agree to.
func (c command) consent(ctx context.Context, p *place, candidate offer, agreed packages.Consent) (packages.Consent, error) {
	_, _ = io.WriteString(c.std.Err, describe(candidate, p.cfg)) // whoever cannot see it answers no
	if (len(candidate.More) > 0 || isGivenMore(candidate.Candidate, p.cfg)) && !agreed.Permissions {
		if !c.asks() {
			return agreed, &exit.Error{Code: exit.Failed, Err: fmt.Errorf("%s %s, and there is no terminal to ask on; nothing was changed", candidate.Entry.Name, wantsMore(candidate.Candidate)), Hint: "--yes agrees to them"}
		}
		if !c.ask(ctx, "Install it with these permissions? [y/N] ", "y", "yes") {
			return agreed, fmt.Errorf("%w that %s gets these permissions", packages.ErrConsent, candidate.Entry.Name)
		}
		agreed.Permissions = true
	}
	unenforced := permission.Texts(candidate.Unenforced)
	if candidate.loose && !candidate.IsOfLock() {
		unenforced = append(unenforced, "that its image stays the same")
	}
	if len(unenforced) > 0 && !agreed.Unenforced {
		if !c.asks() {
			return agreed, &exit.Error{Code: exit.Failed, Err: fmt.Errorf("it is not possible to enforce %s; nothing was changed", strings.Join(unenforced, ", ")), Hint: "--accept-unenforced accepts that"}
		}
		if !c.ask(ctx, "To accept what Orla cannot enforce, enter the name of the package: ", candidate.Entry.Name) {
			return agreed, fmt.Errorf("%w that %s gets permissions that cannot be enforced", packages.ErrConsent, candidate.Entry.Name)
		}
		agreed.Unenforced = true
	}
	return agreed, nil
}

// asks reports whether there is a terminal to ask on.
func (c command) asks() bool {
	in, ok := c.std.In.(*os.File)
	return ok && terminal.IsTerminal(in) && terminal.IsTerminal(c.std.Err)
}

// ask asks a question, and reports whether the answer is one of those.
func (c command) ask(ctx context.Context, question string, answers ...string) bool {
	line, ok := c.line(ctx, question)
	return ok && slices.ContainsFunc(answers, func(answer string) bool { return strings.EqualFold(line, answer) })
}
