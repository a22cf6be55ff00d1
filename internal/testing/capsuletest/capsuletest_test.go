package capsuletest_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/capsuletest"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/discover"
)

func TestMain(m *testing.M) { capsuletest.Main(m) }

// process is a script that runs, with nothing between it and the test.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr bytes.Buffer
}

// play starts a script. It is killed, with its group, when the test is over.
func play(t *testing.T, script string, mods ...func(*manifest.Tool)) *process {
	t.Helper()
	return run(t, capsuletest.Tool(t, script, mods...))
}

func run(t *testing.T, tool manifest.Tool) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.CommandContext(t.Context(), tool.Path, tool.Run.Args...)}
	p.cmd.Dir = tool.Dir
	p.cmd.Env = os.Environ()
	for name, value := range tool.Run.Env {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.WaitDelay = 100 * time.Millisecond // a sleeper may hold stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin, p.stdout = stdin, bufio.NewReader(stdout)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		_ = p.cmd.Wait()
	})
	return p
}

func (p *process) line() string {
	p.t.Helper()
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		p.t.Fatalf("stdout: %v, after %q; stderr: %s", err, line, &p.stderr)
	}
	return strings.TrimSuffix(line, "\n")
}

func (p *process) message() capsuletest.Message {
	p.t.Helper()
	var m capsuletest.Message
	if line := p.line(); json.Unmarshal([]byte(line), &m) != nil {
		p.t.Fatalf("no message: %.300q", line)
	}
	return m
}

func (p *process) hello() {
	p.t.Helper()
	if m := p.message(); m.Method != "orla.hello" {
		p.t.Fatalf("the first message is %+v, want orla.hello", m)
	}
}

func (p *process) say(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) call(id string, args capsuletest.Args) {
	p.t.Helper()
	p.say(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"echo","arguments":` + string(args.JSON()) +
		`,"_meta":{"progressToken":"token-` + id + `"}}}`)
}

// answer reads an answer of the usual kind.
func (p *process) answer(id string) capsuletest.Answer {
	p.t.Helper()
	m := p.message()
	if string(m.ID) != id || m.Result == nil {
		p.t.Fatalf("got %s %s %s, want the result of %s", m.ID, m.Method, m.Error, id)
	}
	var result struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(m.Result, &result); err != nil || len(result.Content) != 1 {
		p.t.Fatalf("result %s: %v", m.Result, err)
	}
	return capsuletest.Read(p.t, result.Content[0].Text)
}

// ended waits for the end of the process and returns its exit code, -1 for a signal.
func (p *process) ended() int {
	p.t.Helper()
	_, _ = io.Copy(io.Discard, p.stdout)
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

func TestEchoAnswersAndEnds(t *testing.T) {
	tool := capsuletest.Tool(t, "echo", capsuletest.Set("CAPS", "tools,prompts"), func(tool *manifest.Tool) { tool.Run.Args = []string{"--fast"} })
	capsuletest.Save(t, tool, "7")
	p := run(t, tool)
	if got, want := string(p.message().Params), `{"capabilities":["tools","prompts"],"name":"capsule","version":"1.2.3"}`; got != want {
		t.Errorf("hello has %s, want %s", got, want)
	}
	p.call("1", capsuletest.Args{Text: "hi", Size: 100})
	got := p.answer("1")
	if got.Pid != p.cmd.Process.Pid || got.Code != "7" || got.Text != "hi" || got.Call != 1 || got.InFlight != 1 ||
		got.Tool != "echo" || got.Dir != tool.Dir || len(got.Padding) != 100 || !slices.Equal(got.Argv[1:], []string{"--fast"}) {
		t.Errorf("got %+v", got)
	}
	if err := p.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if code := p.ended(); code != 0 {
		t.Errorf("exit code %d at the end of stdin, want 0", code)
	}
}

func TestEchoAnswersInAnyOrder(t *testing.T) {
	p := play(t, "echo")
	p.hello()
	p.call("1", capsuletest.Args{Hold: "a"})
	p.call("2", capsuletest.Args{Hold: "b"})
	p.call("3", capsuletest.Args{Release: "b"})
	ids := []string{string(p.message().ID), string(p.message().ID)}
	if slices.Sort(ids); !slices.Equal(ids, []string{"2", "3"}) {
		t.Fatalf("%v were answered, want 2 and 3", ids)
	}
	p.call("4", capsuletest.Args{Release: "a", Hold: "c"})
	p.answer("1")
	p.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}`)
	p.call("5", capsuletest.Args{})
	if got := p.answer("5"); got.Cancelled != 1 {
		t.Errorf("%d calls were cancelled, want 1", got.Cancelled)
	}
}

