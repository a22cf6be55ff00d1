package bundle_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3" //nolint:depguard // it reads what was written as another program would

	"github.com/orla-project/orla/internal/packages/bundle"
	"github.com/orla-project/orla/internal/packages/registry"
	"github.com/orla-project/orla/internal/testing/leaks"
	"github.com/orla-project/orla/internal/testing/mcpregistry"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/resource"
	"github.com/orla-project/orla/manifest/toolfile"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// answersTo returns an answer to each question that needs one.
func answersTo(questions []bundle.Question) map[string]string {
	answers := map[string]string{}
	for _, q := range questions {
		answer := "answer"
		switch q.Type {
		case bundle.Number:
			answer = "5"
		case bundle.Boolean:
			answer = "true"
		case bundle.File, bundle.Directory:
			answer = "/srv/data"
		}
		if len(q.Choices) > 0 {
			answer = q.Choices[0]
		}
		if q.Secret && q.Type == bundle.String {
			answer = "s3cret"
		}
		if q.Required || q.Secret {
			answers[q.Key] = answer
		}
	}
	return answers
}

// made makes a server, with answers to its questions.
func made(t *testing.T, raw string, opts bundle.Options) (*bundle.Made, error) {
	t.Helper()
	entry, err := registry.ParseServer([]byte(`{"server":`+raw+`}`), "https://registry.example.com")
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	m, err := bundle.Server(entry, nil, opts)
	var unanswered *bundle.UnansweredError
	if errors.As(err, &unanswered) || err == nil && len(m.Questions) > 0 {
		m, err = bundle.Server(entry, answersTo(m.Questions), opts)
	}
	return m, err
}

// valid returns why what was made is not a package or a resource, or nil.
func valid(t *testing.T, m *bundle.Made) error {
	t.Helper()
	if m.Files != nil {
		dir := t.TempDir()
		if err := m.Write(dir); err != nil {
			return err
		}
		return validPackage(dir)
	}
	for _, text := range [][]byte{m.Resource} {
		list, _, err := resource.Parse(resource.File{Display: "x.yaml", Dir: t.TempDir()}, text)
		if err != nil {
			return err
		}
		for _, d := range list {
			if err := d.Doc.Err(); err != nil {
				return err
			}
		}
		if len(text) > 0 && len(list) != 1 {
			return errors.New("it is not a resource")
		}
	}
	return nil
}

func validPackage(dir string) error {
	tool, _, warnings, err := toolfile.ReadPackage(dir, "tool.yaml", "tool.yaml", nil)
	switch {
	case err != nil:
		return err
	case len(warnings) > 0:
		return errors.Join(warnings...)
	case tool.Kind != manifest.Capsule || tool.Runtime.Handshake != manifest.HandshakeMCP:
		return errors.New("it is not a capsule that speaks MCP")
	}
	return nil
}

