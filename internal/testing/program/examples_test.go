package program

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/manifest/discover"
)

// examplePorts are those that examples/resources/serve takes unless it is told others.
var examplePorts = regexp.MustCompile(`127\.0\.0\.1:81(\d\d)\b`)

// serveExamples starts the services of examples/resources on ports that are
// free, and returns a folder that has the examples with those ports.
func serveExamples(t *testing.T) (dir string) {
	t.Helper()
	needs.Programs(t, "python3", "node")
	dir = t.TempDir()
	at := filepath.Join(dir, "examples", "resources")
	if err := os.CopyFS(at, os.DirFS(filepath.Join("..", "..", "..", "examples", "resources"))); err != nil {
		t.Fatal(err)
	}
	var ports []string
	for range 6 {
		ports = append(ports, strconv.Itoa(freePort(t)))
	}
	files, err := filepath.Glob(filepath.Join(at, "tools", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text := examplePorts.ReplaceAllStringFunc(testkit.ReadFile(t, file), func(address string) string {
			n, _ := strconv.Atoi(address[len(address)-2:]) // two digits
			return "127.0.0.1:" + ports[n-1]
		})
		text = strings.ReplaceAll(text, "timeout: 5s", "timeout: 1m") // on a busy machine
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	services := exec.Command(filepath.Join(at, "serve"), ports...)
	services.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	stderr, err := services.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := services.Start(); err != nil {
		t.Fatal(err)
	}
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with the last of the services
		defer close(ended)
		listening := 0
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if strings.Contains(lines.Text(), ": listens on ") {
				if listening++; listening == len(ports) {
					close(ready)
				}
			}
		}
	}()
	t.Cleanup(func() {
		_ = services.Process.Signal(syscall.SIGTERM) // as Ctrl-C does
		<-ended
		_ = services.Wait()
	})
	select {
	case <-ready:
	case <-ended:
		t.Fatal("the services ended")
	case <-time.After(testkit.Patience):
		t.Fatal("the services do not listen")
	}
	return dir
}

// try runs the commands of indented blocks of a document one after another in
// dir, and wants them to print what the document says. It returns how many
// printed something. The services are on other ports than in the document.
func try(t *testing.T, dir, text string) int {
	t.Helper()
	exports, printed := "", 0
	for _, block := range indented(text) {
		for _, step := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, want := splitStep(step)
			if strings.HasPrefix(command, "export ") {
				exports += command + "\n"
				continue
			}
			if strings.TrimSpace(command) == "orla" {
				continue // which would not end
			}
			cmd := exec.Command("sh", "-c", exports+command)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(orlaBinary(t))+string(os.PathListSeparator)+os.Getenv("PATH"), "HOME="+dir)
			got, err := cmd.CombinedOutput()
			if err != nil && !strings.Contains(string(got), "orla: ") {
				t.Fatalf("$ %s\n%v\n%s", command, err, got)
			}
			if normal(string(got)) != normal(want) {
				t.Errorf("$ %s\nprints:\n%s\nthe document says:\n%s", command, got, want)
			}
			if want != "" {
				printed++
			}
		}
	}
	return printed
}

// The examples do what their README shows: a tool of every type answers, and a
// secret is rotated (SPEC-TOOLS 3, 5.3).
func TestTheExampleResourcesAnswer(t *testing.T) {
	t.Parallel()
	needs.Time(t, "starts services")
	dir := serveExamples(t)
	if printed := try(t, dir, testkit.ReadFile(t, filepath.Join(dir, "examples", "resources", "README.md"))); printed < 14 {
		t.Errorf("only %d commands of the README print something", printed)
	}
}

