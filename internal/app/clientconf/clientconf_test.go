package clientconf_test

import (
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/orla-project/orla/internal/app/clientconf"
	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/service/address"
	"github.com/orla-project/orla/manifest/discover"
)

var update = flag.Bool("update", false, "write what is wanted anew")

// The files of each client become what stands beside them (SPEC-TOOLS 3.5).
func TestClients(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) < 7 {
		t.Fatalf("%d archives, %v", len(archives), err)
	}
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			dir, last := t.TempDir(), len(archive.Files)-1
			for _, f := range archive.Files[:last] {
				file := filepath.Join(dir, f.Name)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, f.Data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			in := archive.Files[0]
			got := strings.ReplaceAll(describe(t, in, dir), dir, "$DIR")
			if strings.Contains(got, "planted") {
				t.Errorf("it shows a secret:\n%s", got)
			}
			if *update {
				archive.Files[last].Data = []byte(got)
				if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want := string(archive.Files[last].Data); got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// describe gives what is seen of a file's servers.
func describe(t *testing.T, in txtar.File, dir string) string {
	t.Helper()
	home := filepath.Join(dir, "home")
	servers, err := clientconf.Parse(in.Name, in.Data, clientconf.Options{Dir: clientconf.DirOf(filepath.Join(dir, in.Name), home), Home: home})
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	var out strings.Builder
	for _, s := range servers {
		for _, note := range s.Notes {
			fmt.Fprintf(&out, "warning: %s\n", note)
		}
		if s.Err != nil {
			fmt.Fprintf(&out, "error: %s\n", s.Err)
			continue
		}
		if s.Disabled {
			fmt.Fprintf(&out, "disabled\n")
		}
		docs := []clientconf.Document{s.McpServer()}
		if doc, ok := s.Secret(); ok {
			docs = append(docs, doc)
		}
		for _, doc := range docs {
			if doc.Private {
				out.WriteString("private\n")
			} else if strings.Contains(string(doc.Text), "planted") {
				t.Errorf("%s has a secret and is not private:\n%s", s.Name, doc.Text)
			}
			fmt.Fprintf(&out, "---\n%s", doc.Shown)
		}
	}
	return out.String()
}

// What is made of every file is what Orla reads, but for programs that are not here.
func TestResourcesAreInOrder(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, path := range archives {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		servers, err := clientconf.Parse("f.json", archive.Files[0].Data, clientconf.Options{Dir: "/nowhere", Home: "/home/ada"})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range servers {
			if s.Err != nil {
				continue
			}
			count++
			dir := t.TempDir()
			docs := map[string]clientconf.Document{"server.yaml": s.McpServer()}
			if doc, ok := s.Secret(); ok {
				docs["secret.yaml"] = doc
			}
			for name, doc := range docs {
				if err := os.WriteFile(filepath.Join(dir, name), doc.Text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			found := discover.Validate(dir)
			for _, p := range found.Problems {
				if !strings.Contains(p.Err.Error(), "is not in PATH; install it") {
					t.Errorf("%s: %s: %v", path, s.Key, p.Err)
				}
			}
			if len(found.Secrets) != len(docs)-1 {
				t.Errorf("%s: %s: %d secrets of %d are read", path, s.Key, len(found.Secrets), len(docs)-1)
			}
		}
	}
	if count < 20 {
		t.Errorf("only %d servers were made", count)
	}
}

// The secrets arrive whole, and where they are looked for.
func TestSecretsAreKept(t *testing.T) {
	want := map[string]map[string]string{
		"cursor.txtar": {
			"bearer": "value=planted-1", "basic": "value=ada:planted-2", "key": "value=planted-3",
			"scheme": "value=Token planted-4", "user": "value=ada:planted-6", "asked": "",
		},
		"claude_desktop.txtar": {
			"github": "GITHUB_PERSONAL_ACCESS_TOKEN=ghp_0123456789abcdef", "remote": "AUTH=Bearer planted-4",
			"db": "DATABASE_URL=postgres://ada:planted-5@localhost/db", "search": "",
		},
	}
	for file, servers := range want {
		archive, err := txtar.ParseFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		got, err := clientconf.Parse("mcp.json", archive.Files[0].Data, clientconf.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for name, secrets := range servers {
			at := slices.IndexFunc(got, func(s clientconf.Server) bool { return s.Name == name })
			var list []string
			for key, value := range got[at].Secrets() {
				list = append(list, key+"="+value.Reveal())
			}
			if have := strings.Join(list, " "); have != secrets {
				t.Errorf("%s: the secrets of %s are %q, want %q", file, name, have, secrets)
			}
			doc, ok := got[at].Secret()
			if ok != (secrets != "") || ok && !strings.Contains(string(doc.Text), list[0][strings.Index(list[0], "planted")+1:]) && strings.Contains(list[0], "planted") {
				t.Errorf("%s: the Secret of %s is\n%s", file, name, doc.Text)
			}
		}
	}
}

// A user and a password are sent as the client sends them, whatever bytes they
// have, and nothing in them is taken for a variable.
func TestBasicOfAnyBytes(t *testing.T) {
	for name, c := range map[string]struct {
		pair, userinfo string
		want           string // of the Secret; "" for the header as it is
	}{
		"text":         {"ada:plänted", "ada:pl%C3%A4nted", "ada:plänted"},
		"a variable":   {"ada:${HOME}", "ada:$%7BHOME%7D", "ada:${HOME}"},
		"latin 1":      {"ada:planted\xad2", "ada:planted%AD2", ""},
		"a line break": {"ada:planted\n", "ada:planted%0A", ""},
		"a NUL":        {"ada:\x00planted", "ada:%00planted", ""},
		"no colon":     {"planted", "", ""},
	} {
		header := "Basic " + base64.StdEncoding.EncodeToString([]byte(c.pair))
		profile := "basic"
		if c.want == "" {
			profile, c.want = "api_key_header\n    headerName: Authorization", header
		}
		entries := []string{fmt.Sprintf(`{"url": "https://a.example.com/mcp", "headers": {"Authorization": %q}}`, header)}
		if c.userinfo != "" {
			entries = append(entries, fmt.Sprintf(`{"url": "https://%s@a.example.com/mcp"}`, c.userinfo))
		}
		for _, entry := range entries {
			servers, err := clientconf.Parse("mcp.json", []byte(`{"mcpServers": {"a": `+entry+`}}`), clientconf.Options{})
			if err != nil || len(servers) != 1 || servers[0].Err != nil {
				t.Fatalf("%s: %+v, %v of %s", name, servers, err, entry)
			}
			readBack(t, servers[0])
			if got := servers[0].Secrets()["value"].Reveal(); got != c.want {
				t.Errorf("%s: the secret is %q, want %q, of %s", name, got, c.want, entry)
			}
			if text := string(servers[0].McpServer().Text); !strings.Contains(text, "profile: "+profile+"\n") {
				t.Errorf("%s: want the profile %q, got\n%s", name, profile, text)
			}
		}
	}
}

// A file that cannot be read at all is one fault, at its place, and shows
// nothing of what may be secret.
func TestBadFiles(t *testing.T) {
	for name, c := range map[string]struct{ data, want string }{
		"nothing":          {"", "f.json:1:1: the file is empty"},
		"only space":       {" \n ", "f.json:1:1: the file is empty"},
		"cut off":          {"{\n  \"mcpServers\": {", "f.json:2:18: is not JSON: parsing value: unexpected EOF"},
		"a missing comma":  {"{\"a\": 1\n \"b\": 2}", "f.json:2:2: is not JSON: invalid character '\"' after object value (expecting ',' or '}')"},
		"umlauts before":   {"{\"ä\": 1 ü}", "f.json:1:9: is not JSON: invalid character 'ü' after object value (expecting ',' or '}')"},
		"a bare word":      {"{\"mcpServers\": planted}", "f.json:1:16: is not JSON: invalid literal"},
		"a bad escape":     {`{"t": "planted\x"}`, `f.json:1:7: is not JSON: invalid literal`},
		"two documents":    {"{} {}", "f.json:1:4: is not JSON: invalid character '{' after top-level value"},
		"an open comment":  {"{\n/* x", "f.json:2:1: is not JSON: parsing comment: unexpected EOF"},
		"a comma too many": {"{\"a\": [,]}", "f.json:1:8: is not JSON: invalid character ',' at start of value"},
		"two commas":       {"{\"a\": [1,,]}", "f.json:1:10: is not JSON: invalid character ',' at start of value"},
		"latin 1":          {"{\"a\": \"\xe4\"}", "f.json:1:8: byte 0xe4 is not UTF-8; save the file as UTF-8"},
		"a list":           {"[]", "f.json:1:1: wants an object at the top, got an array"},
		"another's":        {`{"editor": 1}`, "f.json:1:1: names no MCP servers: wants mcpServers (Claude, Cursor), servers (VS Code's mcp.json) or mcp.servers (VS Code's settings.json)"},
		"a list of them":   {`{"mcpServers": []}`, "f.json:1:2: mcpServers: wants an object of servers by their names, got an array"},
		"too deep":         {strings.Repeat("[", 20000), "f.json:1:1: is nested deeper than 10000 levels"},
		"too long":         {strings.Repeat(" ", clientconf.MaxFile+1), fmt.Sprintf("f.json:1:1: the file has %d bytes, more than the %d allowed", clientconf.MaxFile+1, clientconf.MaxFile)},
	} {
		if _, err := clientconf.Parse("f.json", []byte(c.data), clientconf.Options{}); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v\nwant %s", name, err, c.want)
		}
	}
}

// Windows' editors begin a file with a mark, and end lines in two characters.
func TestFilesOfWindows(t *testing.T) {
	servers, err := clientconf.Parse("f.json", []byte("\ufeff{\r\n// x\r\n\"mcpServers\": {\"a\": {\"command\": \"x\",},},\r\n}"), clientconf.Options{})
	if err != nil || len(servers) != 1 || servers[0].Err != nil {
		t.Errorf("%+v, %v", servers, err)
	}
}

func TestDirOf(t *testing.T) {
	for file, want := range map[string]string{
		"/w/.mcp.json": "/w", "/w/.cursor/mcp.json": "/w", "/w/.vscode/mcp.json": "/w", "/w/.vscode/settings.json": "/w",
		"/home/ada/.cursor/mcp.json": "", "/home/ada/.mcp.json": "/home/ada", "/home/ada/.vscode/mcp.json": "/home/ada", "/home/ada/.claude.json": "", "/w/mcp.json": "", "/home/ada/.config/Claude/claude_desktop_config.json": "",
	} {
		if got := clientconf.DirOf(file, "/home/ada/"); got != want {
			t.Errorf("%s belongs to %q, want %q", file, got, want)
		}
	}
}

// Whatever a file has, what is made of it is YAML that says the same.
func FuzzParse(f *testing.F) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range archives {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(archive.Files[0].Data)
	}
	f.Add([]byte(`{"mcpServers": {"a": {"url": "https://ada:%AD@h/"}, "b": {"url": "https://h/", "headers": {"Authorization": "Basic OoCA"}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		servers, err := clientconf.Parse("f.json", data, clientconf.Options{})
		if err != nil {
			if faults, ok := errors.AsType[yamldoc.Faults](err); !ok || len(faults) == 0 {
				t.Fatalf("a fault without a place: %v", err)
			}
			return
		}
		for _, s := range servers {
			if s.Err == nil {
				readBack(t, s)
			}
		}
	})
}

// written is a resource as it is written.
type written struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Transport  string       `json:"transport,omitempty"`
		Command    string       `json:"command,omitempty"`
		Args       []string     `json:"args,omitempty"`
		Env        []writtenEnv `json:"env,omitempty"`
		Endpoint   string       `json:"endpoint,omitempty"`
		Auth       writtenAuth  `json:"auth,omitzero"`
		ToolFilter struct {
			Include []string `json:"include,omitempty"`
		} `json:"tool_filter,omitzero"`
		StringData map[string]string `json:"stringData,omitempty"`
	} `json:"spec"`
}

type writtenEnv struct {
	Name      string `json:"name"`
	Value     string `json:"value,omitempty"`
	SecretRef string `json:"secretRef,omitempty"`
}

type writtenAuth struct {
	Profile    string `json:"profile,omitempty"`
	HeaderName string `json:"headerName,omitempty"`
	SecretRef  string `json:"secretRef,omitempty"`
}

// said is what was written, in the form of what was to be written.
func (w written) said() clientconf.Said {
	said := clientconf.Said{
		Endpoint: w.Spec.Endpoint,
		Auth:     [3]string{w.Spec.Auth.Profile, w.Spec.Auth.HeaderName, w.Spec.Auth.SecretRef},
		Include:  w.Spec.ToolFilter.Include,
	}
	if w.Spec.Command != "" {
		said.Line = append([]string{w.Spec.Command}, w.Spec.Args...)
	}
	for _, v := range w.Spec.Env {
		value := v.Value
		if v.SecretRef != "" {
			value = "@" + v.SecretRef
		}
		said.Env = append(said.Env, v.Name+"="+value)
	}
	return said
}

// readBack reads the documents of a server as strictly as Orla reads its files.
func readBack(t *testing.T, s clientconf.Server) {
	t.Helper()
	var read written
	text := s.McpServer().Text
	if _, err := yamldoc.Decode("f.yaml", text, &read, yamldoc.Options{}); err != nil || read.Metadata.Name != s.Name || (read.Spec.Command == "") == (read.Spec.Endpoint == "") {
		t.Errorf("%v: %+v of\n%s", err, read, text)
	}
	if at := read.Spec.Endpoint; at != "" && address.CheckURL(at) != nil {
		t.Errorf("Orla takes %q for none: %v", at, address.CheckURL(at))
	}
	if got, want := read.said(), s.Said(); !reflect.DeepEqual(got, want) {
		t.Errorf("it says %+q, want %+q, in\n%s", got, want, text)
	}
	doc, ok := s.Secret()
	if !ok {
		return
	}
	var kept written
	if _, err := yamldoc.Decode("f.yaml", doc.Text, &kept, yamldoc.Options{}); err != nil {
		t.Errorf("%v in\n%s", err, doc.Text)
	}
	want := map[string]string{}
	for key, value := range s.Secrets() {
		want[key] = value.Reveal()
	}
	if !maps.Equal(kept.Spec.StringData, want) {
		t.Errorf("got %q, want %q", kept.Spec.StringData, want)
	}
}
