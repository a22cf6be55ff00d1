// Package clientconf reads the files in which MCP clients keep their servers,
// and says what each server is as a resource of Orla's: an McpServer, and the
// Secret that it needs. It writes nothing.
//
// Its invariant: what a file says of a server is in the resource, or there is
// a note or a fault that says why not and what to do. No secret is in a
// document that is not marked private.
package clientconf

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/file/yamldoc"
)

// Options says what the variables and relative paths of a file stand for.
type Options struct {
	// Dir is the absolute folder that the client would run servers in: that of
	// the project. If "", relative paths are left as they are.
	Dir string
	// Home is the user's home. If "", ${userHome} is a fault.
	Home string
}

// DirOf returns the folder of the project that file belongs to by its place:
// .mcp.json, .cursor/mcp.json or .vscode/mcp.json. It is "" for the files of a
// user and of no project. file is absolute.
func DirOf(file, home string) string {
	dir := filepath.Dir(file)
	switch base := filepath.Base(dir); {
	case filepath.Base(file) == ".mcp.json":
		return dir
	case base != ".cursor" && base != ".vscode":
		return ""
	case base == ".cursor" && filepath.Dir(dir) == filepath.Clean(home):
		return "" // which is for all projects
	}
	return filepath.Dir(dir)
}

// Server is one entry of a file.
type Server struct {
	// Name is what the McpServer and its Secret are called: the entry's own
	// name, with what may not be in a name replaced.
	Name string
	// Own is the name that the file has, and Key where it stands there.
	Own, Key string
	// Disabled is set when the client does not start the server either.
	Disabled bool
	// Notes say what is otherwise than in the client, or needs a hand.
	Notes []yamldoc.Fault
	// Err says why there is no McpServer, as yamldoc.Faults; nil if there is one.
	Err error

	spec spec
}

// Parse reads a file, whichever client's it is. Comments and trailing commas
// are allowed. The error is yamldoc.Faults of the file as a whole; what is
// wrong with one server is in its Err, and says nothing of the others.
func Parse(file string, data []byte, opts Options) ([]Server, error) {
	src := newSource(file, data)
	root, err := src.parse()
	if err != nil {
		return nil, err
	}
	groups, err := src.groups(root, opts)
	if err != nil {
		return nil, err
	}
	var servers []Server
	names := map[string]string{}
	for _, g := range groups {
		for _, m := range g.at.members {
			c := conversion{src: src, group: g, Server: Server{Name: allowedName(m.name), Own: m.name, Key: g.key + "." + m.name}}
			s := c.convert(m)
			if other, taken := names[strings.ToLower(s.Name)]; taken && s.Err == nil {
				s.Err = yamldoc.Faults{src.fault(m.at, s.Key, "its name would be %q, which %s has; give one of the two another name", s.Name, other)}
			}
			names[strings.ToLower(s.Name)] = s.Key
			servers = append(servers, s)
		}
	}
	return servers, nil
}

// group is a list of servers in a file, and what holds for all of them.
type group struct {
	key  string // of at
	at   node   // an object
	opts Options
	// inputs are what VS Code asks people for, by id.
	inputs map[string]string
}

// groups finds the lists of servers in a file.
func (s *source) groups(root node, opts Options) ([]group, error) {
	if root.kind != object {
		return nil, yamldoc.Faults{s.fault(root.at, "", "wants an object at the top, got %s", root.kind)}
	}
	var groups []group
	var errs yamldoc.Faults
	add := func(key string, holder node, name string, opts Options) {
		list, ok := holder.member(name)
		switch {
		case !ok:
		case list.kind != object:
			errs = append(errs, s.fault(list.at, key, "wants an object of servers by their names, got %s", list.kind))
		default:
			groups = append(groups, group{key: key, at: list, opts: opts, inputs: inputsOf(holder)})
		}
	}
	add("mcpServers", root, "mcpServers", opts)   // Claude Desktop, Claude Code, Cursor
	add("servers", root, "servers", opts)         // VS Code, mcp.json
	add("mcp.servers", root, "mcp.servers", opts) // VS Code, settings.json
	if mcp, ok := root.member("mcp"); ok {
		add("mcp.servers", mcp, "servers", opts)
	}
	if projects, ok := root.member("projects"); ok { // Claude Code, ~/.claude.json
		for _, project := range projects.members {
			there := opts
			there.Dir = project.name
			add("projects."+project.name+".mcpServers", project.node, "mcpServers", there)
		}
	}
	switch {
	case errs != nil:
		return nil, errs
	case groups == nil:
		return nil, yamldoc.Faults{s.fault(root.at, "", "names no MCP servers: wants mcpServers (Claude, Cursor), servers (VS Code's mcp.json) or mcp.servers (VS Code's settings.json)")}
	}
	return groups, nil
}

