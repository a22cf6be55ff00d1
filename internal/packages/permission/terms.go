package permission

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/file/regularfile"
)

// Machine is what matters of this machine for a permission.
type Machine struct {
	Home string // the home of Orla's user; "" if there is none
	// Private are the files and folders of Orla itself, absolute. Nothing in them is granted, and who can change
	// them is not limited by what Orla grants.
	Private []string
	// Programs are the folders in which this user's programs are, or keep what they run: who can change those can run
	// anything, too.
	Programs []string
}

// Terms is what an isolated process may do.
type Terms struct {
	Reads, Writes []string // absolute paths without links, outer ones only; "/" is all
	Network       bool
	Env           []string
	// Home is the home of Orla's user, without links, if paths in it were granted as ~; "" otherwise.
	Home string
}

// Of returns the terms for permissions that were granted. A path that leads through a link is refused: who can
// change the link could choose what is shown.
func (m Machine) Of(granted []Permission) (t Terms, err error) {
	var faults []error
	for _, p := range Sorted(granted) {
		switch p.Kind {
		case Network:
			t.Network = true
		case Env:
			t.Env = append(t.Env, p.Target)
		case Remote, Secret: // no process has the one, and the other is resolved when a process starts
		case Read, Write:
			path, err := m.real(p.Target)
			if err == nil {
				err = m.notOwn(path)
			}
			if err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", p, err))
			} else if p.Kind == Read {
				t.Reads = append(t.Reads, path)
			} else {
				t.Writes = append(t.Writes, path)
			}
			if err == nil && m.Home != "" && (p.Target == "" || strings.HasPrefix(p.Target, "~")) {
				t.Home = regularfile.Real(m.Home)
			}
		}
	}
	t.Writes = outermost(t.Writes, nil)
	t.Reads = outermost(t.Reads, t.Writes) // who may write may read
	if len(faults) > 0 {
		return Terms{}, errors.Join(faults...)
	}
	return t, nil
}

// outermost returns the paths that are not below another one, or below one of others.
func outermost(paths, others []string) []string {
	slices.Sort(paths)
	var list []string
	for _, path := range slices.Compact(paths) {
		inside := func(folder string) bool { return Below(path, folder) }
		if !slices.ContainsFunc(list, inside) && !slices.ContainsFunc(others, inside) {
			list = append(list, path)
		}
	}
	return list
}

// notOwn returns an error for a path in a folder of Orla itself.
func (m Machine) notOwn(path string) error {
	for _, private := range m.Private {
		if private = regularfile.Real(private); Below(path, private) {
			return fmt.Errorf("%s belongs to Orla itself, and is not granted", private)
		}
	}
	return nil
}

// real returns the absolute path of a target. "" is the root.
func (m Machine) real(target string) (string, error) {
	path, err := m.expand(target)
	if err != nil || path == "/" {
		return path, err
	}
	if real := regularfile.Real(path); real != path {
		return "", fmt.Errorf("leads through a link, to %s", real)
	}
	return path, nil
}

// expand returns the path of a target, in which only the home has no links.
func (m Machine) expand(target string) (string, error) {
	rest, ok := strings.CutPrefix(target, "~")
	switch {
	case target == "":
		return "/", nil
	case ok && m.Home == "":
		return "", errors.New("there is no home")
	case ok:
		return filepath.Join(regularfile.Real(m.Home), rest), nil
	}
	return target, nil
}

// Resolve returns a permission as it is to be granted: with links in its path resolved now.
func (m Machine) Resolve(p Permission) (Permission, error) {
	if p.Kind != Read && p.Kind != Write || p.Target == "" {
		return p, nil
	}
	path, err := m.expand(p.Target)
	if err != nil {
		return p, err
	}
	real := regularfile.Real(path)
	if real == path {
		return p, nil
	}
	q := Permission{p.Kind, real}
	return q, q.check()
}

// Unenforced returns which permissions Orla cannot hold a process to, each with the reason. They have to be
// accepted by name.
func (m Machine) Unenforced(list []Permission) (those []Permission, reasons []string) {
	add := func(p Permission, format string, args ...any) {
		those, reasons = append(those, p), append(reasons, fmt.Sprintf(format, args...))
	}
	for _, p := range Sorted(list) {
		switch p.Kind {
		case Network:
			if p.Target != "" {
				add(p, "Orla cannot limit connections to a host: the tool gets the whole network, including services of this machine")
			}
		case Write:
			if why := m.reaches(p.Target); why != "" {
				add(p, "%s", why)
			}
		case Read, Env, Remote, Secret: // files of Orla itself are not shown, also not those that come later
		}
	}
	return those, reasons
}

// reaches says why a process that can change the files at a target can get more than it was granted; "" if it
// cannot.
func (m Machine) reaches(target string) string {
	path, err := m.expand(target)
	if err != nil {
		return ""
	}
	path = regularfile.Real(path)
	for _, private := range m.Private {
		if private = regularfile.Real(private); Below(private, path) {
			return fmt.Sprintf("the tool could change files of Orla itself, such as %s, and so what it may do", private)
		}
	}
	for _, folder := range m.Programs {
		if folder = regularfile.Real(folder); Below(folder, path) || Below(path, folder) {
			return fmt.Sprintf("the tool could change programs, or what programs keep, in %s, and so run anything as this user", folder)
		}
	}
	home := regularfile.Real(m.Home)
	rest, inside := strings.CutPrefix(path, home+"/")
	settings := inside && strings.HasPrefix(rest, ".")
	if path == "/" || m.Home != "" && (Below(home, path) || settings) {
		return "the tool could change what other programs of this user do, and so what it may do"
	}
	return ""
}
