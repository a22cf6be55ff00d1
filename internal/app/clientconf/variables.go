package clientconf

import (
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// reference is a variable of a client's, as ${…} names it: ${env:NAME},
// ${NAME} and ${NAME:-fallback} of the environment, ${input:id} that VS Code
// asks for, and ${workspaceFolder} and its like.
type reference struct {
	scope    string // "env", "input", "client"; "" for none
	name     string
	fallback string // with the sign before it; "" for none
}

var (
	variables   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$\{([^{}]*)\}`) })
	environName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)(:-.*)?$`) })
	// clients are variables of clients; all others are of the environment.
	clients = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(workspaceFolder|workspaceFolderBasename|userHome|cwd|pathSeparator|/|file.*|config:.*|command:.*|selectedText|lineNumber|relativeFile.*|execPath|defaultBuildTask|extensionInstallFolder.*)$`)
	})
)

func referenceOf(inside string) reference {
	if name, ok := strings.CutPrefix(inside, "env:"); ok {
		inside = name
	} else if id, ok := strings.CutPrefix(inside, "input:"); ok {
		return reference{scope: "input", name: id}
	} else if clients().MatchString(inside) {
		return reference{scope: "client", name: inside}
	}
	if m := environName().FindStringSubmatch(inside); m != nil {
		return reference{scope: "env", name: m[1], fallback: m[2]}
	}
	return reference{scope: "client", name: inside}
}

// oneVariable returns the reference to a person or to the environment that a
// text is as a whole, and none for any other text.
func oneVariable(text string) reference {
	m := variables().FindStringSubmatch(text)
	if m == nil || m[0] != text {
		return reference{}
	}
	if r := referenceOf(m[1]); r.scope != "client" {
		return r
	}
	return reference{}
}

// plainText is text with what the variables in it stand for. What has no value
// here is a fault. own are variables that the program itself replaces.
func (c *conversion) plainText(at node, key, text string, own []member) (string, bool) {
	whole := true
	out := variables().ReplaceAllStringFunc(text, func(all string) string {
		r := referenceOf(all[2 : len(all)-1])
		if value, ok := c.valueOf(r); ok {
			return value
		}
		for _, m := range own {
			if r.scope == "env" && m.name == r.name {
				return all // such as mcp-remote's --header "Authorization: ${TOKEN}"
			}
		}
		whole = false
		switch r.scope {
		case "input":
			c.fault(at.at, key, "has ${input:%s}, which VS Code asks for: write the value; put a secret into env or a header, as the whole value", r.name)
		case "env":
			c.fault(at.at, key, "has ${%s}, which Orla does not replace here: write the value; put a secret into env or a header, as the whole value", r.name)
		default:
			c.fault(at.at, key, "has %s, which only the client knows: write the value", all)
		}
		return all
	})
	return out, whole
}

// valueOf returns what a reference stands for wherever Orla runs.
func (c *conversion) valueOf(r reference) (string, bool) {
	dir, home := c.group.opts.Dir, c.group.opts.Home
	switch {
	case r.scope == "env" && r.fallback != "":
		return strings.TrimPrefix(r.fallback, ":-"), true
	case r.scope != "client":
		return "", false
	}
	switch r.name {
	case "workspaceFolder", "cwd":
		return dir, dir != ""
	case "workspaceFolderBasename":
		return filepath.Base(dir), dir != ""
	case "userHome":
		return home, home != ""
	case "pathSeparator", "/":
		return string(filepath.Separator), true
	}
	return "", false
}