// inputsOf returns what VS Code asks for, with what it says to people.
func inputsOf(holder node) map[string]string {
	list, ok := holder.member("inputs")
	if !ok {
		return nil
	}
	inputs := map[string]string{}
	for _, input := range list.items {
		id, _ := input.member("id")
		text, _ := input.member("description")
		inputs[id.text] = text.text
	}
	return inputs
}

// conversion is the work on one server.
type conversion struct {
	Server
	src    *source
	group  group
	refs   []string // the variables of the secrets that were given a name
	faults yamldoc.Faults
}

func (c *conversion) note(at int, key, format string, args ...any) {
	c.Notes = append(c.Notes, c.src.fault(at, c.Key+key, format, args...))
}

func (c *conversion) fault(at int, key, format string, args ...any) {
	c.faults = append(c.faults, c.src.fault(at, c.Key+key, format, args...))
}

// convert makes a server of an entry.
func (c *conversion) convert(entry member) Server {
	switch {
	case c.Name == "":
		c.fault(entry.at, "", "its name has no letter and no digit; give it another")
	case entry.kind != object:
		c.fault(entry.at, "", "wants an object, got %s", entry.kind)
	default:
		if c.Name != c.Own {
			c.note(entry.at, "", "is called %s here: a name has letters, digits, _ and -, %d at most", c.Name, maxName)
		}
		off, _ := entry.member("disabled")
		on, _ := entry.member("enabled")
		c.Disabled = off.text == "true" || on.text == "false"
		c.transport(entry.node)
		c.rest(entry.node)
	}
	if c.faults != nil {
		c.Err, c.spec = c.faults, spec{}
	}
	return c.Server
}

// transport converts what a server is reached by.
func (c *conversion) transport(entry node) {
	command, hasCommand := entry.member("command")
	address, key, hasAddress := addressOf(entry)
	kind, at := c.kindOf(entry)
	switch {
	case hasCommand && hasAddress:
		c.fault(address.at, key, "is set together with command; a server has only one of them")
	case hasCommand && kind != "" && kind != "stdio":
		c.fault(at, ".type", "is %q, and there is a command; wants stdio", kind)
	case hasCommand:
		c.stdio(entry, command)
	case kind == "sse":
		c.fault(at, ".type", "sse is the transport before Streamable HTTP, which Orla does not speak as a client: "+
			"ask the server's documentation for its Streamable HTTP address (often …/mcp), or give a command that translates, such as npx mcp-remote URL")
	case hasAddress && kind == "stdio":
		c.fault(at, ".type", "is stdio, but there is a %s instead of a command", key[1:])
	case hasAddress:
		c.http(entry, address, key)
	default:
		c.fault(entry.at, "", "has neither command nor url")
	}
}

// addressOf returns the URL of a server, under whichever name the client has it.
func addressOf(entry node) (address node, key string, given bool) {
	for _, name := range []string{"url", "serverUrl", "httpUrl"} {
		if n, ok := entry.member(name); ok {
			return n, "." + name, true
		}
	}
	return node{}, "", false
}

