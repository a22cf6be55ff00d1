package arguments_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/app/arguments"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/decisions"
	"github.com/orla-project/orla/internal/observe/audit"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/mcpbridge"
)

// desk is a Keeper, and what it uses.
type desk struct {
	*arguments.Keeper
	t       *testing.T
	log     bytes.Buffer
	secrets []string
	failing error // why the secrets cannot be had
	calls   int
	observe arguments.Observer
}

func newDesk(t *testing.T, log *audit.Log) *desk {
	t.Helper()
	d := &desk{t: t}
	d.Keeper = arguments.New(arguments.Options{
		Listed: func(tool string) bool { return strings.HasPrefix(tool, "tool") }, Audit: log, Log: slog.New(slog.NewJSONHandler(&d.log, nil)),
		Secrets: func() (values []secret.Value, _ error) {
			for _, text := range d.secrets {
				values = append(values, secret.NewValue(text))
			}
			return values, d.failing
		},
	})
	t.Cleanup(d.Close)
	d.observe = d.Observe(func(ctx context.Context, _ mcpbridge.CallStart) (context.Context, func(mcpbridge.CallEnd)) {
		return ctx, func(mcpbridge.CallEnd) {}
	})
	return d
}

func (d *desk) call(tool, args string) {
	d.calls++
	_, ended := d.observe(d.t.Context(), mcpbridge.CallStart{Tool: tool, Listed: true, ID: fmt.Sprint("id", d.calls), Caller: "ci", Args: json.RawMessage(args)})
	ended(mcpbridge.CallEnd{})
}

// ask makes a request as a visitor of the page.
func (d *desk) ask(method, path, body string) (any, error) {
	d.t.Helper()
	mux := http.NewServeMux()
	var got any
	var failed error
	for _, route := range d.Routes() {
		mux.HandleFunc(route.Pattern, func(_ http.ResponseWriter, r *http.Request) { got, failed = route.Answer(r, []byte(body)) })
	}
	r, err := http.NewRequestWithContext(decisions.With(d.t.Context(), &decisions.Visitor{Name: "ada"}), method, path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	mux.ServeHTTP(nil, r)
	return got, failed
}

// kept lists the arguments that are shown, each with its tool.
func (d *desk) kept() (list []string) {
	d.t.Helper()
	got, err := d.ask("GET", "/v1/arguments", "")
	if err != nil {
		d.t.Fatal(err)
	}
	for _, c := range got.(arguments.KeptCalls).Calls {
		list = append(list, c.Tool+" "+c.Arguments)
	}
	return list
}

func (d *desk) start(tool string) {
	d.t.Helper()
	if _, err := d.Start(tool, "ada"); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) wants(what string, want ...string) {
	d.t.Helper()
	if got := d.kept(); !slices.Equal(got, want) {
		d.t.Errorf("%s: %.300q, want %.300q", what, got, want)
	}
}

// O2: arguments are kept of the tool that somebody has asked for, of calls from then on, and for ten minutes. Who asks again
// has ten more.
func TestO2ArgumentsAreKeptForTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, nil)
		d.call("tool", `{"n":0}`)
		d.start("tool")
		d.call("tool", `{"n":1}`)
		d.call("tool2", `{"n":2}`)
		d.call("tool", "")
		d.wants("at once", `tool {"n":1}`, "tool {}")
		time.Sleep(9 * time.Minute)
		d.start("tool2")
		d.start("tool")
		d.call("tool2", `{"n":3}`)
		time.Sleep(9 * time.Minute)
		d.wants("after 18 minutes", `tool {"n":1}`, "tool {}", `tool2 {"n":3}`)
		if got := d.Tools(); len(got) != 2 || got[0].Tool != "tool" || got[0].By != "ada" || time.Until(got[0].Until) != time.Minute {
			t.Errorf("%+v", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := strings.Count(d.log.String(), "ten minutes are over"); got != 2 {
			t.Errorf("it is logged for %d tools that it has ended:\n%s", got, &d.log)
		}
		d.call("tool", `{"n":4}`)
		d.start("tool")
		d.wants("after the end")
		if strings.Contains(d.log.String(), `{\"n`) {
			t.Errorf("the log has arguments:\n%s", &d.log)
		}
	})
}

