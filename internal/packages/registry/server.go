package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"sync"
)

// These are the parts of a server.json (schema 2025-12-11) that Orla uses. Strangers wrote it, so
// keys that are not known are ignored, and a value may be a string, a number or a boolean.

// Server is what an MCP registry says of a server.
type Server struct {
	Name        string      `json:"name"`
	Title       string      `json:"title"`
	Description string      `json:"description"`
	Version     string      `json:"version"`
	WebsiteURL  string      `json:"websiteUrl"`
	Repository  Repository  `json:"repository"`
	Packages    []Package   `json:"packages"`
	Remotes     []Transport `json:"remotes"`

	// Deprecated is set if the registry says so, with its reason in Message.
	Deprecated bool   `json:"-"`
	Message    string `json:"-"`
}

// Repository is where the source of a server is.
type Repository struct {
	URL string `json:"url"`
}

// Package is a way to run a server on this machine.
type Package struct {
	RegistryType         string     `json:"registryType"` // npm, pypi, oci, mcpb, nuget, cargo
	RegistryBaseURL      string     `json:"registryBaseUrl"`
	Identifier           string     `json:"identifier"`
	Version              string     `json:"version"`
	FileSHA256           string     `json:"fileSha256"`
	RuntimeHint          string     `json:"runtimeHint"`
	Transport            Transport  `json:"transport"`
	RuntimeArguments     []Argument `json:"runtimeArguments"`
	PackageArguments     []Argument `json:"packageArguments"`
	EnvironmentVariables []Variable `json:"environmentVariables"`
}

// Transport is how a server is spoken to: stdio, streamable-http or sse.
type Transport struct {
	Type      string           `json:"type"`
	URL       string           `json:"url"`
	Headers   []Variable       `json:"headers"`
	Variables map[string]Input `json:"variables"`
}

// Input is a value that may have to be asked for.
type Input struct {
	Description string `json:"description"`
	IsRequired  bool   `json:"isRequired"`
	IsSecret    bool   `json:"isSecret"`
	Format      string `json:"format"` // string, number, boolean, filepath
	Value       Text   `json:"value"`  // fixed; {NAME} stands for one of the variables
	Default     Text   `json:"default"`
	Choices     []Text `json:"choices"`

	Variables map[string]Input `json:"variables"`
}

// Variable is an input with a name: an environment variable or a header.
type Variable struct {
	Input
	Name string `json:"name"`
}

// Argument is an argument of a command.
type Argument struct {
	Input
	Type       string `json:"type"` // positional, named
	Name       string `json:"name"` // of a named one, with its dashes
	ValueHint  string `json:"valueHint"`
	IsRepeated bool   `json:"isRepeated"`
}

// Text is a scalar as a string.
type Text string

// UnmarshalJSON accepts a string, a number and a boolean.
func (t *Text) UnmarshalJSON(raw []byte) error {
	var value any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return err
	}
	switch v := value.(type) {
	case nil:
		*t = ""
	case string:
		*t = Text(v)
	case json.Number:
		*t = Text(v)
	case bool:
		*t = Text(fmt.Sprint(v))
	default:
		return errors.New("a value is neither a string, a number nor a boolean")
	}
	return nil
}

// serverName is how servers may be called: in reverse DNS, with one slash.
var serverName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,99}/[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
})

// official is the key of what the registry itself says of a server.
const official = "io.modelcontextprotocol.registry/official"

// ParseServer reads a record of an MCP registry: {server, _meta}. ErrDeleted is in the chain of the error if it was deleted.
func ParseServer(data []byte, registry string) (Entry, error) {
	if len(data) > maxServer {
		return Entry{}, fmt.Errorf("a server has over %d bytes", maxServer)
	}
	if bytes.Contains(data, []byte(`"registry_type"`)) {
		data = camelCase(data)
	}
	var r struct {
		Server *Server                    `json:"server"`
		Meta   map[string]json.RawMessage `json:"_meta"`
	}
	if err := json.Unmarshal(data, &r); err != nil || r.Server == nil {
		return Entry{}, errors.New("a server of the registry is not in the form of server.json")
	}
	s := r.Server
	if !serverName().MatchString(s.Name) || s.Version == "" || len(s.Version) > 255 || plain(s.Version) != s.Version {
		return Entry{}, fmt.Errorf("the server %q has no valid name or version", plain(s.Name))
	}
	var says struct {
		Status  string `json:"status"`
		Message string `json:"statusMessage"`
	}
	if raw, there := r.Meta[official]; there {
		if err := json.Unmarshal(raw, &says); err != nil {
			return Entry{}, fmt.Errorf("what the registry says of %s is not in a known form", s.Name)
		}
	}
	s.Message = plain(says.Message)
	switch says.Status {
	case "deleted":
		if s.Message != "" {
			return Entry{}, fmt.Errorf("%s: %w: %s", s.Name, ErrDeleted, s.Message)
		}
		return Entry{}, fmt.Errorf("%s: %w", s.Name, ErrDeleted)
	case "deprecated":
		s.Deprecated = true
	}
	s.Title, s.Description = plain(s.Title), plain(s.Description)
	return Entry{Name: s.Name, Description: s.Description, Repository: plain(s.Repository.URL), Registry: registry, Server: s}, nil
}

// snake finds where a key of the schemas before September 2025 has an underscore.
var (
	snakeKey = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`"[a-z0-9]+(?:_[a-z0-9]+)+"\s*:`) })
	snake    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`_[a-z0-9]`) })
)

// camelCase writes the keys of an older schema as those of today.
func camelCase(data []byte) []byte {
	return snakeKey().ReplaceAllFunc(data, func(key []byte) []byte {
		return snake().ReplaceAllFunc(key, func(part []byte) []byte { return bytes.ToUpper(part[1:]) })
	})
}
