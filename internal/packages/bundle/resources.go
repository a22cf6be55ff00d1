package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/packages/origin"
	"github.com/orla-project/orla/internal/packages/registry"
	"github.com/orla-project/orla/manifest/keys"
)

// imageName is the name of an image in a registry. A first part with a colon is a host with a port: podman would take another one for a
// transport, such as oci-archive, and then the rest for a path of this machine.
var imageName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^((localhost|[A-Za-z0-9][A-Za-z0-9-]*(\.[A-Za-z0-9-]+)+)(:[0-9]+)?/)?([A-Za-z0-9][A-Za-z0-9._-]*/)+[A-Za-z0-9][A-Za-z0-9._-]*(:[A-Za-z0-9_][A-Za-z0-9._-]*)?(@sha256:[0-9a-f]{64})?$`)
})

// image makes an McpServer that an engine runs from an image.
func (m maker) image(p registry.Package, a *asker) (*Made, error) {
	image := p.Identifier
	if last := image[strings.LastIndex(image, "/")+1:]; !strings.ContainsAny(last, ":@") && p.Version != "" {
		image += ":" + p.Version
	}
	if !imageName().MatchString(image) || len(image) > 500 {
		return nil, fmt.Errorf("%q is not the name of an image", line(image, 100))
	}
	if !m.here && origin.ImageMayBeThisMachine(image) {
		return nil, fmt.Errorf("its image %q may be on this machine, which a registry elsewhere cannot name", line(image, 100))
	}
	made := m.made()
	flags := []string{"run", "--interactive", "--rm", "--init", "--cap-drop=ALL", "--security-opt=no-new-privileges"}
	var env imageVariables
	add := func(name string, v value) error {
		if ignore, err := checkVariable(name); err != nil || ignore {
			return err
		}
		return env.add(name, v)
	}
	if err := m.engineArguments(p, a, made, add); err != nil {
		return nil, err
	}
	for _, v := range p.EnvironmentVariables {
		got, err := a.input(v.Name, v.Input)
		if err == nil && got.there {
			err = add(v.Name, got)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(env) > 0 {
		flags = append(flags, "--env-file=/dev/fd/3")
	}
	flags = append(flags, image)
	args, err := a.arguments(p.PackageArguments)
	if err != nil {
		return nil, err
	}
	for _, v := range args {
		if v.secret {
			return nil, errors.New("it takes a secret as an argument, which others on the machine could see")
		}
		flags = append(flags, v.text)
	}
	made.Questions = a.questions
	made.Notes = append(made.Notes, "it runs the image "+image+" by "+m.opts.Engine+", with network")
	made.Image = image
	command := m.opts.Engine
	if len(env) > 0 {
		command, flags = "sh", append([]string{"-c", env.script(), "orla", m.opts.Engine}, flags...)
	}
	out := m.resource()
	fmt.Fprintf(out, "  transport: stdio\n  command: %s\n  args: %s\n", scalar(command), list(flags))
	if len(env) > 0 {
		out.WriteString("  env:\n")
	}
	for i, v := range env {
		fmt.Fprintf(out, "    - name: %s\n", scalar(env.key(i)))
		if v.secret {
			fmt.Fprintf(out, "      secretRef: %s\n", made.keep(v.name, v.text))
		} else {
			fmt.Fprintf(out, "      value: %s\n", scalar(v.text))
		}
	}
	out.WriteString("  pin: hold\n")
	made.Resource = out.Bytes()
	return made, a.err()
}

// made returns a Made without content.
func (m maker) made() *Made {
	return &Made{Name: m.name, Version: semantic(m.server.Version), Secrets: map[string]string{}}
}

// resource returns the beginning of the McpServer.
func (m maker) resource() *bytes.Buffer {
	var out bytes.Buffer
	fmt.Fprintf(&out, "# Written by Orla: a server of an MCP registry, %s.\napiVersion: orloj.dev/v1\nkind: McpServer\nmetadata:\n  name: %s\nspec:\n",
		line(m.server.Name, 200), scalar(m.name))
	return &out
}

// keep puts a value into the Secret of the package, and returns what refers to it.
func (m *Made) keep(key, value string) (ref string) {
	m.Secrets[key] = value
	return scalar(keys.PackageSecrets + "/" + m.Name + ":" + key)
}

// imageVariables are the variables of an image. They must not be those of its engine, which the server could make run another program
// (CONTAINERS_CONF) or send everything elsewhere (DOCKER_HOST): the engine has them under names of Orla's, and a shell hands them on
// in a pipe.
type imageVariables []imageVariable

type imageVariable struct {
	name string
	value
}

func (env *imageVariables) add(name string, v value) error {
	switch {
	case slices.ContainsFunc(*env, func(other imageVariable) bool { return other.name == name }):
		return fmt.Errorf("it sets the variable %s twice", name)
	case strings.ContainsAny(v.text, "\r\n"):
		return fmt.Errorf("the value of its variable %s has a line break, which cannot be given to an image", name)
	}
	*env = append(*env, imageVariable{name, v})
	return nil
}

// key returns the name that a variable has for the engine.
func (env imageVariables) key(i int) string { return fmt.Sprintf("IMAGE_ENV_%d", i) }

// script runs its arguments with the variables in descriptor 3. A shell does not expand a second time what it has put in.
func (env imageVariables) script() string {
	var out strings.Builder
	out.WriteString("exec \"$@\" 3<<END_OF_VARIABLES\n")
	for i, v := range env {
		fmt.Fprintf(&out, "%s=$%s\n", v.name, env.key(i))
	}
	out.WriteString("END_OF_VARIABLES\n")
	return out.String()
}

// engineArguments reads what a server wants of docker. It accepts only variables, and what changes nothing, which Orla leaves out: a flag
// that is not known could show the image anything of this machine, and nobody would have agreed to that.
func (m maker) engineArguments(p registry.Package, a *asker, made *Made, add func(string, value) error) error {
	refused := func(flag string) error {
		return fmt.Errorf("its argument %q for docker is not accepted: an image of a registry gets variables, and no folders, devices or settings of this machine; "+
			"if you trust it, write an McpServer of your own that runs it", line(flag, 60))
	}
	for _, arg := range p.RuntimeArguments { // before anything is asked
		if !slices.Contains(engineFlags, arg.Name) && arg.Type == "named" {
			return refused(arg.Name)
		}
	}
	args, err := a.arguments(p.RuntimeArguments)
	if err != nil {
		return err
	}
	for i := 0; i < len(args); i++ {
		flag, inline, has := strings.Cut(args[i].text, "=")
		next := func() value {
			if !has && i+1 < len(args) {
				i++
				return args[i]
			}
			return value{text: inline, there: has, secret: args[i].secret}
		}
		switch {
		case !slices.Contains(engineFlags, flag):
			return refused(args[i].text)
		case flag == "-p" || flag == "--publish":
			made.Notes = append(made.Notes, "it wants the port "+line(next().text, 60)+" of this machine, which it does not get")
		case flag == "--name":
			next()
		case flag == "-e" || flag == "--env":
			v := next()
			name, text, _ := strings.Cut(v.text, "=")
			if err := add(name, value{text, true, v.secret}); err != nil {
				return err
			}
		case has:
			return refused(args[i].text)
		}
	}
	return nil
}

// engineFlags are the flags of docker that a server may have.
var engineFlags = []string{"-i", "--interactive", "--rm", "--init", "run", "-p", "--publish", "--name", "-e", "--env"}

// remote makes an McpServer of a server elsewhere.
func (m maker) remote(r registry.Transport, a *asker) (*Made, error) {
	if r.Type != "streamable-http" && r.Type != "streamable" && r.Type != "http" {
		return nil, fmt.Errorf("it speaks %s, and Orla speaks Streamable HTTP", line(r.Type, 40))
	}
	endpoint, err := a.endpoint(r)
	if err != nil {
		return nil, err
	}
	made, out := m.made(), m.resource()
	fmt.Fprintf(out, "  transport: http\n  endpoint: %s\n", scalar(endpoint))
	for _, h := range r.Headers {
		got, err := a.input(h.Name, h.Input)
		switch {
		case err != nil:
			return nil, err
		case !got.there:
			continue
		case len(made.Secrets) > 0 || !headerName().MatchString(h.Name):
			return nil, fmt.Errorf("it needs the header %q in addition to another one", line(h.Name, 60))
		}
		profile, secret := "api_key_header\n    headerName: "+scalar(h.Name), got.text
		if bearer, is := bearerToken(h.Name, got.text); is {
			profile, secret = "bearer", bearer
		}
		fmt.Fprintf(out, "  auth:\n    profile: %s\n    secretRef: %s\n", profile, made.keep("header", secret))
	}
	out.WriteString("  pin: hold\n")
	made.Questions = a.questions
	made.Notes = append(made.Notes, "what tools are called with is sent to "+endpoint)
	made.Resource = out.Bytes()
	return made, a.err()
}

var headerName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9-]{1,100}$`) })