// Servers that `orla import` took over from a client's file answer, by a path in
// the project and with their secrets (SPEC-TOOLS 3.5).
func TestImportedServersAnswer(t *testing.T) {
	t.Parallel()
	needs.Time(t, "starts services")
	dir := serveExamples(t)
	example := testkit.ReadFile(t, filepath.Join(dir, "examples", "resources", "tools", "tickets.yaml"))
	endpoint := regexp.MustCompile(`http://.*/mcp`).FindString(example)
	testkit.WriteTool(t, dir, ".mcp.json", `{"mcpServers": {
		"diary": {"command": "python3", "args": ["-B", "examples/resources/services/notes.py"], "env": {"NOTES_AUTHOR": "sk-planted-author"}},
		"desk": {"type": "http", "url": "`+endpoint+`", "headers": {"Authorization": "Bearer demo-tickets"}},
	}}`)
	if got := shell(t, dir, "orla import .mcp.json --write"); strings.Contains(got, "planted") {
		t.Errorf("it shows a secret: %s", got)
	}
	if got := shell(t, dir, "orla validate"); got != "2 tools and 2 secrets in order, 0 faults\n" {
		t.Errorf("orla validate: %s", got)
	}
	for command, want := range map[string]string{
		"orla call diary--write --arg name=a --arg text=b": "a is written, signed by [redacted]", // it has its secret, and nobody is shown it,
		"orla call desk--open --arg title=Tea":             "ticket 1 is open",
	} {
		if got := shell(t, dir, command); strings.TrimSpace(got) != want {
			t.Errorf("$ %s\nprints %s\nwant %s", command, got, want)
		}
	}
}

// The service of docs/TOOLS.md answers, and what is shown is what is printed.
func TestTheServiceOfTheDocumentAnswers(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "python3")
	text := section(t, "docs/TOOLS.md", "In two minutes")
	blocks := fence.FindAllStringSubmatch(text, -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of code; want a service and a tool", len(blocks))
	}
	port := strconv.Itoa(freePort(t))
	dir := t.TempDir()
	testkit.WriteTool(t, dir, "greet.py", strings.ReplaceAll(blocks[0][2], "8111", port))
	testkit.WriteTool(t, filepath.Join(dir, "tools"), "greet.yaml", strings.ReplaceAll(blocks[1][2], "8111", port))
	if err := os.Chmod(filepath.Join(dir, "tools", "greet.yaml"), 0o644); err != nil {
		t.Fatal(err)
	}
	service := exec.Command("python3", "greet.py")
	service.Dir = dir
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = service.Process.Kill()
		_ = service.Wait() // killed
	})
	testkit.Eventually(t, "the service listens", func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	if printed := try(t, dir, text); printed < 4 {
		t.Errorf("only %d commands print something", printed)
	}
}

// What docs/TOOLS.md shows of `orla import` is what it prints.
func TestTheDocumentShowsWhatImportPrints(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.WriteTool(t, filepath.Join(dir, ".vscode"), "mcp.json", "{}")
	if printed := try(t, dir, section(t, "docs/TOOLS.md", "From another client")); printed != 1 {
		t.Errorf("%d commands print something", printed)
	}
}

