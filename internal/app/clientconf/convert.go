package clientconf

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/service/address"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/resource"
)

// spec is what the McpServer says.
type spec struct {
	command string
	args    []string
	env     []variable

	endpoint string
	auth     manifest.Auth

	include []string
	secrets []kept
	private bool // a secret stands in args or endpoint, where no reference can
}

// variable is one of the environment: with a value, or with a secret's.
type variable struct {
	name, value string
	secret      secret.Ref
}

// kept is a value of the server's Secret.
type kept struct {
	key   string
	value secret.Value
}

// stdio converts a server that is a command.
func (c *conversion) stdio(entry, command node) {
	line, ok := c.line(entry, command)
	if !ok {
		return
	}
	if strings.TrimSuffix(filepath.Base(line[0]), ".exe") == "orla" {
		c.fault(command.at, ".command", "is Orla itself, which would call itself without end")
		return
	}
	dir, ok := c.folder(entry, command, line)
	if !ok {
		return
	}
	if dir != "" {
		line = append([]string{"sh", "-c", `cd "$0" && exec "$@"`, dir}, line...)
	}
	c.spec.command, c.spec.args = line[0], line[1:]
	c.environment(entry)
}

// folder returns the folder that the client starts the command in, "" if that
// does not matter.
func (c *conversion) folder(entry, command node, line []string) (dir string, ok bool) {
	dir = c.group.opts.Dir
	if cwd, given := entry.member("cwd"); given && cwd.kind != null {
		path, ok := c.plainText(cwd, ".cwd", cwd.text, nil)
		if dir == "" || filepath.IsAbs(path) {
			dir = path
		} else {
			dir = filepath.Join(dir, path)
		}
		switch {
		case !ok:
			return "", false
		case cwd.kind != text || !filepath.IsAbs(dir):
			c.fault(cwd.at, ".cwd", "wants an absolute path")
			return "", false
		}
		c.note(cwd.at, ".cwd", "is kept by a shell that changes to %s and becomes the command", dir)
		return dir, true
	}
	at, why := relative(dir, line)
	switch {
	case why == "":
		return "", true
	case dir == "":
		c.fault(command.at, at, "is relative to a folder that only the client knows: write the absolute path")
		return "", false
	}
	c.note(command.at, at, "%s is a path in %s: a shell changes to that folder and becomes the command", why, dir)
	return dir, true
}

// line returns command and args, with what their variables stand for.
func (c *conversion) line(entry, command node) ([]string, bool) {
	switch {
	case command.kind != text || command.text == "":
		c.fault(command.at, ".command", "wants the name or the path of a program, got %s", command)
		return nil, false
	case strings.ContainsRune(command.text, 0):
		c.fault(command.at, ".command", hasNUL)
		return nil, false
	}
	before := len(c.faults)
	env, _ := entry.member("env")
	head, _ := c.plainText(command, ".command", command.text, nil)
	line := []string{head}
	if args, ok := entry.member("args"); ok {
		for i, arg := range c.texts(args, ".args") {
			key := fmt.Sprintf(".args[%d]", i)
			at := args.at
			if i < len(args.items) {
				at = args.items[i].at
			}
			out, _ := c.plainText(node{at: at}, key, arg, env.members)
			line = append(line, out)
			if secretArg(line) {
				c.note(at, key, "looks like a secret and cannot be a reference: the file of the McpServer is for its owner's eyes alone; "+
					"better, let the program read it from a variable of env, if it can")
				c.spec.private = true
			}
		}
	}
	return line, len(c.faults) == before
}

// relative finds the first word of a command line that is a path in dir. Of a
// folder that is not known, only the command can be told to be in it.
func relative(dir string, line []string) (key, word string) {
	if strings.ContainsRune(line[0], filepath.Separator) && !filepath.IsAbs(line[0]) {
		return ".command", line[0]
	}
	if dir == "" {
		return "", ""
	}
	for i, word := range line[1:] {
		if word == "" || filepath.IsAbs(word) || strings.HasPrefix(word, "-") {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, word)); err == nil {
			return fmt.Sprintf(".args[%d]", i), word
		}
	}
	return "", ""
}