// O2: who switches it off has the arguments forgotten, those of other tools not.
func TestO2ArgumentsAreForgotten(t *testing.T) {
	d := newDesk(t, nil)
	d.start("tool")
	d.start("tool2")
	d.call("tool", `{"n":1}`)
	d.call("tool2", `{"n":2}`)
	if _, err := d.Stop("tool", "ada"); err != nil {
		t.Error(err)
	}
	d.call("tool", `{"n":3}`)
	d.wants("of the other tool", `tool2 {"n":2}`)
	if one, err := d.Stop("tool", "ada"); err != nil || one.Tool != "tool" || !one.Until.IsZero() {
		t.Errorf("once more: %+v %v", one, err)
	}
	d.Close()
	d.wants("after the end")
}

// O2: what is kept is bounded: in each call, in all, and in tools.
func TestO2ArgumentsAreBounded(t *testing.T) {
	d := newDesk(t, nil)
	d.start("tool")
	large := `{"x":"` + strings.Repeat("x", 64<<10) + `"}`
	d.call("tool", large)
	got, err := d.ask("GET", "/v1/arguments?call_id=id1", "")
	if kept, ok := got.(arguments.KeptCalls); err != nil || !ok || len(kept.Calls) != 1 || kept.Calls[0].Arguments != "" || kept.Calls[0].Bytes != len(large) {
		t.Errorf("of a large one: %+v %v", got, err)
	}
	for i := range 5000 {
		d.call("tool", fmt.Sprintf(`{"n":%d,"x":%q}`, i, strings.Repeat("x", 1000)))
	}
	all := d.kept()
	size := 0
	for _, one := range all {
		size += len(one)
	}
	if len(all) < 500 || size > 1<<20 || !strings.Contains(all[len(all)-1], `"n":4999`) {
		t.Errorf("of 5000 calls with 1000 bytes %d are kept, with %d bytes, the last one %.100s", len(all), size, all[len(all)-1])
	}
	for range 100_000 {
		d.call("tool", "")
	}
	if n := len(d.kept()); n > 1<<20/256 {
		t.Errorf("of calls without arguments %d are kept", n)
	}
	for i := range 15 {
		d.start(fmt.Sprint("tool", i))
	}
	d.start("tool3") // is one of them
	if _, err := d.Start("tool99", "ada"); err == nil || !strings.Contains(err.Error(), "16 tools") {
		t.Errorf("one more tool: %v", err)
	}
}

// O2: a value that is a secret when the call begins, or when somebody looks, is not shown, in whatever form. The rest is as
// the caller wrote it.
func TestO2ArgumentsHaveNoSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, nil)
		d.secrets = []string{`before "quoted"`, "12345678"}
		d.start("tool")
		d.call("tool", `{"a": "x before \u0022quoted\" y", "b":12345678, "c":9007199254740993, "c":1e400, "d":"after-word"}`)
		d.secrets = []string{"after-word"}
		time.Sleep(3 * time.Second)
		d.wants("later", `tool {"a": "x [redacted] y", "b":"[redacted]", "c":9007199254740993, "c":1e400, "d":"[redacted]"}`)
		d.secrets = []string{"in-between"}
		d.Renew()
		d.call("tool", `["in-between"]`)
		d.secrets = nil
		time.Sleep(3 * time.Second)
		if got := d.kept()[1]; got != `tool ["[redacted]"]` {
			t.Error(got)
		}

		d.failing = fmt.Errorf("too many")
		time.Sleep(3 * time.Second)
		if got, err := d.ask("GET", "/v1/arguments", ""); err == nil {
			t.Errorf("without the secrets: %+v", got)
		}
		if _, err := d.Start("tool2", "ada"); err == nil {
			t.Error("without the secrets it is switched on")
		}
		d.Renew()
		if d.failing = nil; d.Tools() != nil {
			t.Error("secrets that cannot be hidden are kept")
		}
	})
}