// kindOf returns the transport as the file names it, in one spelling of its
// many, and where it does so.
func (c *conversion) kindOf(entry node) (string, int) {
	for _, name := range []string{"type", "transport"} {
		n, ok := entry.member(name)
		if !ok {
			continue
		}
		switch text := strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(n.text)); text {
		case "stdio", "sse":
			return text, n.at
		case "http", "streamablehttp", "streamable":
			return "http", n.at
		default:
			c.fault(n.at, "."+name, "wants stdio, http, streamable-http or sse, got %s", n)
			return "", n.at
		}
	}
	return "", entry.at
}

// leftOut are keys that say what Orla has nothing like, or has elsewhere, and
// what to do about each.
var leftOut = map[string]string{
	"autoApprove":   "which tools run unasked is for the client that calls them",
	"alwaysAllow":   "which tools run unasked is for the client that calls them",
	"alwaysLoad":    "which tools a model is shown is for the client that calls them",
	"trust":         "which tools run unasked is for the client that calls them",
	"disabledTools": "name the tools to be served in spec.tool_filter.include",
	"excludeTools":  "name the tools to be served in spec.tool_filter.include",
	"envFile":       "put its variables into spec.env, or into Orla's own environment",
	"timeout":       "set spec.default_tool_runtime.timeout, such as 60s",
	"auth":          "log in by orla login NAME, or give spec.auth a token, or client credentials by its profile oauth2_client_credentials",
	"oauth":         "log in by orla login NAME, or give spec.auth a token, or client credentials by its profile oauth2_client_credentials",
	"headersHelper": "set the header by spec.auth and a secret, which is read for each call",
	"dev":           "orla dev NAME shows what a server does; spec.env and the log are for the rest",
	"sandbox":       "Orla runs the server as its own user: give Orla the rights that the server may have",
}

// known are keys that are converted, or that are of no use but to the client.
var known = []string{
	"type", "transport", "command", "args", "env", "cwd", "url", "serverUrl", "httpUrl", "headers", "disabled", "enabled",
	"includeTools", "name", "description", "icon", "gallery", "version", "$schema",
}

// rest converts the filter of tools, and tells of the keys that are left out.
func (c *conversion) rest(entry node) {
	if include, ok := entry.member("includeTools"); ok {
		c.spec.include = c.texts(include, ".includeTools")
		if include.kind == array && len(include.items) == 0 || slices.Contains(c.spec.include, "") {
			c.fault(include.at, ".includeTools", "wants the names of the tools to be served, and none empty; without it all are served")
		}
	}
	for _, m := range entry.members {
		if slices.Contains(known, m.name) {
			continue
		}
		why, ok := leftOut[m.name]
		if !ok {
			why = "Orla does not know it"
		}
		c.note(m.at, "."+m.name, "is left out: %s", why)
	}
}

// hasNUL is what is wrong with a word that no program can be given.
const hasNUL = "must not hold a NUL byte"

// texts returns the strings of an array.
func (c *conversion) texts(list node, key string) []string {
	if list.kind == null {
		return nil
	}
	if list.kind != array {
		c.fault(list.at, key, "wants an array of strings, got %s", list.kind)
		return nil
	}
	texts := make([]string, 0, len(list.items))
	for i, item := range list.items {
		at := fmt.Sprintf("%s[%d]", key, i)
		switch {
		case item.kind != text && item.kind != number:
			c.fault(item.at, at, "wants a string, got %s", item.kind)
		case strings.ContainsRune(item.text, 0):
			c.fault(item.at, at, hasNUL)
		default:
			texts = append(texts, item.text)
		}
	}
	return texts
}

// maxName leaves room for the names of the server's tools behind its own.
const maxName = 40

// allowedName is a name with what may not stand in one replaced; "" if nothing is left.
func allowedName(own string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z', r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '-'
	}, own)
	for strings.Contains(name, "--") { // which stands between a server and its tool
		name = strings.ReplaceAll(name, "--", "-")
	}
	name = strings.TrimLeft(name, "-_")
	return strings.TrimRight(name[:min(len(name), maxName)], "-_")
}
