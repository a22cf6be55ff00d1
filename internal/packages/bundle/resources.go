package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/orla-project/orla/internal/packages/registry"
)

var imageName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]*(@sha256:[0-9a-f]{64})?$`)

// image makes an McpServer that an engine runs from an image.
func (m maker) image(p registry.Package, a *asker) (*Made, error) {
	image := p.Identifier
	if last := image[strings.LastIndex(image, "/")+1:]; !strings.ContainsAny(last, ":@") && p.Version != "" {
		image += ":" + p.Version
	}
	if !imageName.MatchString(image) || len(image) > 500 {
		return nil, fmt.Errorf("%q is not the name of an image", line(image, 100))
	}
	made := &Made{Name: m.opts.Name, Version: semantic(m.server.Version), namespace: secretNamespace, Secrets: map[string]string{}}
	// Whatever Orla's environment is, only the variables that are named here reach the server.
	flags := []string{"run", "--interactive", "--rm", "--init", "--cap-drop=ALL", "--security-opt=no-new-privileges"}
	var env []variable
	var fromSecret []string
	add := func(name string, v value) error {
		if ignore, err := checkVariable(name); err != nil || ignore {
			return err
		}
		flags = append(flags, "--env="+name) // with the value of the engine's own environment
		if v.secret {
			made.Secrets[name] = v.text
			fromSecret = append(fromSecret, name)
			return nil
		}
		env = append(env, variable{name, text(v.text)})
		return nil
	}
	more, err := m.engineArguments(p, a, made, add)
	if err != nil {
		return nil, err
	}
	flags = append(flags, more...)
	for _, v := range p.EnvironmentVariables {
		got, err := a.input(v.Name, v.Input)
		if err == nil && got.there {
			err = add(v.Name, got)
		}
		if err != nil {
			return nil, err
		}
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
	if !strings.Contains(image, "@") {
		made.Image = image
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "# Written by Orla: a server of an MCP registry, %s.\n", line(m.server.Name, 200))
	head(&out, "McpServer", made.Name, "")
	fmt.Fprintf(&out, "spec:\n  transport: stdio\n  command: %s\n  args: %s\n", scalar(m.opts.Engine), list(flags))
	if len(env)+len(fromSecret) > 0 {
		out.WriteString("  env:\n")
	}
	for _, v := range env {
		value, _ := v.value.plain()
		fmt.Fprintf(&out, "    - name: %s\n      value: %s\n", scalar(v.name), scalar(value))
	}
	for _, name := range fromSecret {
		fmt.Fprintf(&out, "    - name: %s\n      secretRef: %s\n", scalar(name), scalar(secretNamespace+"/"+made.Name+":"+name))
	}
	out.WriteString("  pin: hold\n")
	made.Resource = out.Bytes()
	return made, a.err()
}

// engineArguments reads what a server wants of docker. Only variables and folders that somebody names are accepted.
func (m maker) engineArguments(p registry.Package, a *asker, made *Made, add func(string, value) error) (flags []string, err error) {
	args, err := a.arguments(p.RuntimeArguments)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(args); i++ {
		flag, inline, has := strings.Cut(args[i].text, "=")
		v := value{text: inline, there: has, secret: args[i].secret}
		next := func() value {
			if !has && i+1 < len(args) {
				i++
				return args[i]
			}
			return v
		}
		switch flag {
		case "-i", "--interactive", "--rm", "--init", "run":
		case "-p", "--publish":
			made.Notes = append(made.Notes, "it wants the port "+line(next().text, 60)+" of this machine, which it does not get")
		case "--name":
			next()
		case "-e", "--env":
			v := next()
			name, text, _ := strings.Cut(v.text, "=")
			if err := add(name, value{text, true, v.secret}); err != nil {
				return nil, err
			}
		case "-v", "--volume", "--mount":
			v := next().text
			if !strings.Contains(v, "/") || line(v, 1000) != v {
				return nil, fmt.Errorf("it wants the folder %q, which is not valid", line(v, 60))
			}
			if flag != "--mount" {
				flag = "--volume"
			}
			flags = append(flags, flag+"="+v)
			made.Notes = append(made.Notes, "it sees "+line(v, 200))
		default:
			return nil, fmt.Errorf("its argument %q for docker is not accepted", line(args[i].text, 60))
		}
	}
	return flags, nil
}

// remote makes an McpServer of a server elsewhere.
func (m maker) remote(r registry.Transport, a *asker) (*Made, error) {
	if r.Type != "streamable-http" && r.Type != "streamable" && r.Type != "http" {
		return nil, fmt.Errorf("it speaks %s, and Orla speaks Streamable HTTP", line(r.Type, 40))
	}
	endpoint, err := a.endpoint(r)
	if err != nil {
		return nil, err
	}
	made := &Made{Name: m.opts.Name, Version: semantic(m.server.Version), Secrets: map[string]string{}, namespace: secretNamespace}
	var out bytes.Buffer
	fmt.Fprintf(&out, "# Written by Orla: a server of an MCP registry, %s.\n", line(m.server.Name, 200))
	head(&out, "McpServer", made.Name, "")
	fmt.Fprintf(&out, "spec:\n  transport: http\n  endpoint: %s\n", scalar(endpoint))
	auth := false
	for _, h := range r.Headers {
		got, err := a.input(h.Name, h.Input)
		switch {
		case err != nil:
			return nil, err
		case !got.there:
			continue
		case auth || !headerName.MatchString(h.Name):
			return nil, fmt.Errorf("it needs the header %q in addition to another one", line(h.Name, 60))
		}
		auth = true
		key := "header"
		fmt.Fprintf(&out, "  auth:\n")
		if bearer, is := bearerToken(h.Name, got.text); is {
			made.Secrets[key] = bearer
			fmt.Fprintf(&out, "    profile: bearer\n")
		} else {
			made.Secrets[key] = got.text
			fmt.Fprintf(&out, "    profile: api_key_header\n    headerName: %s\n", scalar(h.Name))
		}
		fmt.Fprintf(&out, "    secretRef: %s\n", scalar(secretNamespace+"/"+made.Name+":"+key))
	}
	out.WriteString("  pin: hold\n")
	made.Questions = a.questions
	made.Notes = append(made.Notes, "what tools are called with is sent to "+endpoint)
	made.Resource = out.Bytes()
	return made, a.err()
}

var headerName = regexp.MustCompile(`^[A-Za-z0-9-]{1,100}$`)

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
	var missing bool
	text := placeholder.ReplaceAllStringFunc(r.URL, func(whole string) string {
		name := whole[1 : len(whole)-1]
		of, known := r.Variables[name]
		if !known {
			return whole
		}
		of.IsRequired = true
		if of.Value != "" {
			return url.PathEscape(string(of.Value))
		}
		got := a.ask(question("url."+name, of, false))
		if len(got) == 0 {
			missing = true
			return "unanswered"
		}
		if strings.HasPrefix(r.URL, whole) {
			return got[0] // all of it, which is checked below
		}
		return url.PathEscape(got[0])
	})
	if missing {
		return "https://unanswered.invalid", nil // what is missing is reported with all else that is
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" || strings.ContainsAny(text, "{} "):
		return "", fmt.Errorf("%q is not an https URL", line(r.URL, 100))
	}
	return text, nil
}
