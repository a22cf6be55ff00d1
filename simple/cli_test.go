package simple_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/launch/environ"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/simple"
)

// cliTool is a tool of type cli whose command is a shell script.
func cliTool(t *testing.T, body string, args []string, change ...func(*manifest.Tool)) manifest.Tool {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "command")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o755); err != nil {
		t.Fatal(err)
	}
	tool := manifest.Tool{
		Name: "tool", Kind: manifest.Cli, Path: path, Dir: dir, Source: "tool.yaml",
		InputSchema: json.RawMessage(`{"type":"object"}`),
		Resource:    &manifest.Resource{CLI: &manifest.CLI{Command: path, Args: args, Output: manifest.CLIStdout}},
		Isolation:   manifest.Isolation{Mode: manifest.IsolationNone},
	}
	for _, c := range change {
		c(&tool)
	}
	return tool
}

// eachArg prints every argument on a line of its own, in brackets.
const eachArg = `for a in "$@"; do printf '[%s]\n' "$a"; done`

// argv calls a command with the arguments' templates, and returns what it was
// given.
func argv(t *testing.T, args string, templates ...string) string {
	t.Helper()
	return text(t, mustCall(t, command(t, cliTool(t, eachArg, templates)), args), 0)
}

// SPEC-TOOLS 3.6: each arg is a template and makes exactly one element, dropped
// when empty; numbers keep their digits, and a missing key is empty.
func TestT36Argv(t *testing.T) {
	for name, test := range map[string]struct {
		templates []string
		args      string
		want      []string
	}{
		"literal":                           {[]string{"get", "-n", "a b", "*", "$HOME", "`id`", "a;b", "'", `"`}, `{}`, []string{"get", "-n", "a b", "*", "$HOME", "`id`", "a;b", "'", `"`}},
		"one value is one argument":         {[]string{"{{.q}}"}, `{"q":"a b $(id) ; rm -rf / * ' \" \\ \n c"}`, []string{"a b $(id) ; rm -rf / * ' \" \\ \n c"}},
		"a part of one":                     {[]string{"--name={{.q}}", "x{{.q}}y"}, `{"q":"-a b"}`, []string{"--name=-a b", "x-a by"}},
		"numbers keep their digits":         {[]string{"{{.a}}", "{{.b}}", "{{.c}}", "{{.d}}", "{{.e}}", "{{.f}}"}, `{"a":12345678901234567890,"b":1.50,"c":1e400,"d":0.1,"e":7,"f":1E2}`, []string{"12345678901234567890", "1.50", "1e400", "0.1", "7", "1E2"}},
		"numbers are numbers":               {[]string{"{{if gt .n 3}}many{{end}}", `{{printf "%03d" .n}}`, `{{index .l .i}}`, `{{printf "%.2f" .f}}`}, `{"n":5,"l":["a","b"],"i":1,"f":0.125}`, []string{"many", "005", "b", "0.12"}},
		"what is missing is empty":          {[]string{"{{.a}}", "x={{.a.b.c}}", "{{print .a}}y", `{{printf "%v%s" .a .a}}z`, "{{.a | html}}w"}, `{}`, []string{"x=", "y", "z", "w"}},
		"null is as missing":                {[]string{"{{.a}}", "x={{.a.b}}", "{{if .a}}no{{end}}", "{{range .a}}no{{end}}", "l={{.l}}"}, `{"a":null,"l":[null,1]}`, []string{"x=", "l=[null,1]"}},
		"empty is dropped":                  {[]string{"", "{{.a}}", "{{if .b}}--b{{end}}", "last"}, `{"a":""}`, []string{"last"}},
		"true and false":                    {[]string{"{{.t}}", "{{.f}}", "{{if .t}}--yes{{end}}"}, `{"t":true,"f":false}`, []string{"true", "false", "--yes"}},
		"objects and arrays are JSON":       {[]string{"{{.o}}", "{{.l}}", "{{print .o}}", `{{printf "%v" .l}}`, "{{.}}"}, `{"o":{"b":"<&>","a":1.50},"l":[1,"x",true]}`, []string{`{"a":1.50,"b":"<&>"}`, `[1,"x",true]`, `{"a":1.50,"b":"<&>"}`, `[1,"x",true]`, `{"l":[1,"x",true],"o":{"a":1.50,"b":"<&>"}}`}},
		"loops and variables":               {[]string{`{{range $i, $x := .l}}{{if $i}},{{end}}{{$x}}{{end}}`, `{{with $q := .o}}{{$q.k}}{{else}}none{{end}}`}, `{"l":["a","b"],"o":{"k":"v"}}`, []string{"a,b", "v"}},
		"templates":                         {[]string{`{{define "x"}}<{{.}}>{{end}}{{template "x" .a}}`}, `{"a":"b"}`, []string{"<b>"}},
		"an argument called as a method is": {[]string{"{{.String}}"}, `{"String":"s"}`, []string{"s"}},
		"no arguments at all":               {[]string{"{{.a}}", "x"}, ``, []string{"x"}},
	} {
		t.Run(name, func(t *testing.T) {
			want := ""
			for _, arg := range test.want {
				want += "[" + arg + "]\n"
			}
			if got := argv(t, test.args, test.templates...); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// refused calls a command that must not be started, and returns why it was not.
func refused(t *testing.T, args string, templates ...string) string {
	t.Helper()
	ran := filepath.Join(t.TempDir(), "ran")
	_, err := call(t, command(t, cliTool(t, "touch "+ran, templates)), args)
	f := faultOf(t, err, fault.InvalidInput)
	if _, err := os.Stat(ran); err == nil || !f.Unsent || f.Retryable() {
		t.Errorf("it ran: %v, unsent %v, retryable %v", err == nil, f.Unsent, f.Retryable())
	}
	return f.Reason
}

// SPEC-TOOLS 3.6: a value that would turn into an option where the template gave
// none is refused, unless -- stands before it.
func TestT36OptionsGuard(t *testing.T) {
	const evil = `{"q":"--output=/etc/passwd","e":"","n":-5,"s":"-5","l":["-x"],"d":"-","f":"-%d","g":"%d","h":-1e400}`
	for _, templates := range [][]string{
		{"{{.q}}"},
		{"x", "{{.q}}"},
		{"{{.e}}{{.q}}"},
		{"{{- .q -}}"},
		{"{{if true}}{{.q}}{{end}}"},
		{"{{.n}}{{.q}}"}, // what follows a number makes no number of it
		{"{{.n}}{{.d}}"},
		{`{{.n}}{{printf "%s" .q}}`},
		{"{{.e}}{{.n}}{{range .l}}{{.}}{{end}}"},
		{"{{print .n .n}}"}, // what is made of two numbers is none
		{"{{print .s}}"},
		{`{{printf "%v" .s}}`},
		{"{{print .n}}{{.q}}"},
		{`{{printf .f .n}}`}, // the format has a sign of its own
		{`{{printf "%x" .n}}`},
		{`{{printf "%.1v" .h}}`}, // a part of a number
		{`{{printf "%d%d" .n .n}}`},
		{"{{.s}}"},
		{"{{.d}}"},
		{"{{range .l}}{{.}}{{end}}"},
		{"{{index .l 0}}"},
		{"{{print .q}}"},
		{`{{printf "%s" .q}}`},
		{`{{printf "" | print .q}}`},
		{"{{$x := .q}}{{$x}}"},
		{"{{.q | html}}"},
		{"{{with .q}}{{.}}{{end}}"},
		{`{{define "x"}}{{.}}{{end}}{{template "x" .q}}`},
		{"{{.e}}-prod"},
		{"{{.missing}}--all"},
		{`{{.e}}{{"-x"}}`},
		{"{{.q}}", "--"},
		{"{{if true}}--{{end}}", "{{.q}}"},
		{"--x", "{{.q}}"},
		{" --", "{{.q}}"},
		{`{{.q}}{{"--"}}`},
	} {
		if got := refused(t, evil, templates...); !strings.Contains(got, "-") || strings.Contains(got, "passwd") {
			t.Errorf("%q: %s", templates, got)
		}
	}
	for _, test := range []struct {
		templates []string
		want      string
	}{
		{[]string{"--name={{.q}}"}, "[--name=--output=/etc/passwd]\n"},
		{[]string{"--", "{{.q}}"}, "[--]\n[--output=/etc/passwd]\n"},
		{[]string{"get", "--", "x", "{{.n}}"}, "[get]\n[--]\n[x]\n[-5]\n"},
		{[]string{"{{if .q}}--all{{end}}"}, "[--all]\n"},
		{[]string{`{{"-v"}}`, `{{printf "-n=%v" .n}}`, `{{print "-x" .n}}`}, "[-v]\n[-n=-5]\n[-x-5]\n"},
		{[]string{"-{{.d}}"}, "[--]\n"},
		{[]string{"{{.n}}", "{{.n}}px", "{{.e}}{{.n}}", "{{.n}}{{.e}}"}, "[-5]\n[-5px]\n[-5]\n[-5]\n"}, // a number is a value
		{[]string{"{{print .n}}", "{{html .n}}", "{{.n | urlquery}}", "{{js .n}}px"}, "[-5]\n[-5]\n[-5]\n[-5px]\n"},
		{[]string{`{{printf "%d" .n}}`, `{{printf "%v" .n}}`, `{{.n | printf "%+03d"}}`, `{{printf .g .n}}`, `{{printf "%v" .h}}`}, "[-5]\n[-5]\n[-05]\n[-5]\n[-1e400]\n"},
		{[]string{"{{.n}},{{.n}}", "{{.n}}..{{.n}}"}, "[-5,-5]\n[-5..-5]\n"},
		{[]string{" {{.q}}"}, "[ --output=/etc/passwd]\n"},
	} {
		if got := argv(t, evil, test.templates...); got != test.want {
			t.Errorf("%q gives %s", test.templates, got)
		}
	}
}

// SPEC-TOOLS 3.6, 4: a template that cannot be executed is invalid_input that names
// the argument; nothing has run.
func TestT36TemplateErrors(t *testing.T) {
	for template, want := range map[string]string{
		"{{.a.b}}":         "cli.args[1]: template error: 1:4: executing \"arg\" at <.a.b>: can't evaluate field b in type string",
		"{{index .l 5}}":   "cli.args[1]: template error: 1:2: executing \"arg\" at <index .l 5>: error calling index: index out of range: 5",
		"{{eq .a .l}}":     "cli.args[1]: template error: 1:2: executing \"arg\" at <eq .a .l>: error calling eq: incompatible types for comparison: string and []interface {}",
		"{{call .a}}":      "cli.args[1]: template error: 1:2: executing \"arg\" at <call .a>: error calling call: non-function of type string",
		"{{.nul}}":         "cli.args[1]: a value holds a NUL byte, which no argument can",
		"{{printf .fmt}}x": "cli.args[1]: template error: functions make more than 4194304 bytes",
	} {
		args := `{"a":"s","l":[1],"nul":"a\u0000b","fmt":"%10000000d"}`
		if got := refused(t, args, "first", template); got != want {
			t.Errorf("%s: got  %s\nwant %s", template, got, want)
		}
	}
}

// SPEC-TOOLS 3.6: the command line is at most 128 KiB in all.
func TestT36TheCommandLineIsBounded(t *testing.T) {
	big := strings.Repeat("x", 70<<10)
	args := fmt.Sprintf(`{"q":%q}`, big)
	if got := argv(t, args, "{{.q}}"); len(got) != len(big)+3 {
		t.Errorf("got %d bytes", len(got))
	}
	for _, templates := range [][]string{{"{{.q}}", "{{.q}}"}, {"{{.q}}{{.q}}"}, {strings.Repeat("{{.q}}", 5000)}} {
		if got := refused(t, args, templates...); !strings.Contains(got, "more than 131072 bytes") {
			t.Errorf("got %s", got)
		}
	}
}

// SPEC-TOOLS 3.6: the environment is what env and env_from give, and PATH, HOME
// and LANG; nothing of Orla's own is in it.
func TestT36Environment(t *testing.T) {
	tool := cliTool(t, "env", nil, func(t *manifest.Tool) {
		t.Run.Env = map[string]string{"A": "1", "LANG": "de_DE.UTF-8"}
		t.Run.SecretEnv = []manifest.SecretEnv{{Name: "TOKEN", Secret: secret.Ref{Name: "k"}}}
	})
	c := command(t, tool, func(o *simple.Options) {
		o.Environ = environ.Clean([]string{"PATH=" + os.Getenv("PATH"), "HOME=/home/ada", "LANG=C", "TMPDIR=/x", "AWS_SECRET_ACCESS_KEY=x", "ORLA_PORT=1", "ORLOJ_SECRET_K=x", "TERM=x", "LD_PRELOAD="})
		o.Secrets = func(secret.Ref) (secret.Value, error) { return secret.NewValue("xyz"), nil } // too short to be redacted
	})
	ctx := trace.With(callid.With(t.Context(), "id"), trace.Of([16]byte{1}, [8]byte{2}, 1, "a=b"))
	res, err := answer(c.Call(ctx, peer.Call{Args: json.RawMessage(`{}`)}))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(text(t, res, 0)) {
		name, _, _ := strings.Cut(line, "=")
		switch name {
		case "ORLA_INSTANCE", "PWD", "SHLVL", "_", "OLDPWD": // by which Orla ends what is left, and what the shell adds
		default:
			got = append(got, strings.TrimSpace(line))
		}
	}
	slices.Sort(got)
	want := []string{"A=1", "HOME=/home/ada", "LANG=de_DE.UTF-8", "PATH=" + os.Getenv("PATH"), "TOKEN=xyz"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// SPEC-TOOLS 3.6, 5.3: secrets are resolved at each attempt, and are in nothing
// that a call gives back, whole or cut.
func TestT36SecretsOfEnvFrom(t *testing.T) {
	values := []string{"first-secret", "second-secret"}
	change := func(t *manifest.Tool) {
		t.Run.SecretEnv = []manifest.SecretEnv{{Name: "TOKEN", Secret: secret.Ref{Name: "k"}}}
		t.Resource.CLI.Output = manifest.CLIBoth
	}
	resolve := func(o *simple.Options) {
		o.Secrets = func(ref secret.Ref) (secret.Value, error) {
			if len(values) == 0 {
				return secret.Value{}, fault.New(fault.SecretResolutionFailed, "secret %q: it is not there", ref)
			}
			value := values[0]
			values = values[1:]
			return secret.NewValue(value), nil
		}
	}
	c := command(t, cliTool(t, `printf '%s %s' "$TOKEN" "${#TOKEN}"; echo "$TOKEN" >&2; test "${#TOKEN}" = 12`, nil, change), resolve)
	res := mustCall(t, c, `{}`)
	if got := text(t, res, 0); got != `{"stdout":"[redacted] 12","stderr":"[redacted]\n"}` {
		t.Errorf("got %s", got)
	}
	res, err := call(t, c, `{}`)
	if f := faultOf(t, err, fault.ExecutionFailed); strings.Contains(fmt.Sprint(f, text(t, res, 0)), "second") || !strings.Contains(text(t, res, 0), "13") {
		t.Errorf("got %v and %s", f, text(t, res, 0))
	}
	_, err = call(t, c, `{}`)
	if f := faultOf(t, err, fault.SecretResolutionFailed); !f.Unsent || !strings.Contains(f.Reason, "TOKEN") {
		t.Errorf("got %v", f)
	}
	values = []string{"a-long-secret-of-somebody", "a\x00b"}
	cut := command(t, cliTool(t, `printf 'x %s' "$TOKEN"`, nil, change, func(t *manifest.Tool) { t.Run.MaxOutput = 12 }), resolve)
	if got := fmt.Sprint(mustCall(t, cut, `{}`).StructuredContent); strings.Contains(string(mustJSON(t, got)), "a-long") {
		t.Errorf("got %s", got)
	}
	_, err = call(t, c, `{}`)
	wantCode(t, err, fault.SecretResolutionFailed) // a variable cannot hold a NUL
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// SPEC-TOOLS 3.6: stdin is the arguments where the tool says so, else empty.
func TestT36Stdin(t *testing.T) {
	const args = `{"n": 1.50, "q":"x"}`
	for stdin, want := range map[bool]string{true: args, false: ""} {
		c := command(t, cliTool(t, "cat", nil, func(t *manifest.Tool) { t.Resource.CLI.Stdin = stdin }))
		if got := text(t, mustCall(t, c, args), 0); got != want {
			t.Errorf("stdin %v: got %q", stdin, got)
		}
		if got := text(t, mustCall(t, c, ""), 0); stdin && got != "{}" {
			t.Errorf("without arguments: got %q", got)
		}
	}
}

// SPEC-TOOLS 3.6: output says what of it is the result.
func TestT36Output(t *testing.T) {
	const body = `printf '{"a": 1.50}'; printf 'told <b>\377' >&2`
	for output, test := range map[manifest.CLIOutput]struct {
		body   string
		schema string
		want   []string
		object string
	}{
		manifest.CLIStdout: {body: body, want: []string{`{"a": 1.50}`}},
		manifest.CLIStderr: {body: `echo out; printf 'stderr:\nsaid' >&2`, want: []string{"stderr:\nsaid"}},
		manifest.CLIBoth:   {body: body, want: []string{`{"stdout":"{\"a\": 1.50}","stderr":"told <b>` + "\uFFFD" + `"}`}, object: "as text"},
	} {
		c := command(t, cliTool(t, test.body, nil, func(t *manifest.Tool) {
			t.Resource.CLI.Output = output
			t.Run.StructuredResults = true // which is for simple tools
		}))
		res := mustCall(t, c, `{}`)
		var got []string
		for i := range res.Content {
			got = append(got, text(t, res, i))
			if meta := res.Content[i].(*mcp.TextContent).Meta; meta != nil {
				t.Errorf("%s: the result is an aside: %v", output, meta)
			}
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %q", output, got)
		}
		if object := res.StructuredContent; (object != nil) != (test.object != "") || object != nil && string(mustJSON(t, object)) != strings.ReplaceAll(strings.ReplaceAll(got[0], "<", `\u003c`), ">", `\u003e`) {
			t.Errorf("%s: structured %s", output, mustJSON(t, object))
		}
		if res.Meta[simple.MetaExitCode] != 0 {
			t.Errorf("%s: _meta %v", output, res.Meta)
		}
	}
}

// SPEC-TOOLS 1.2: output_schema is of what is the result.
func TestT36OutputSchema(t *testing.T) {
	for _, test := range []struct {
		output       manifest.CLIOutput
		body, schema string
		want         string // "": it does not fit
	}{
		{manifest.CLIStdout, `printf '{"a": 1.50}'`, `{"type":"object","required":["a"]}`, `{"a": 1.50}`},
		{manifest.CLIStdout, `printf '{"a": 1} trailing'`, `{"type":"object"}`, ""},
		{manifest.CLIStdout, `printf '{"b": 1}'`, `{"type":"object","required":["a"]}`, ""},
		{manifest.CLIStderr, `echo junk; printf '{"a": 1}' >&2`, `{"type":"object","required":["a"]}`, `{"a": 1}`},
		{manifest.CLIBoth, `printf x`, `{"type":"object","required":["stdout"]}`, `{"stdout":"x","stderr":""}`},
		{manifest.CLIBoth, `printf x`, `{"type":"object","required":["a"]}`, ""},
	} {
		c := command(t, cliTool(t, test.body, nil, func(tool *manifest.Tool) {
			tool.OutputSchema = json.RawMessage(test.schema)
			tool.Resource.CLI.Output = test.output
		}))
		res, err := call(t, c, `{}`)
		if test.want == "" {
			wantCode(t, err, fault.ExecutionFailed)
			continue
		}
		if got, _ := res.StructuredContent.(json.RawMessage); err != nil || string(got) != test.want {
			t.Errorf("%s: %s, %v", test.body, got, err)
		}
	}
}

// SPEC-TOOLS 3.6: an exit code is a failure, with what the command said of it; it
// is tried again only where it is listed.
func TestT36ExitCodes(t *testing.T) {
	const body = `echo "some of it"; i=0; while [ $i -lt 50 ]; do echo "line $i" >&2; i=$((i+1)); done; exit `
	for code, again := range map[int]bool{1: false, 75: true, 255: false} {
		c := command(t, cliTool(t, body+fmt.Sprint(code), nil, func(t *manifest.Tool) { t.Resource.CLI.RetryExitCodes = []int{7, 75} }))
		res, err := call(t, c, `{}`)
		f := faultOf(t, err, fault.ExecutionFailed)
		if f.Retryable() != again || f.Unsent || text(t, res, 0) != "some of it\n" || res.Meta[simple.MetaExitCode] != code {
			t.Errorf("%d: retryable %v, unsent %v, %+v", code, f.Retryable(), f.Unsent, res)
		}
		if want := fmt.Sprintf("tool exited with code %d; it said on stderr:\n…line 30\n", code); !strings.HasPrefix(f.Reason, want) || !strings.HasSuffix(f.Reason, "line 49") {
			t.Errorf("reason %q", f.Reason)
		}
		if reason, cause := f.Log(); strings.Contains(reason, "line") || cause != nil {
			t.Errorf("the log has what it said: %s, %v", reason, cause)
		}
	}
}

// SPEC-TOOLS 4: a command that is not there is unsupported_tool; one that is found
// later runs.
func TestT36TheCommandIsLookedUpAtEachCall(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	c := command(t, cliTool(t, "", []string{"x"}, func(t *manifest.Tool) { t.Resource.CLI.Command, t.Path = "brand-new-command", "" }))
	_, err := call(t, c, `{}`)
	if f := faultOf(t, err, fault.UnsupportedTool); !f.Unsent || f.Retryable() {
		t.Errorf("got %+v", f)
	}
	if err := os.WriteFile(filepath.Join(bin, "brand-new-command"), []byte("#!/bin/sh\necho \"$0 $1\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := text(t, mustCall(t, c, `{}`), 0); got != filepath.Join(bin, "brand-new-command")+" x\n" {
		t.Errorf("got %q", got)
	}
	// A PATH that begins here names nothing for certain.
	t.Chdir(bin)
	t.Setenv("PATH", ".")
	_, err = call(t, c, `{}`)
	wantCode(t, err, fault.UnsupportedTool)
}

// SPEC-TOOLS 3.6: it runs in its file's folder, or in its own.
func TestT36WorkingDir(t *testing.T) {
	tool := cliTool(t, "pwd", nil)
	if got := text(t, mustCall(t, command(t, tool), `{}`), 0); got != tool.Dir+"\n" {
		t.Errorf("got %q", got)
	}
	tool.Resource.CLI.WorkingDir = "/"
	if got := text(t, mustCall(t, command(t, tool), `{}`), 0); got != "/\n" {
		t.Errorf("got %q", got)
	}
}

// SPEC C4: a command that takes too long is ended, and what it started.
func TestT36ACommandEndsAtItsDeadline(t *testing.T) {
	begun := filepath.Join(t.TempDir(), "begun")
	ctx, cancel := context.WithCancelCause(t.Context())
	late := fault.New(fault.Timeout, "late")
	go func() {
		for _, err := os.Stat(begun); err != nil; _, err = os.Stat(begun) {
			runtime.Gosched()
		}
		cancel(late)
	}()
	c := command(t, cliTool(t, "sleep 100 & echo begun; : > "+begun+"; exec sleep 100", nil))
	res, err := answer(c.Call(ctx, peer.Call{Args: json.RawMessage(`{}`)}))
	wantCode(t, err, fault.Timeout)
	if got := text(t, res, 0); got != "begun\n" {
		t.Errorf("got %q", got)
	}
}

// The templates of a tool are shared by its calls.
func TestT36CallsDoNotMeetInTheirTemplates(t *testing.T) {
	c := command(t, cliTool(t, eachArg, []string{`{{range .l}}{{.}}{{end}}`, `{{define "x"}}<{{.}}>{{end}}{{template "x" .n}}`}))
	var calls sync.WaitGroup
	for i := range 32 {
		calls.Go(func() {
			res, err := answer(c.Call(t.Context(), peer.Call{Args: fmt.Appendf(nil, `{"n":%d,"l":[%[1]d,%[1]d]}`, i)}))
			if err != nil {
				t.Error(err)
				return
			}
			if got, want := res.Content[0].(*mcp.TextContent).Text, fmt.Sprintf("[%d%[1]d]\n[<%[1]d>]\n", i); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
	calls.Wait()
}

// A template that is as deep as one may be long ends as any other.
func TestT36DeepTemplates(t *testing.T) {
	needs.Time(t, "reads very deep templates")
	for name, template := range map[string]string{
		"parentheses": "{{" + strings.Repeat("(", 30_000) + "1" + strings.Repeat(")", 30_000) + "}}",
		"conditions":  strings.Repeat("{{if 1}}", 3_400) + "x" + strings.Repeat("{{end}}", 3_400),
		"loops":       strings.Repeat("{{range $.l}}", 2_800) + "x" + strings.Repeat("{{end}}", 2_800),
		"pipes":       "{{.q" + strings.Repeat("|js", 20_000) + "}}",
		"fields":      "{{.q" + strings.Repeat(".q", 30_000) + "}}",
	} {
		argv, err := simple.Render(t.Context(), []string{template}, json.RawMessage(`{"l":[1,2],"q":"'"}`))
		if len(argv) > 1 || err == nil && len(argv) != 1 {
			t.Errorf("%s: %d arguments, %v", name, len(argv), err)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%s: its error has %d bytes", name, len(err.Error()))
		}
	}
}