// environment converts env.
func (c *conversion) environment(entry node) {
	env, ok := entry.member("env")
	if !ok || env.kind == null {
		return
	}
	if env.kind != object {
		c.fault(env.at, ".env", "wants an object of variables by their names, got %s", env.kind)
		return
	}
	for _, m := range env.members {
		key := ".env." + m.name
		switch {
		case m.name == "" || strings.ContainsAny(m.name, "=\x00"):
			c.fault(m.at, key, "cannot be the name of a variable")
		case m.kind == null: // as if it were not set
		case m.kind == object || m.kind == array:
			c.fault(m.at, key, "wants a string, got %s", m.kind)
		case strings.ContainsRune(m.text, 0):
			c.fault(m.at, key, hasNUL)
		default:
			c.variable(m, key)
		}
	}
}

func (c *conversion) variable(m member, key string) {
	named := oneVariable(m.text)
	switch {
	case named.scope == "env" && named.name == m.name && named.fallback == "":
		c.note(m.at, key, "is left out: the server inherits %s from Orla's own environment", m.name)
	case named.scope == "env" && named.fallback == "", named.scope == "input":
		ref := c.ref(m.name)
		c.spec.env = append(c.spec.env, variable{name: m.name, secret: ref})
		c.note(m.at, key, "%s", c.wanted(named, ref))
	default:
		value, ok := c.plainText(m.node, key, m.text, nil)
		if !ok {
			return
		}
		v := variable{name: m.name, value: value}
		if isSecret(m.name, value) {
			v = variable{name: m.name, secret: c.keep(m.name, value)}
		}
		c.spec.env = append(c.spec.env, v)
	}
}

// keep puts a value into the server's Secret, and returns what refers to it.
func (c *conversion) keep(name, value string) secret.Ref {
	ref := c.ref(name)
	c.spec.secrets = append(c.spec.secrets, kept{ref.Key, secret.NewValue(value)})
	return ref
}

