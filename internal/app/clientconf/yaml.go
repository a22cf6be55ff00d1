package clientconf

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
)

// Document is a resource as YAML.
type Document struct {
	// Text is the document.
	Text []byte
	// Shown is the same for people to see: [redacted] stands for what is secret.
	Shown []byte
	// Private is set if Text has secrets, and is for its owner's eyes alone.
	Private bool
}

// McpServer returns the server's resource. Its Err is nil.
func (s Server) McpServer() Document {
	return Document{Text: s.spec.yaml(s.Name, false), Shown: s.spec.yaml(s.Name, true), Private: s.spec.private}
}

// Secret returns the Secret that the McpServer refers to, and whether there is one.
func (s Server) Secret() (Document, bool) {
	if len(s.spec.secrets) == 0 {
		return Document{}, false
	}
	write := func(show func(secret.Value) string) []byte {
		var out bytes.Buffer
		head(&out, "Secret", s.Name)
		out.WriteString("  stringData:\n")
		for _, k := range s.spec.secrets {
			fmt.Fprintf(&out, "    %s: %s\n", scalar(k.key), scalar(show(k.value)))
		}
		return out.Bytes()
	}
	return Document{Text: write(secret.Value.Reveal), Shown: write(secret.Value.String), Private: true}, true
}

// Secrets returns the values of the server's Secret by their keys.
func (s Server) Secrets() map[string]secret.Value {
	values := map[string]secret.Value{}
	for _, k := range s.spec.secrets {
		values[k.key] = k.value
	}
	return values
}

// SecretFiles returns the values of the server's Secret as the files of a
// folder of secrets have them, by their keys.
func (s Server) SecretFiles() map[string]Document {
	files := map[string]Document{}
	for key, value := range s.Secrets() {
		files[key] = Document{Text: []byte(value.Reveal() + "\n"), Shown: []byte(value.String() + "\n"), Private: true}
	}
	return files
}

func head(out *bytes.Buffer, kind, name string) {
	fmt.Fprintf(out, "apiVersion: orloj.dev/v1\nkind: %s\nmetadata:\n  name: %s\nspec:\n", kind, scalar(name))
}

// yaml is the McpServer, with or without what is secret.
func (s spec) yaml(name string, redact bool) []byte {
	var out bytes.Buffer
	head(&out, "McpServer", name)
	if s.endpoint != "" {
		s.writeHTTP(&out, redact)
	} else {
		s.writeStdio(&out, redact)
	}
	if s.include != nil {
		out.WriteString("  tool_filter:\n    include:\n")
	}
	for _, tool := range s.include {
		fmt.Fprintf(&out, "      - %s\n", scalar(tool))
	}
	return out.Bytes()
}

func (s spec) writeHTTP(out *bytes.Buffer, redact bool) {
	endpoint := s.endpoint
	if redact && secretQuery(endpoint) {
		before, _, _ := strings.Cut(endpoint, "?")
		endpoint = before + "?" + secret.Value{}.String()
	}
	fmt.Fprintf(out, "  transport: http\n  endpoint: %s\n", scalar(endpoint))
	if s.auth.IsZero() {
		return
	}
	fmt.Fprintf(out, "  auth:\n    profile: %s\n", s.auth.Profile)
	if s.auth.Profile == manifest.AuthAPIKey {
		fmt.Fprintf(out, "    headerName: %s\n", scalar(s.auth.HeaderName))
	}
	fmt.Fprintf(out, "    secretRef: %s\n", scalar(s.auth.Secret.String()))
}

func (s spec) writeStdio(out *bytes.Buffer, redact bool) {
	fmt.Fprintf(out, "  transport: stdio\n  command: %s\n", scalar(s.command))
	if len(s.args) > 0 {
		out.WriteString("  args:\n")
	}
	line := []string{s.command}
	for _, arg := range s.args {
		line = append(line, arg)
		if redact && secretArg(line) {
			arg = secret.NewValue(arg).String()
		}
		fmt.Fprintf(out, "    - %s\n", scalar(arg))
	}
	if len(s.env) > 0 {
		out.WriteString("  env:\n")
	}
	for _, v := range s.env {
		fmt.Fprintf(out, "    - name: %s\n", scalar(v.name))
		if v.secret.IsZero() {
			fmt.Fprintf(out, "      value: %s\n", scalar(v.value))
		} else {
			fmt.Fprintf(out, "      secretRef: %s\n", scalar(v.secret.String()))
		}
	}
}

// plainScalar is what stands in YAML without quotes and cannot be taken for a
// number, a date, a bool, null or a comment.
var plainScalar = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^((--?)?[A-Za-z/][A-Za-z0-9_./=@+,-]*(:[A-Za-z0-9_./=@+,-]+)*|https?://[A-Za-z0-9_./?=&~+%-]+(:[0-9]+[A-Za-z0-9_./?=&~+%-]*)?)$`)
})

// scalar is text, which is UTF-8, as a YAML scalar.
func scalar(text string) string {
	switch strings.ToLower(text) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return strconv.Quote(text)
	}
	if plainScalar().MatchString(text) {
		return text
	}
	quoted := strconv.Quote(text) // Go's escapes of UTF-8 are YAML's as well
	if quoted == `"`+strings.ReplaceAll(text, `"`, `\"`)+`"` && strings.Contains(text, `"`) {
		return "'" + strings.ReplaceAll(text, "'", "''") + "'"
	}
	return quoted
}