// O2: who has asked for arguments is in the audit log, which verify accepts, and without it nothing is kept. The arguments are
// not in it.
func TestO2WhoHasArgumentsKeptIsInTheAuditLog(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	log, err := audit.Open(audit.Options{Path: path, StateDir: filepath.Join(dir, "state"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	d := newDesk(t, log)
	for _, body := range []string{`{"keep":true}`, `{"keep":false}`, `{"keep":false}`} {
		if _, err := d.ask("POST", "/v1/tools/tool/arguments", body); err != nil {
			t.Fatal(err)
		}
	}
	log.Close()
	lines, _, err := audit.Tail(path, 10)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range lines {
		if l := &lines[i]; l.IsArguments() {
			got = append(got, l.Decider+" "+l.Tool+" "+l.Change+" "+fmt.Sprint(l.Until != ""))
		}
	}
	if want := []string{"ada tool kept true", "ada tool forgotten false"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if found, _, err := audit.Check(t.Context(), filepath.Join(dir, "state"), path); err != nil || !found.OK() {
		t.Errorf("%v %+v", err, found)
	}
	if _, err := d.Start("tool", "ada"); err == nil || !strings.Contains(err.Error(), "audit log") {
		t.Errorf("without an audit log: %v", err)
	}
	if d.Tools() != nil {
		t.Error("they are kept all the same")
	}
}

// O2: faulty requests are refused with what is wrong.
func TestO2FaultyRequestsForArguments(t *testing.T) {
	d := newDesk(t, nil)
	for _, c := range []struct{ method, path, body, code string }{
		{"POST", "/v1/tools/other/arguments", `{"keep":true}`, "unsupported_tool"},
		{"POST", "/v1/tools/other/arguments", `{"keep":false}`, "unsupported_tool"},
		{"POST", "/v1/tools/tool/arguments", "", control.CodeBadRequest},
		{"POST", "/v1/tools/tool/arguments", "{}", control.CodeBadRequest},
		{"POST", "/v1/tools/tool/arguments", `{"keep":"yes"}`, control.CodeBadRequest},
		{"POST", "/v1/tools/tool/arguments", `{"keep":true,"by":"root"}`, control.CodeBadRequest},
		{"GET", "/v1/arguments?call=x", "", control.CodeBadRequest},
		{"GET", "/v1/arguments?after=-1", "", control.CodeBadRequest},
		{"GET", "/v1/arguments?call_id=x", "", control.CodeNotFound},
	} {
		got, err := d.ask(c.method, c.path, c.body)
		if e, ok := err.(*control.Error); !ok || e.Code != c.code { //nolint:errorlint // it is not wrapped
			t.Errorf("%s %s %s: %+v %v, want %s", c.method, c.path, c.body, got, err, c.code)
		}
	}
	if d.Tools() != nil {
		t.Error("something is kept")
	}
}

// O2: the page asks for what is new.
func TestO2LaterArguments(t *testing.T) {
	d := newDesk(t, nil)
	d.start("tool")
	for range 3 {
		d.call("tool", "{}")
	}
	for after, want := range map[string]int{"": 3, "?after=0": 3, "?after=2": 1, "?after=3": 0, "?after=18446744073709551615": 0} {
		got, err := d.ask("GET", "/v1/arguments"+after, "")
		if kept, ok := got.(arguments.KeptCalls); err != nil || !ok || len(kept.Calls) != want || len(kept.Tools) != 1 {
			t.Errorf("%s: %+v %v, want %d calls", after, got, err, want)
		}
	}
}

// O2: it costs a call nothing while nobody has asked for it.
func TestO2KeepingNothingCostsNothing(t *testing.T) {
	d := newDesk(t, nil)
	start, ctx := mcpbridge.CallStart{Tool: "tool", Listed: true, Args: json.RawMessage(`{"n":1}`)}, t.Context()
	if n := testing.AllocsPerRun(1000, func() { _, ended := d.observe(ctx, start); ended(mcpbridge.CallEnd{}) }); n != 0 {
		t.Errorf("a call takes %v allocations", n)
	}
}

func BenchmarkNothingKept(b *testing.B) {
	k := arguments.New(arguments.Options{})
	next := func(ctx context.Context, _ mcpbridge.CallStart) (context.Context, func(mcpbridge.CallEnd)) {
		return ctx, nil
	}
	start := mcpbridge.CallStart{Tool: "tool"}
	for name, observe := range map[string]arguments.Observer{"without": next, "with": k.Observe(next)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				observe(b.Context(), start)
			}
		})
	}
}
