package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// nameCallers gives the names of callers and groups the form in which Orla compares them: NFC (SPEC-TOOLS 8.4). Two names that
// look alike and differ in it would be two callers for limits, and one for roles.
func (c *Config) nameCallers() {
	for i := range c.Auth.Tokens {
		c.Auth.Tokens[i].Name = norm.NFC.String(c.Auth.Tokens[i].Name)
	}
	for i := range c.Callers {
		entry := &c.Callers[i]
		entry.Name, entry.Group = norm.NFC.String(entry.Name), norm.NFC.String(entry.Group)
	}
}

// callers checks callers and toolsets. Whether roles exist is known when the tools are searched.
func (v *verdict) callers() {
	sets := map[string]bool{}
	for i, t := range v.Toolsets {
		switch {
		case t.Name == "":
			v.wrongItem("toolsets", i, "wants a name")
		case sets[strings.ToLower(t.Name)]:
			v.wrongItem("toolsets", i, "%q is there twice", t.Name)
		case len(t.Tools) == 0:
			v.wrongItem("toolsets", i, "wants tools: the names of tools")
		}
		sets[strings.ToLower(t.Name)] = true
	}
	seen := map[string]bool{}
	for i, c := range v.Callers {
		key := fmt.Sprintf("%q %q", c.Name, c.Group)
		switch {
		case (c.Name == "") == (c.Group == ""):
			v.wrongItem("callers", i, "wants either name or group")
		case seen[key]:
			v.wrongItem("callers", i, "%s is there twice; put both entries into one", c.Name+c.Group)
		case min(c.Limits.CallsInFlight, c.Limits.CallsPerMinute, c.Limits.Sessions, c.Limits.Subscriptions) < 0:
			v.wrongItem("callers", i, "limits must not be below 0")
		}
		seen[key] = true
		for _, list := range [][]string{c.Roles, c.Toolsets, c.MaySpeakFor} {
			if slices.ContainsFunc(list, func(name string) bool { return strings.TrimSpace(name) == "" }) {
				v.wrongItem("callers", i, "has an empty name in roles, toolsets or may_speak_for")
			}
		}
		for _, role := range c.Console {
			if !slices.Contains(consoleRoles, role) {
				v.wrongItem("callers", i, "console: %q is not a role; the roles are %s", role, strings.Join(consoleRoles, ", "))
			}
		}
		for _, name := range c.Toolsets {
			if !sets[strings.ToLower(name)] {
				v.wrongItem("callers", i, "there is no toolset %q; define it in toolsets", name)
			}
		}
	}
	for i, t := range v.Auth.Tokens {
		isOwn := func(own string) bool { return strings.EqualFold(own, t.Name) }
		if isOwn("local") || slices.ContainsFunc(OwnCallers, isOwn) { // some may take local for all who need none
			v.doc.Faultf(fmt.Sprintf("auth.tokens[%d].name", i), "%q is the name of callers without a token; give the token another name", t.Name)
		}
	}
}

// isDecider reports whether a name looks like one that records of approvals have for who used the control socket, a link of the
// console or a client. The passkeys of such a person would be good for the token.
func isDecider(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "user:") || strings.HasPrefix(name, "client of ")
}

// consoleRoles are the roles that a caller can have on the page of the console (SPEC O3).
var consoleRoles = []string{"viewer", "operator", "approver"}

// ConsoleRoles returns the roles that a caller has on the page of the console; nil for none.
func (c *Config) ConsoleRoles(caller string, groups []string) (roles []string) {
	for _, entry := range c.Callers {
		if entry.Name == caller && caller != "" || entry.Group != "" && slices.Contains(groups, entry.Group) {
			roles = append(roles, entry.Console...)
		}
	}
	return roles
}

// Credential returns the file of a credential that systemd has loaded for this service.
func Credential(name string) (path string, _ error) {
	dir := os.Getenv("CREDENTIALS_DIRECTORY")
	path = filepath.Join(dir, name)
	if _, err := os.Stat(path); dir == "" || name != filepath.Base(name) || errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no systemd credential %q; set LoadCredential= in the unit", name)
	}
	return path, nil
}

// MakeToken says how to make the file of a token that is not there.
func MakeToken(path string, err error) string {
	if !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return "; to make it: openssl rand -base64 32 > " + path
}