// bearerToken returns the token of a header Authorization.
func bearerToken(name, text string) (token string, is bool) {
	if !strings.EqualFold(name, "Authorization") {
		return "", false
	}
	scheme, token, two := strings.Cut(text, " ")
	if two && !strings.EqualFold(scheme, "bearer") {
		return "", false
	}
	if !two {
		token = text
	}
	return strings.TrimSpace(token), true
}

// endpoint returns the URL of a server, with the variables in it.
func (a *asker) endpoint(r registry.Transport) (string, error) {
	missing, found := false, map[string]string{} // what stands for each name
	stands := func(name string, of registry.Input) string {
		of.IsRequired = true
		if of.Value != "" {
			return url.PathEscape(string(of.Value))
		}
		got := a.ask(question("url."+name, of, false))
		if len(got) == 0 {
			missing = true
			return "unanswered"
		}
		if strings.HasPrefix(r.URL, "{"+name+"}") {
			return got[0] // all of it, which is checked below
		}
		return url.PathEscape(got[0])
	}
	text, err := filled(r.URL, func(name string) (string, bool) {
		of, known := r.Variables[name]
		if _, again := found[name]; known && !again {
			found[name] = stands(name, of)
		}
		return found[name], known
	})
	if err != nil {
		return "", fmt.Errorf("its URL %w", err)
	}
	if missing {
		return "https://unanswered.invalid", nil // what is missing is reported with all else that is
	}
	if u, err := url.Parse(text); err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" || strings.ContainsAny(text, "{} ") {
		return "", fmt.Errorf("%q is not an https URL", line(r.URL, 100))
	}
	return text, nil
}