// engine puts a docker into PATH.
func engine(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// SPEC M3: of one hundred real servers at least 95 become packages or resources as they are, and the others have a reason.
// None runs npx, uvx or the like.
func TestM3OneHundredServers(t *testing.T) {
	engine(t)
	counts := map[string]int{}
	good := 0
	servers := mcpregistry.Servers()
	for _, raw := range servers {
		m, err := made(t, string(raw), bundle.Options{GOOS: "linux", GOARCH: "amd64"})
		if err == nil {
			err = valid(t, m)
		}
		if err != nil {
			var name struct{ Name string }
			_ = json.Unmarshal(raw, &name)
			t.Logf("%s: %v", name.Name, err)
			counts["refused"]++
			continue
		}
		good++
		switch {
		case m.Files["package.json"] != "":
			counts["npm"]++
		case m.Files["requirements.txt"] != "":
			counts["pypi"]++
		case m.Bundle != nil:
			counts["bundle"]++
		case strings.Contains(string(m.Resource), "transport: http"):
			counts["remote"]++
		default:
			counts["image"]++
		}
		for _, text := range []string{m.Files["tool.yaml"], string(m.Resource)} {
			for _, word := range []string{"npx", "uvx", `"npm"`, `"uv"`} {
				if strings.Contains(text, "command: "+word) || strings.Contains(text, `command: "`+word) {
					t.Errorf("%s runs %s", m.Name, word)
				}
			}
			if strings.Contains(text, "s3cret") {
				t.Errorf("%s has a secret in a file that everybody reads:\n%s", m.Name, text)
			}
		}
	}
	t.Logf("%d of %d: %v", good, len(servers), counts)
	if good < 95 || len(servers) < 100 {
		t.Errorf("only %d of %d servers can be used", good, len(servers))
	}
}

// SPEC M3: packages are preferred to remote servers, exact versions are needed, and what a server could do to the machine by its
// description is refused.
func TestM3ServersOfARegistry(t *testing.T) {
	engine(t)
	const head = `{"name":"io.github.somebody/thing","version":"1.2.3","description":"Does things",`
	pack := func(more string) string {
		return head + `"packages":[{"registryType":"npm","identifier":"@a/thing","version":"1.2.3","transport":{"type":"stdio"}` + more + `}]}`
	}
	oci := func(more string) string {
		return head + `"packages":[{"registryType":"oci","identifier":"docker.io/a/thing:1.2.3","transport":{"type":"stdio"}` + more + `}]}`
	}
	remote := func(more string) string {
		return head + `"remotes":[{"type":"streamable-http","url":"https://example.com/mcp"` + more + `}]}`
	}
	for raw, want := range map[string]string{ // a part of a file or of the resource, or "!" and a part of the reason
		pack(""): `"@a/thing": "1.2.3"`,
		head + `"remotes":[{"type":"streamable-http","url":"https://example.com/mcp"}],"packages":[{"registryType":"pypi","identifier":"thing","version":"1.2.3","transport":{"type":"stdio"}}]}`: "thing==1.2.3\n",
		pack(`,"packageArguments":[{"type":"positional","value":"serve"},{"type":"named","name":"--level","value":"3"},{"type":"named","name":"--stdio"}]`):                                       `"args":[["serve"],["--level"],["3"],["--stdio"]]`,
		pack(`,"environmentVariables":[{"name":"TOKEN","isRequired":true,"isSecret":true},{"name":"LEVEL","default":"high"},{"name":"OTHER"}]`):                                                   `"env":[["LEVEL",["high"]]]`,
		pack(`,"environmentVariables":[{"name":"LEVEL","value":"{a}-{b}","variables":{"a":{"isRequired":true},"b":{"default":2}}}]`):                                                              `["LEVEL",["answer-2"]]`,
		pack(`,"environmentVariables":[{"name":"HOME","isRequired":true},{"name":"LEVEL","value":"1"}]`):                                                                                          `"env":[["LEVEL",["1"]]]`,
		pack(`,"runtimeHint":"npx","runtimeArguments":[{"type":"positional","value":"-y"}]`):                                                                                                      `"package":"@a/thing"`,
		pack(`,"registryBaseUrl":"https://npm.example.com"`):                                                                                                                                      "registry=https://npm.example.com",
		pack(`,"registryBaseUrl":"http://npm.example.com"`):                                                                                                                                       "!is not an https URL",
		strings.Replace(pack(""), `"version":"1.2.3","transport"`, `"version":"latest","transport"`, 1):                                                                                           "!not one exact version",
		strings.Replace(pack(""), `"version":"1.2.3","transport"`, `"version":"^1.2.3","transport"`, 1):                                                                                           "!not one exact version",
		strings.Replace(pack(""), `@a/thing`, `https://evil.example/x.tgz`, 1):                                                                                                                    "!not one exact version",
		strings.Replace(pack(""), `@a/thing`, `../../x`, 1):                                                                                                                                       "!not one exact version",
		strings.Replace(pack(""), `"stdio"`, `"streamable-http"`, 1):                                                                                                                              "!speaks streamable-http on this machine",
		pack(`,"environmentVariables":[{"name":"LD_PRELOAD","value":"/tmp/x.so"}]`):                                                                                                               "!LD_PRELOAD",
		pack(`,"environmentVariables":[{"name":"NODE_PATH","value":"/tmp"}]`):                                                                                                                     "!NODE_PATH",
		pack(`,"environmentVariables":[{"name":"A=B","value":"x"}]`):                                                                                                                              "!not allowed",
		pack(`,"runtimeArguments":[{"type":"named","name":"--package","value":"@evil/thing"}]`):                                                                                                   "!install another package",
		pack(`,"runtimeArguments":[{"type":"named","name":"--node-options","value":"--require=/tmp/x"}]`):                                                                                         "!which Orla does not use",
		pack(`,"runtimeArguments":[{"type":"named","name":"--package","value":" "}]`):                                                                                                             "!install another package",
		oci(""): `"docker.io/a/thing:1.2.3"]`,
		oci(`,"environmentVariables":[{"name":"TOKEN","isRequired":true,"isSecret":true}]`):                           "\\nTOKEN=$IMAGE_ENV_0\\n",
		oci(`,"environmentVariables":[{"name":"API_KEY","isRequired":true,"isSecret":true}]`):                         "- name: \"IMAGE_ENV_0\"\n      secretRef: \"packages/thing:API_KEY\"",
		oci(`,"runtimeArguments":[{"type":"named","name":"-e","value":"URL={u}","variables":{"u":{"default":"x"}}}]`): "- name: \"IMAGE_ENV_0\"\n      value: \"x\"",
		oci(`,"environmentVariables":[{"name":"LEVEL","value":"a\nDOCKER_HOST=x"}]`):                                  "!has a line break",
		oci(`,"environmentVariables":[{"name":"A","value":"1"},{"name":"A","value":"2"}]`):                            "!twice",
		oci(`,"runtimeArguments":[{"type":"named","name":"--privileged"}]`):                                           "!is not accepted",
		oci(`,"runtimeArguments":[{"type":"named","name":"--network","value":"host"}]`):                               "!is not accepted",
		oci(`,"runtimeArguments":[{"type":"positional","value":"--security-opt=seccomp=unconfined"}]`):                "!is not accepted",
		strings.Replace(oci(""), "docker.io/a/thing:1.2.3", "oci-archive:/tmp/x.tar", 1):                              "!not the name of an image",
		strings.Replace(oci(""), "docker.io/a/thing:1.2.3", "oci:1/y", 1):                                             "!not the name of an image",
		strings.Replace(oci(""), "docker.io/a/thing:1.2.3", "localhost:5000/a/b:1", 1):                                "!may be on this machine",
		strings.Replace(oci(""), "docker.io/a/thing:1.2.3", "localhost/a/b:1", 1):                                     "!may be on this machine",
		strings.Replace(oci(""), "docker.io/a/thing:1.2.3", "127.0.0.1:8080/a/b:1", 1):                                "!may be on this machine",
		strings.Replace(oci(""), "docker.io/a/thing:1.2.3", "169.254.169.254:80/a/b:1", 1):                            "!may be on this machine",
		strings.Replace(oci(""), "docker.io/a/thing:1.2.3", "dir:x", 1):                                               "!not the name of an image",
		strings.Replace(oci(""), "docker.io/a/thing:1.2.3", "docker://a/x", 1):                                        "!not the name of an image",
		strings.Replace(oci(""), "docker.io/a/thing:1.2.3", "registry.example.com:5000/a/thing:1.2.3", 1):             `"registry.example.com:5000/a/thing:1.2.3"]`,
		strings.Replace(oci(""), "docker.io/a/thing:1.2.3", "--privileged:1", 1):                                      "!not the name of an image",
		remote(""): "endpoint: \"https://example.com/mcp\"",
		remote(`,"headers":[{"name":"Authorization","isRequired":true,"isSecret":true}]`):                                                                    "profile: bearer\n    secretRef: \"packages/thing:header\"",
		remote(`,"headers":[{"name":"X-Key","isRequired":true,"isSecret":true}]`):                                                                            "headerName: \"X-Key\"",
		remote(`,"headers":[{"name":"X-Key","isRequired":true,"isSecret":true},{"name":"X-Org","isRequired":true}]`):                                         "!in addition to another one",
		remote(`,"headers":[{"name":"X-Org","isRequired":false}]`):                                                                                           "pin: hold",
		strings.Replace(remote(`,"variables":{"host":{}}`), "//example.com", "//{host}.example.com", 1):                                                      "https://answer.example.com/mcp",
		strings.Replace(remote(""), "https:", "http:", 1):                                                                                                    "!not an https URL",
		strings.Replace(remote(""), "streamable-http", "sse", 1):                                                                                             "!it speaks sse",
		head + `"packages":[{"registryType":"nuget","identifier":"A","version":"1.0.0"}]}`:                                                                   `!does not run packages of "nuget"`,
		head + `"packages":[{"registryType":"mcpb","identifier":"https://example.com/x.mcpb","fileSha256":"` + strings.Repeat("a", 64) + `"}]}`:              "bundle",
		head + `"packages":[{"registryType":"mcpb","identifier":"https://example.com/x.mcpb"}]}`:                                                             "!no digest",
		head + `"packages":[{"registryType":"mcpb","identifier":"https://example.com/x-darwin-arm64.mcpb","fileSha256":"` + strings.Repeat("a", 64) + `"}]}`: "!another platform",
		head + `"packages":[]}`: "!neither a package nor a remote server",
		pack(`,"environmentVariables":[{"name":"LEVEL","value":"` + strings.Repeat("{a}", 2_000) + `","variables":{"a":{"value":"` + strings.Repeat("x", 100) + `"}}}]`): "!has over 65536 bytes",
		strings.Replace(remote(`,"variables":{"a":{"value":"`+strings.Repeat("/", 100)+`"}}`), "/mcp", "/"+strings.Repeat("{a}", 2_000), 1):                              "!has over 65536 bytes",
	} {
		m, err := made(t, raw, bundle.Options{GOOS: "linux", GOARCH: "amd64"})
		if reason, refused := strings.CutPrefix(want, "!"); refused {
			if err == nil || !strings.Contains(err.Error(), reason) {
				t.Errorf("%s: %v", raw, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		all := string(m.Resource)
		for _, text := range m.Files {
			all += text
		}
		if m.Bundle != nil {
			all += "bundle"
		}
		if err := valid(t, m); err != nil || !strings.Contains(all, want) || m.Name != "thing" || m.Version != "1.2.3" {
			t.Errorf("%s: %v\n%s", raw, err, all)
		}
	}
}

// SPEC M3, M7: a server of a registry chooses no folder, device or network of this machine for its image, in no form of the flag, and
// also not with what somebody answers: nothing in what was agreed to would say so.
func TestM3ImagesGetNothingOfThisMachine(t *testing.T) {
	engine(t)
	const before = `{"name":"a/thing","version":"1.2.3","description":"x","packages":[{"registryType":"oci","identifier":"docker.io/a/thing:1.2.3","transport":{"type":"stdio"},"runtimeArguments":[`
	named := func(flag, more string) string {
		return `{"type":"named","name":"` + flag + `"` + more + `}`
	}
	for _, arg := range []string{
		named("-v", `,"value":"/:/host"`), named("--volume", `,"value":"/:/host"`), named("--volume=/:/host", ""),
		named("--mount", `,"value":"type=bind,source=/var/run/docker.sock,target=/s"`),
		named("-v", `,"value":"{folder}:/data","variables":{"folder":{"isRequired":true,"format":"filepath"}}`),
		named("-v", `,"isRequired":true,"format":"string"`),
		named("--device", `,"value":"/dev/mem"`), named("--privileged", ""), named("--privileged=true", ""), named("--network=host", ""), named("--net", `,"value":"host"`),
		named("--pid=host", ""), named("--env-file", `,"value":"/etc/shadow"`), named("--cap-add=ALL", ""), named("--volumes-from", `,"value":"x"`),
		named("-iv", `,"value":"/:/host"`), named("-v/:/host", ""), named("--rm=false", ""), named("--init=x", ""), named("-e", `,"value":"A=b"`) + "," + named("--user", `,"value":"0"`),
		`{"type":"positional","value":"-v=/:/host"}`, `{"type":"positional","value":"--"}`, `{"type":"positional","value":"docker.io/evil/thing"}`,
	} {
		m, err := made(t, before+arg+`]}]}`, bundle.Options{})
		if err == nil || !strings.Contains(err.Error(), "is not accepted") {
			t.Errorf("%s: %v, %+v", arg, err, m)
		}
	}
}

// SPEC M3: a server of a registry names variables for its image, and never for the engine: by these it could make the engine run a
// program or send everything elsewhere.
func TestM3VariablesOfAnImageAreNotThoseOfTheEngine(t *testing.T) {
	needs.Programs(t, "sh")
	dir := t.TempDir()
	program := filepath.Join(dir, "podman")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nenv >"+dir+"/env\nfor a in \"$@\"; do echo \"$a\"; done >"+dir+"/args\ncat /dev/fd/3 >"+dir+"/file\ncat\n"), 0o755); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	const odd = "a $HOME `id` $(id) \\ ' \" IMAGE=END"
	text, _ := json.Marshal(odd)
	m, err := made(t, `{"name":"a/thing","version":"1.2.3","description":"x","packages":[{"registryType":"oci","identifier":"docker.io/a/thing:1.2.3","transport":{"type":"stdio"},
		"environmentVariables":[{"name":"CONTAINERS_CONF","value":"/tmp/evil.conf"},{"name":"DOCKER_HOST","isRequired":true,"isSecret":true},{"name":"ODD","value":`+string(text)+`}]}]}`, bundle.Options{Engine: "podman"})
	if err == nil {
		err = valid(t, m)
	}
	if err != nil {
		t.Fatal(err)
	}
	var server struct {
		Spec struct {
			Command string
			Args    []string
			Env     []struct {
				Name, Value string
				SecretRef   string `yaml:"secretRef"`
			}
		}
	}
	if err := yaml.Unmarshal(m.Resource, &server); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), server.Spec.Command, server.Spec.Args...)
	cmd.Env, cmd.Stdin = append(os.Environ(), "HOME=/h"), strings.NewReader("input")
	for _, v := range server.Spec.Env {
		if v.SecretRef != "" {
			v.Value = m.Secrets[v.SecretRef[strings.LastIndex(v.SecretRef, ":")+1:]]
		}
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "input" {
		t.Fatalf("%v: %s", err, out)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got, want := read("file"), "CONTAINERS_CONF=/tmp/evil.conf\nDOCKER_HOST=s3cret\nODD="+odd+"\n"; got != want {
		t.Errorf("the image gets %q; want %q", got, want)
	}
	for _, name := range []string{"CONTAINERS_CONF=", "DOCKER_HOST=", "ODD="} {
		if strings.Contains("\n"+read("env"), "\n"+name) {
			t.Errorf("the engine has the variable %s", name)
		}
	}
	if args := read("args"); strings.Contains(args, "s3cret") || !strings.HasPrefix(args, "run\n") || !strings.HasSuffix(args, "\n--env-file=/dev/fd/3\ndocker.io/a/thing:1.2.3\n") {
		t.Errorf("the engine is called with %q", args)
	}
}

// SPEC M3, R3: a package of npm is run by Node itself, and one of PyPI by Python itself: its program, with its arguments and
// variables, as the main module.
func TestM3LaunchersRunTheServerInTheirOwnProcess(t *testing.T) {
	needs.Programs(t, "node", "python3")
	packages := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(packages, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("@a/common/package.json", `{"name":"@a/common","bin":"run.js"}`)
	write("@a/common/run.js", `if (require.main === module) console.log(process.pid, process.argv.slice(2).join(), process.env.LEVEL, process.env.TOKEN)`)
	write("modern/package.json", `{"name":"modern","type":"module","exports":{},"bin":{"other":"x.js","modern":"run.js"}}`)
	write("modern/run.js", `import { pathToFileURL } from "node:url"; if (import.meta.url === pathToFileURL(process.argv[1]).href) console.log(process.pid, process.argv.slice(2).join(), process.env.LEVEL, process.env.TOKEN)`)
	write("thing.py", "import os, sys\ndef main():\n    print(os.getpid(), ','.join(sys.argv[1:]), os.environ['LEVEL'], os.environ['TOKEN'])\n")
	write("thing-1.2.3.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.2.3\n")
	write("thing-1.2.3.dist-info/entry_points.txt", "[console_scripts]\nthing = thing:main\n[other]\nx = y:z\n")
	for identifier, kind := range map[string]string{"@a/common": "npm", "modern": "npm", "thing": "pypi"} {
		m, err := made(t, `{"name":"a/thing","version":"1.2.3","description":"x","packages":[{"registryType":"`+kind+`","identifier":"`+identifier+`","version":"1.2.3","transport":{"type":"stdio"},
			"packageArguments":[{"type":"positional","value":"it's \"$HOME\" </script>"},{"type":"named","name":"--ü","value":"2"}],
			"environmentVariables":[{"name":"LEVEL","value":"${x}"},{"name":"TOKEN","isRequired":true,"isSecret":true}]}]}`, bundle.Options{})
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := m.Write(dir); err != nil {
			t.Fatal(err)
		}
		program := "orla-run.cjs"
		if kind == "pypi" {
			program = "orla_run.py"
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, program))
		cmd.Env = append(os.Environ(), "NODE_PATH="+packages, "PYTHONPATH="+packages, "TOKEN="+m.Secrets["TOKEN"], "PYTHONIOENCODING=utf-8")
		out, err := cmd.CombinedOutput()
		pid, rest, _ := strings.Cut(string(out), " ")
		if err != nil || rest != "it's \"$HOME\" </script>,--ü,2 ${x} s3cret\n" || pid == "" {
			t.Errorf("%s: %v: %s", identifier, err, out)
		}
	}
}