// What docs/TOOLS.md shows in YAML is in order: whole resources as they stand,
// parts of a spec in a tool that has nothing else. What has the name of a file
// is that file.
func TestTheDocumentedResourcesAreInOrder(t *testing.T) {
	t.Parallel()
	text := testkit.ReadFile(t, filepath.Join("..", "..", "..", "docs", "TOOLS.md"))
	resources, parts, files := 0, 0, 0
	for _, block := range fence.FindAllStringSubmatch(text, -1) {
		if block[1] != "yaml" {
			continue
		}
		yaml, dir := block[2], filepath.Join(t.TempDir(), "tools")
		if first, rest, _ := strings.Cut(yaml, "\n"); strings.HasPrefix(first, "# examples/") {
			files++
			if file := filepath.Join("..", "..", "..", strings.TrimPrefix(first, "# ")); testkit.ReadFile(t, file) != rest {
				t.Errorf("%s is not what the document shows:\n%s", file, rest)
			}
		}
		if strings.Contains(yaml, "apiVersion:") {
			resources++
		} else {
			parts++
			yaml = "apiVersion: orloj.dev/v1\nkind: Tool\nmetadata:\n  name: part\nspec:\n  endpoint: https://example.com\n  " +
				strings.ReplaceAll(strings.TrimRight(yaml, "\n"), "\n", "\n  ") + "\n"
		}
		testkit.WriteTool(t, dir, "path/to/echo.wasm", "\x00asm\x01\x00\x00\x00")
		testkit.WriteTool(t, dir, "resource.yaml", yaml)
		if err := os.Chmod(filepath.Join(dir, "resource.yaml"), 0o600); err != nil {
			t.Fatal(err)
		}
		found := discover.Validate(dir)
		for _, p := range found.Problems {
			t.Errorf("%s\n%v", yaml, p.Err)
		}
		if len(found.Tools)+len(found.Secrets) == 0 {
			t.Errorf("nothing was found in\n%s", yaml)
		}
	}
	if got := fmt.Sprint(resources, parts, files); got != "11 6 7" {
		t.Errorf("it has %s resources, parts and files", got)
	}
}

// One folder has a tool of every kind, and clients of every SDK list and call
// them all alike. A secret is rotated between two calls, and a server that is
// killed comes back while its tools stay listed (SPEC-TOOLS 3, 5.3).
func TestAFolderWithToolsOfEveryKind(t *testing.T) {
	needs.Time(t, "starts clients of other SDKs")
	t.Parallel()
	dir := serveExamples(t)
	examples := filepath.Join(dir, "examples", "resources")
	tools := filepath.Join(examples, "tools")
	testkit.WriteTool(t, tools, "hello.sh", testkit.ReadFile(t, filepath.Join("..", "..", "..", "examples", "tools", "hello.sh")))
	if out, err := orla(t, dir, "new", "loud", "--lang", "python", "--capsule", "--dir", tools); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	o := serveOrla(t, tools, "ORLA_CLI_ALLOWED_COMMANDS=seq")
	for _, started := range []string{"loud__greet", "notes--read", "tickets--list"} {
		o.waitListed(started) // a busy machine may need another try
	}
	var c *client
	for _, s := range sdks(t) {
		if s.via == "http" {
			c = s.connect(t, o, tools)
			t.Run(s.name+" "+s.era, func(t *testing.T) { c.callsEveryKind(t) })
		}
	}
	if c == nil {
		needs.Missing(t, "no client is installed")
	}
	c.seesARotation(t, examples)
	c.seesAServerComeBack(t, o)

	o.mu.Lock()
	defer o.mu.Unlock()
	for _, line := range o.lines {
		for _, secret := range []string{"demo-weather", "demo-stock", "demo-report", "demo-tickets", "demo-rates"} {
			if strings.Contains(fmt.Sprint(line), secret) {
				t.Errorf("the log has a secret: %v", line)
			}
		}
	}
}

// says calls a tool and returns what it says, and its code if it failed.
func (c *client) says(t *testing.T, tool string, args map[string]any) (text, code string) {
	t.Helper()
	a := c.do("call", map[string]any{"name": tool, "arguments": args})
	var res result
	if !a.OK || json.Unmarshal(a.Result, &res) != nil || len(res.Content) == 0 {
		t.Fatalf("%s: %+v %s", tool, a.Error, a.Result)
	}
	code, _ = res.Meta["tool_code"].(string)
	if res.IsError != (code != "") {
		t.Errorf("%s: isError %v and tool_code %q", tool, res.IsError, code)
	}
	return strings.TrimSpace(res.Content[0].Text), code
}