var notInKey = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[.-]|[^A-Za-z0-9_.-]`) })

// maxKey leaves room in what a word may have, for those that begin alike.
const maxKey = 100

// ref is what a value of the server's Secret is called, and no other, neither there
// nor as a variable.
func (c *conversion) ref(name string) secret.Ref {
	key := notInKey().ReplaceAllString(name, "_")
	ref := secret.Ref{Namespace: secret.DefaultNamespace, Name: c.Name, Key: key[:min(len(key), maxKey)]}
	for slices.Contains(c.refs, ref.Variable()) {
		ref.Key += "_"
	}
	c.refs = append(c.refs, ref.Variable())
	return ref
}

// wanted says how a secret that a client asks for, or has from its
// environment, is given to Orla.
func (c *conversion) wanted(v reference, ref secret.Ref) string {
	from := fmt.Sprintf("is %s of the client's environment", v.name)
	if v.scope == "input" {
		asked := v.name
		if says := c.group.inputs[v.name]; says != "" {
			asked += ": " + says
		}
		from = fmt.Sprintf("is asked for by VS Code (%s)", asked)
	}
	return fmt.Sprintf("%s: give it to Orla as the secret %s, or as the variable %s of Orla's environment", from, ref, ref.Variable())
}

// http converts a server that is far away.
func (c *conversion) http(entry, location node, key string) {
	at, ok := c.plainText(location, key, location.text, nil)
	if !ok {
		return
	}
	u, err := url.Parse(at)
	if err != nil {
		c.fault(location.at, key, "is not a URL; write it as https://host/path")
		return
	}
	user := u.User
	if u.User = nil; user != nil {
		at = u.String()
	}
	if err := address.CheckURL(at); err != nil {
		c.fault(location.at, key, "%v", err)
		return
	}
	if kind, _ := entry.member("type"); kind.kind == "" && strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/sse") {
		c.note(location.at, key, "ends as the addresses of the older SSE transport do, which Orla does not speak as a client; if it does not answer, ask for its Streamable HTTP address (often …/mcp)")
	}
	if user != nil && strings.Trim(user.String(), ":") != "" {
		password, _ := user.Password()
		c.spec.auth = c.basic(user.Username() + ":" + password)
	}
	if secretQuery(at) {
		c.note(location.at, key, "has what looks like a secret: the file of the McpServer is for its owner's eyes alone")
		c.spec.private = true
	}
	c.spec.endpoint = at
	if headers, ok := entry.member("headers"); ok && headers.kind != null {
		c.headers(headers)
	}
}

// headers converts the one header that authenticates. Authorization is it,
// else the first that looks secret.
func (c *conversion) headers(headers node) {
	if headers.kind != object {
		c.fault(headers.at, ".headers", "wants an object of headers by their names, got %s", headers.kind)
		return
	}
	chosen := slices.IndexFunc(headers.members, func(m member) bool { return strings.EqualFold(m.name, "Authorization") })
	if chosen < 0 {
		chosen = slices.IndexFunc(headers.members, func(m member) bool { return isSecret(m.name, m.text) })
	}
	for i, m := range headers.members {
		key := ".headers." + m.name
		switch {
		case m.kind != text:
			c.fault(m.at, key, "wants a string, got %s", m.kind)
		case i != chosen:
			c.note(m.at, key, "is left out: Orla sends no header to a server but the one that authenticates; if the server needs it, let a command add it, such as npx mcp-remote URL --header")
		case !c.spec.auth.IsZero():
			c.note(m.at, key, "is left out: the URL has a user and a password already")
		default:
			c.header(m, key)
		}
	}
}

// header makes an auth profile of a header.
func (c *conversion) header(m member, key string) {
	if err := resource.CheckHeader(m.name); err != nil {
		c.fault(m.at, key, "%v", err)
		return
	}
	value := strings.TrimSpace(m.text)
	scheme, rest, _ := strings.Cut(value, " ")
	auth := manifest.Auth{Profile: manifest.AuthAPIKey, HeaderName: m.name}
	switch {
	case !strings.EqualFold(m.name, "Authorization"):
	case strings.EqualFold(scheme, "Bearer"):
		auth, value = manifest.Auth{Profile: manifest.AuthBearer}, strings.TrimSpace(rest)
	case strings.EqualFold(scheme, "Basic"):
		if pair, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest)); err == nil {
			if value = string(pair); value != "" {
				c.spec.auth = c.basic(value) // in which ${…} stands for itself
				return
			}
		}
	}
	if value == "" {
		c.fault(m.at, key, "is empty")
		return
	}
	if named := oneVariable(value); named.scope != "" && named.fallback == "" {
		auth.Secret = c.ref(secret.DefaultKey)
		c.note(m.at, key, "%s", c.wanted(named, auth.Secret))
	} else {
		value, ok := c.plainText(m.node, key, value, nil)
		if !ok {
			return
		}
		if strings.ContainsFunc(value, unsendable) {
			c.fault(m.at, key, "has a character that no header can have: a line break, or another control character")
			return
		}
		auth.Secret = c.keep(secret.DefaultKey, value)
	}
	c.spec.auth = auth
}

// unsendable reports whether no header can have a character.
func unsendable(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// basic is what authenticates by a user and a password: the profile for it, or
// the header as it is sent if they are not what the profile and YAML can have.
func (c *conversion) basic(pair string) manifest.Auth {
	if utf8.ValidString(pair) && strings.Contains(pair, ":") && !strings.ContainsFunc(pair, unicode.IsControl) {
		return manifest.Auth{Profile: manifest.AuthBasic, Secret: c.keep(secret.DefaultKey, pair)}
	}
	header := "Basic " + base64.StdEncoding.EncodeToString([]byte(pair))
	return manifest.Auth{Profile: manifest.AuthAPIKey, HeaderName: "Authorization", Secret: c.keep(secret.DefaultKey, header)}
}
