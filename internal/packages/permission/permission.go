// Package permission says what an installed package asks for and was granted (SPEC M7): it parses permissions,
// compares two lists of them, and turns what was granted into the terms of an isolated process.
package permission

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// Kind is a kind of permission.
type Kind string

// The kinds of permissions.
const (
	Read    Kind = "filesystem:read"
	Write   Kind = "filesystem:write"
	Network Kind = "network"
	Env     Kind = "env"
	Remote  Kind = "remote" // of an McpServer elsewhere: Orla itself sends calls to the host
	Secret  Kind = "secret" // a key of the package's own Secret
)

// Permission is one permission. The zero Permission is none.
type Permission struct {
	Kind Kind
	// Target is a path that begins with / or ~, a host, the name of a variable or the key of a secret. "" is all files or all hosts.
	Target string
}

// MaxLength bounds a permission, in bytes, and Most how many a package has: somebody has to read them.
const (
	MaxLength = 300
	Most      = 32
)

var (
	key      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.-]{1,253}$`) })
	variable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })
	host     = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(\*\.)?[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*(:[1-9][0-9]{0,4})?$`)
	})
)

// Parse reads a permission.
func Parse(text string) (Permission, error) {
	if len(text) > MaxLength {
		return Permission{}, fmt.Errorf("is longer than %d bytes", MaxLength)
	}
	for _, kind := range [...]Kind{Read, Write, Network, Env, Remote, Secret} {
		if text == string(kind) && kind != Env && kind != Remote && kind != Secret {
			return Permission{Kind: kind}, nil
		}
		target, ok := strings.CutPrefix(text, string(kind)+":")
		if !ok {
			continue
		}
		p := Permission{kind, target}
		return p, p.check()
	}
	return Permission{}, fmt.Errorf("%q is not a permission: those are filesystem:read[:PATH], filesystem:write[:PATH], network[:HOST] and env:NAME, remote:HOST of a remote server, and secret:KEY for a secret of the package", text)
}

// check returns what is wrong with the target.
func (p Permission) check() error {
	switch p.Kind {
	case Read, Write:
		return checkPath(p.Target)
	case Network:
		if !host().MatchString(p.Target) {
			return fmt.Errorf("%q is not a host, such as api.example.com", p.Target)
		}
	case Remote:
		if !host().MatchString(p.Target) || strings.HasPrefix(p.Target, "*") {
			return fmt.Errorf("%q is not the host of a server, such as mcp.example.com", p.Target)
		}
	case Secret:
		if !key().MatchString(p.Target) {
			return fmt.Errorf("%q is not the key of a secret", p.Target)
		}
	case Env:
		switch {
		case !variable().MatchString(p.Target):
			return fmt.Errorf("%q is not the name of an environment variable", p.Target)
		case private(p.Target):
			return fmt.Errorf("%s is for Orla alone, and no tool can have it", p.Target)
		}
	}
	return nil
}

// own are the folders that each sandbox has its own version of: nothing of the machine is shown there.
var own = []string{"/proc", "/sys", "/dev"}

func checkPath(path string) error {
	rest, home := strings.CutPrefix(path, "~")
	switch {
	case home && rest != "" && rest[0] != '/', !home && !filepath.IsAbs(path):
		return fmt.Errorf("%q is not a path that begins with / or ~/", path)
	case !home && filepath.Clean(path) != path, home && rest != "" && filepath.Clean(rest) != rest, strings.HasSuffix(path, "~/"):
		return fmt.Errorf("%q is not a path without . and .. and without a / at its end", path)
	case strings.ContainsFunc(path, func(c rune) bool { return !unicode.IsPrint(c) || c == '\uFFFD' }): // a lock cannot have it
		return fmt.Errorf("%q has a character that a path should not have", path)
	case strings.Contains(path, "  "), strings.ContainsAny(path, "\u115f\u1160\u2800\u3164\uffa0"): // blanks that look like the end of a line
		return fmt.Errorf("%q has several blanks in a row, or a letter that looks like one: what is shown could be taken for something else", path)
	case path == "/", path == "/tmp":
		return fmt.Errorf("%s cannot be shown to a sandbox, which has its own", path)
	}
	for _, dir := range own {
		if Below(path, dir) {
			return fmt.Errorf("%s cannot be shown to a sandbox, which has its own %s", path, dir)
		}
	}
	return nil
}

// private reports whether a variable is never given to a tool.
func private(name string) bool {
	switch name {
	case "NOTIFY_SOCKET", "INVOCATION_ID", "JOURNAL_STREAM", "CREDENTIALS_DIRECTORY", "MAINPID", "MANAGERPID":
		return true
	}
	return slices.ContainsFunc([]string{"ORLA_", "ORLOJ_SECRET_", "WATCHDOG_", "LISTEN_", "FDSTORE"}, func(prefix string) bool {
		return strings.HasPrefix(name, prefix)
	})
}

// String is the permission as Parse reads it.
func (p Permission) String() string {
	if p.Target == "" {
		return string(p.Kind)
	}
	return string(p.Kind) + ":" + p.Target
}

// Explain says what the permission means.
func (p Permission) Explain() string {
	switch {
	case p.Kind == Read && p.Target == "":
		return "read all files that Orla's user can read"
	case p.Kind == Write && p.Target == "":
		return "change all files that Orla's user can change"
	case p.Kind == Read:
		return "read " + p.Target + " and all below it"
	case p.Kind == Write:
		return "read and change " + p.Target + " and all below it"
	case p.Kind == Network && p.Target == "":
		return "the whole network, including services of this machine; an Orla without tokens answers it too"
	case p.Kind == Network:
		return "connect to " + p.Target
	case p.Kind == Secret:
		return "the secret " + p.Target + " that you set for it"
	case p.Kind == Remote:
		return "Orla sends what its tools are called with, and its secrets, to " + p.Target
	}
	return "read the environment variable " + p.Target
}

// ParseAll reads a list of permissions. The result is sorted and has each one once.
func ParseAll(texts []string) ([]Permission, error) {
	var list []Permission
	for _, text := range texts {
		p, err := Parse(text)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return Sorted(list), nil
}

// Sorted returns a sorted copy of a list, with each permission once.
func Sorted(list []Permission) []Permission {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Permission) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(list)
}

// Texts returns permissions as Parse reads them.
func Texts(list []Permission) []string {
	texts := make([]string, 0, len(list))
	for _, p := range list {
		texts = append(texts, p.String())
	}
	return texts
}

// More returns which of the asked permissions the granted ones do not include.
func More(asked, granted []Permission) []Permission {
	return slices.DeleteFunc(slices.Clone(asked), func(p Permission) bool {
		return slices.ContainsFunc(granted, func(g Permission) bool { return g.includes(p) })
	})
}

// includes reports whether whoever has p needs other for nothing.
func (p Permission) includes(other Permission) bool {
	switch {
	case p == other:
		return true
	case p.Kind == other.Kind, p.Kind == Write && other.Kind == Read:
	default:
		return false
	}
	if p.Target == "" {
		return true
	}
	return (p.Kind == Read || p.Kind == Write) && other.Target != "" && Below(other.Target, p.Target)
}

// Below reports whether a path is a folder or below it. Both are clean.
func Below(path, folder string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(folder, "/"))
	return ok && (rest == "" || rest[0] == '/')
}