// lists returns the names of all tools.
func (c *client) lists(t *testing.T) string {
	t.Helper()
	a := c.do("list", nil)
	var list struct {
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	if !a.OK || json.Unmarshal(a.Result, &list) != nil {
		t.Fatalf("list: %+v %s", a.Error, a.Result)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

const everyKind = "complain factors hello loud__count loud__greet notes--read notes--write numbers rates report stock tickets--close tickets--list tickets--open weather"

func (c *client) callsEveryKind(t *testing.T) {
	if got := c.lists(t); got != everyKind {
		t.Errorf("the tools are %s\nwant %s", got, everyKind)
	}
	for _, call := range []struct {
		tool       string
		args       map[string]any
		text, code string // of text a part
	}{
		{"hello", map[string]any{"name": "Ada"}, "Hello, Ada!", ""},
		{"loud__greet", map[string]any{"name": "Ada"}, "Hello, Ada!", ""},
		{"weather", map[string]any{"city": "Oslo"}, `"sky": "rain"`, ""},
		{"weather", map[string]any{"city": "Rome"}, "404 Not Found", "execution_failed"},
		{"weather", map[string]any{}, "city: is required", "invalid_input"},
		{"rates", map[string]any{"currency": "USD"}, "1.08", ""},
		{"stock", map[string]any{"item": "tea"}, `"attempt": 2`, ""},
		{"stock", map[string]any{"item": "coal"}, "there is no coal", "invalid_input"},
		{"factors", map[string]any{"number": 360}, "[2,2,2,3,3,5]", ""},
		{"report", map[string]any{"subject": "tea"}, "All is well with tea.", ""},
		{"notes--read", map[string]any{"name": "tea"}, "three minutes", ""},
		{"notes--write", map[string]any{"name": "milk", "text": "none"}, "signed by Ada", ""},
		{"complain", map[string]any{"title": "Too hot"}, "is open", ""},
		{"tickets--list", map[string]any{}, "Too hot", ""},
		{"numbers", map[string]any{"first": -1, "last": 1, "separator": "; "}, "-1; 0; 1", ""},
		{"numbers", map[string]any{"first": 1, "last": 2, "separator": "\x00"}, "a value holds a NUL byte", "invalid_input"},
	} {
		if text, code := c.says(t, call.tool, call.args); !strings.Contains(text, call.text) || code != call.code {
			t.Errorf("%s %v: %q %q, want %q %q", call.tool, call.args, text, code, call.text, call.code)
		}
	}
}

// seesARotation gives the weather service another token, and then Orla.
func (c *client) seesARotation(t *testing.T, examples string) {
	t.Helper()
	oslo := map[string]any{"city": "Oslo"}
	if err := os.WriteFile(filepath.Join(examples, "services", "weather.tokens"), []byte("demo-weather-2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, code := c.says(t, "weather", oslo); code != "auth_invalid" {
		t.Errorf("with the old token: %q %q", text, code)
	}
	secrets := filepath.Join(examples, "tools", "secrets.yaml")
	text := strings.Replace(testkit.ReadFile(t, secrets), "demo-weather-1", "demo-weather-2", 1)
	if err := os.WriteFile(secrets, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the new token is taken", func() bool {
		_, code := c.says(t, "weather", oslo)
		return code == ""
	})
}

// seesAServerComeBack kills the process of notes.
func (c *client) seesAServerComeBack(t *testing.T, o *running) {
	t.Helper()
	log := o.follow()
	started := func(l map[string]any) bool { return l["tool"] == "notes" }
	pid, _ := log.next("started", started)["pid"].(float64)
	if err := syscall.Kill(int(pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	log.next("state", is("notes", "CRASHED"))
	if got := c.lists(t); got != everyKind {
		t.Errorf("while notes is down, the tools are %s", got)
	}
	log.next("state", is("notes", "READY"))
	if text, code := c.says(t, "notes--read", map[string]any{"name": "tea"}); text != "three minutes" || code != "" {
		t.Errorf("from the new process: %q %q", text, code)
	}
	if n := o.count("started", started); n != 2 {
		t.Errorf("notes was started %d times", n)
	}
}