func TestEchoSaysWhatItIsTold(t *testing.T) {
	p := play(t, "echo")
	p.hello()
	p.call("1", capsuletest.Args{
		Progress: 2,
		Notify:   []capsuletest.Notice{{Method: "notifications/message", Params: json.RawMessage(`{"level":"info"}`)}},
		Ask:      &capsuletest.Notice{Method: "roots/list"},
	})
	for _, want := range []string{"notifications/message", "notifications/progress", "notifications/progress"} {
		if m := p.message(); m.Method != want {
			t.Fatalf("got %s, want %s", m.Method, want)
		}
	}
	ask := p.message()
	if ask.Method != "roots/list" {
		t.Fatalf("got %s, want roots/list", ask.Method)
	}
	p.say(`{"jsonrpc":"2.0","id":` + string(ask.ID) + `,"result":{"roots":[]}}`)
	if got := p.answer("1"); string(got.Client) != `{"error":null,"result":{"roots":[]}}` {
		t.Errorf("the client said %s", got.Client)
	}

	p.call("2", capsuletest.Args{Result: json.RawMessage(`null`)})
	p.call("3", capsuletest.Args{Result: json.RawMessage(`"bare"`)})
	p.call("4", capsuletest.Args{Error: json.RawMessage(`{"code":1,"message":"no"}`)})
	p.call("5", capsuletest.Args{Tools: []string{"x", "y"}})
	var got []string
	for range 5 {
		got = append(got, p.line())
	}
	for _, want := range []string{
		`{"id":2,"jsonrpc":"2.0","result":null}`,
		`{"id":3,"jsonrpc":"2.0","result":"bare"}`,
		`{"error":{"code":1,"message":"no"},"id":4,"jsonrpc":"2.0"}`,
		`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}`,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not among %q", want, got)
		}
	}
	p.call("6", capsuletest.Args{Exit: new(int)})
	if code := p.ended(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

func TestMCPServerNeedsNoHello(t *testing.T) {
	p := play(t, "mcp")
	for method, want := range map[string]string{
		"initialize":               `"protocolVersion":"2025-06-18"`,
		"ping":                     `"result":{}`,
		"tools/list":               `"name":"echo"`,
		"resources/list":           `"uri":"test://code"`,
		"resources/templates/list": `test://item/{id}`,
		"resources/read":           `"text":"1"`,
		"prompts/list":             `"greet"`,
		"prompts/get":              `hello from code 1`,
		"completion/complete":      `"two"`,
		"no/such":                  `-32601`,
	} {
		p.say(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"protocolVersion":"2025-06-18"}}`)
		if got := p.line(); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s in it", method, got, want)
		}
	}
}

// Every script that says something by itself, and what its first lines are.
func TestFirstLines(t *testing.T) {
	const hello = `"method":"orla.hello"`
	for _, c := range []struct {
		script string
		mods   []func(*manifest.Tool)
		want   []string
	}{
		{"hello-late", []func(*manifest.Tool){capsuletest.SetInt("START_MS", 20)}, []string{hello}},
		{"hello-twice", nil, []string{hello, hello}},
		{"hello-other", []func(*manifest.Tool){capsuletest.Set("OTHER_NAME", "stranger")}, []string{`"name":"stranger"`}},
		{"hello-other", []func(*manifest.Tool){capsuletest.Set("OTHER_VERSION", "9.9.9")}, []string{`"version":"9.9.9"`}},
		{"hello-malformed", []func(*manifest.Tool){capsuletest.Set("PARAMS", "[]")}, []string{`"params":[]`}},
		{"hello-malformed", nil, []string{`"method":"orla.hello"}`}},
		{"not-hello", nil, []string{"notifications/message", hello}},
		{"junk", nil, []string{"Loading model..."}},
		{"decorated", nil, []string{"\xef\xbb\xbf  {", "\r", "", "  \r"}},
		{"floods-stdout", nil, []string{hello, "notifications/message", "notifications/message"}},
		{"floods-stdout", []func(*manifest.Tool){capsuletest.Set("WHAT", "junk"), capsuletest.Set("WHEN", "start")}, []string{"tide tide", "tide tide"}},
		{"floods-stderr", nil, []string{hello}},
		{"never-reads", nil, []string{hello}},
		{"initialize-silent", nil, []string{hello}},
		{"no-ping", nil, []string{hello}},
	} {
		t.Run(c.script, func(t *testing.T) {
			p := play(t, c.script, c.mods...)
			for _, want := range c.want {
				if got := p.line(); !strings.Contains(got, want) {
					t.Errorf("got the line %.200q, want %q in it", got, want)
				}
			}
		})
	}
}

// Every script that ends by itself, and how.
func TestEnds(t *testing.T) {
	for _, c := range []struct {
		script string
		mods   []func(*manifest.Tool)
		call   bool
		code   int
		stderr string
	}{
		{"exits-starting", []func(*manifest.Tool){capsuletest.Set("STDERR", "no such module"), capsuletest.SetInt("CODE", 3)}, false, 3, "no such module"},
		{"exits-ready", nil, false, 0, ""},
		{"exits-at-call", []func(*manifest.Tool){capsuletest.SetInt("CODE", 4)}, true, 4, ""},
		{"dies-stopping", nil, false, -1, "ouch"},
		{"silent", nil, false, 0, "thinking"},
		{"echo", []func(*manifest.Tool){capsuletest.SetInt("STOP_CODE", 5)}, false, 5, ""},
	} {
		t.Run(c.script, func(t *testing.T) {
			p := play(t, c.script, c.mods...)
			if c.call {
				p.call("1", capsuletest.Args{})
			} else if err := p.stdin.Close(); err != nil {
				t.Fatal(err)
			}
			if code := p.ended(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if !strings.Contains(p.stderr.String(), c.stderr) {
				t.Errorf("stderr is %q, want %q in it", &p.stderr, c.stderr)
			}
		})
	}
}

func TestAnswersOfMisbehavers(t *testing.T) {
	for _, c := range []struct {
		script string
		mods   []func(*manifest.Tool)
		want   []string // one line each has these words; one of the lines at least
	}{
		{"answers-twice", nil, []string{`"id":7`, "the second answer", "the third answer"}},
		{"unknown-ids", nil, []string{`"id":999999`, `"id":"abc"`, `"id":"7"`}},
		{"nonsense-calls", []func(*manifest.Tool){capsuletest.Set("ANSWER", `{"jsonrpc":"2.0","id":$ID}`)}, []string{`{"jsonrpc":"2.0","id":7}`}},
		{"batch", []func(*manifest.Tool){capsuletest.SetInt("N", 1)}, []string{`[{"id":7,`}},
		{"hello-twice", nil, []string{"orla.hello"}},
		{"junk", nil, []string{"'single'", `"id":7`}},
		{"long-line", []func(*manifest.Tool){capsuletest.SetInt("SIZE", 1<<20)}, []string{"long long", `"id":7`}},
		{"deaf", nil, []string{`"id":7`}},
	} {
		t.Run(c.script, func(t *testing.T) {
			p := play(t, c.script, c.mods...)
			p.call("7", capsuletest.Args{})
			for _, want := range c.want {
				for !strings.Contains(p.line(), want) {
					continue // line ends the test at the end of stdout
				}
			}
		})
	}
}

func TestLists(t *testing.T) {
	for script, want := range map[string]string{
		"list-refused":     "-32601",
		"list-nonsense":    `{"tools":"none"}`,
		"list-bad-schemas": `"name":"bad-ref"`,
		"list-duplicates":  `"the second of its name"`,
		"list-many":        `"tool-0299"`,
		"list-long-names":  strings.Repeat("n", 64) + "-two",
		"list-pages":       `"nextCursor":"100"`,
		"list-endless":     `"nextCursor":"1"`,
	} {
		t.Run(script, func(t *testing.T) {
			p := play(t, script)
			p.hello()
			p.say(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
			if got := p.line(); !strings.Contains(got, want) {
				t.Errorf("got %.300s, want %s in it", got, want)
			}
		})
	}
	for script, want := range map[string]string{"initialize-refused": "-32601", "initialize-nonsense": `"result":42`} {
		t.Run(script, func(t *testing.T) {
			p := play(t, script, capsuletest.Set("HELLO", "no"))
			p.say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
			if got := p.line(); !strings.Contains(got, want) {
				t.Errorf("got %s, want %s in it", got, want)
			}
		})
	}
}

func TestForks(t *testing.T) {
	for _, script := range []string{"forks-daemon", "forks-deaf", "holds-stdout"} {
		t.Run(script, func(t *testing.T) {
			p := play(t, script)
			p.hello()
			p.call("1", capsuletest.Args{})
			forked := p.answer("1").Forked
			if len(forked) != 1 {
				t.Fatalf("forked %v, want one process", forked)
			}
			defer func() { _ = syscall.Kill(forked[0], syscall.SIGKILL) }()
			group, err := syscall.Getpgid(forked[0])
			if err != nil {
				t.Fatal(err)
			}
			if left := group != p.cmd.Process.Pid; left != (script == "forks-daemon") {
				t.Errorf("it is in group %d, and the capsule is %d", group, p.cmd.Process.Pid)
			}
		})
	}
}

func TestAloneTellsOfTwo(t *testing.T) {
	tool := capsuletest.Tool(t, "echo", capsuletest.Alone(t))
	run(t, tool).hello()
	if capsuletest.Overlapped(tool) {
		t.Fatal("one process overlapped with itself")
	}
	run(t, tool).hello()
	if !capsuletest.Overlapped(tool) {
		t.Error("two processes were alive at once, and it does not show")
	}
}

// A capsule of a test is kept as one whose manifest leaves out all it can.
func TestToolHasTheDefaultsOfAManifest(t *testing.T) {
	got := capsuletest.Tool(t, "echo")
	text := "name: capsule\nversion: 1.2.3\ndescription: plays the script echo\nentrypoint: run\nruntime:\n  mode: capsule\n"
	for name, mode := range map[string]os.FileMode{"tool.yaml": 0o600, "run": 0o700} {
		content := text
		if name == "run" {
			content = "#!/bin/sh\n"
		}
		if err := os.WriteFile(filepath.Join(got.Dir, name), []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	found := discover.Validate(got.Dir)
	if len(found.Tools) != 1 {
		t.Fatalf("no tool was found: %v", found.Problems)
	}
	want := found.Tools[0]
	want.Path, want.Interpreter, want.Run.Env = got.Path, got.Interpreter, got.Run.Env
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestDescriptorsAndGoroutinesAreMissed(t *testing.T) {
	before := capsuletest.Descriptors()
	f, err := os.Create(filepath.Join(t.TempDir(), "left-open"))
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	go func() { <-release }()
	got := capsuletest.LeftBehind(before, 0)
	close(release)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"left-open", "TestDescriptorsAndGoroutinesAreMissed.func"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in what is left behind:\n%s", want, got)
		}
	}
}
