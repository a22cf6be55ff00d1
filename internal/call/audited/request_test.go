package audited

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/observe/audit"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// asked records requests, closes the log, and returns their lines. The log verifies.
func asked(t *testing.T, full bool, all ...peer.Request) (lines []map[string]any) {
	t.Helper()
	l, path := openAudit(t)
	l.SetFull(full)
	parent, ok := trace.Parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "")
	if !ok {
		t.Fatal("there is no trace")
	}
	for i := range all {
		noted, ended, err := Recorder{l}.Request()
		if err != nil || noted.Verdict != audit.None {
			t.Fatalf("%+v, %v", noted, err)
		}
		noted.Target, noted.Class, noted.Rule, noted.Verdict = "box", "read", "rule-1", audit.Deny
		all[i].Noted = noted
		ended(trace.With(t.Context(), parent), &all[i], "permission_denied")
	}
	l.Close()
	text := testkit.ReadFile(t, path)
	v := &audit.Verifier{}
	if err := v.File(t.Context(), path, strings.NewReader(text), false); err != nil || !v.Report().OK() {
		t.Errorf("%v, %+v", err, v.Report().Findings)
	}
	for line := range strings.Lines(text) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if len(line) > 64<<10 {
			t.Errorf("a line has %d bytes", len(line))
		}
		if m["event"] == "request" {
			lines = append(lines, m)
		}
	}
	if len(lines) != len(all) {
		t.Fatalf("%d requests have %d lines:\n%s", len(all), len(lines), text)
	}
	return lines
}

// SPEC-TOOLS 8.8: the line of a request says who has asked for what, and what was decided. What a peer finds in its params is found there, also
// under a name with escapes; and nothing but the hash of arguments is there.
func TestT88ALineSaysWhatARequestAsksFor(t *testing.T) {
	for _, c := range []struct {
		method, params   string
		uri, prompt, sum string // sum is of which arguments
	}{
		{"resources/read", `{"uri":"box://one","name":"no","arguments":{"no":1}}`, "box://one", "", ""},
		{"resources/read", `{"\u0075ri":"box:\/\/o\u006ee"}`, "box://one", "", ""},
		{"resources/read", `{"uri":7}`, "7", "", ""},
		{"resources/read", `{}`, "", "", ""},
		{"resources/read", ``, "", "", ""},
		{"resources/subscribe", `{"uri":"box://one"}`, "box://one", "", ""},
		{"prompts/get", `{"name":"ask","uri":"no","arguments":{ "b":"s3cret","a":"1" }}`, "", "ask", `{"a":"1","b":"s3cret"}`},
		{"prompts/get", `{"n\u0061me":"ask","\u0061rguments":{"a":"s3cret"}}`, "", "ask", `{"a":"s3cret"}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","n\u0061me":"ask"},"argument":{"name":"a","value":"s3cret"}}`, "", "ask", `{"name":"a","value":"s3cret"}`},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"box://{x}"},"argument":{"name":"x","value":""}}`, "box://{x}", "", `{"name":"x","value":""}`},
	} {
		req := peer.Request{
			Method: c.method, Params: json.RawMessage(c.params), Caller: "ann", Task: "task-1", Meta: []byte(`{"orloj.dev/agent":"bot"}`),
			Input: peer.Input{Responses: []byte(`{"q":{"content":"s3cret"}}`)},
		}
		for _, full := range []bool{false, true} {
			line := asked(t, full, req)[0]
			got, want := line["args_sha256"], any(nil)
			if c.sum != "" {
				want = sumOf(c.sum)
			}
			for key, value := range map[string]any{
				"caller": "ann", "agent": "bot", "task": "task-1", "method": c.method, "target": "box", "class": "read", "rule": "rule-1", "verdict": "deny",
				"outcome": "permission_denied", "trace_id": "0af7651916cd43dd8448eb211c80319c",
			} {
				if line[key] != value {
					t.Errorf("%s %s: %s is %v; want %v", c.method, c.params, key, line[key], value)
				}
			}
			if _, took := line["duration_ms"]; !took || line["input_sha256"] == nil || text(line["uri"]) != c.uri || text(line["prompt"]) != c.prompt || got != want {
				t.Errorf("%s %s: %v", c.method, c.params, line)
			}
			if raw, _ := json.Marshal(line); strings.Contains(string(raw), "s3cret") != (full && strings.Contains(c.sum, "s3cret")) {
				t.Errorf("full: %t: %s", full, raw)
			}
		}
	}
}

func sumOf(args string) string {
	sum := sha256.Sum256([]byte(args))
	return hex.EncodeToString(sum[:])
}

func text(value any) string {
	text, _ := value.(string)
	return text
}

// SPEC-TOOLS 8.8: nobody writes a line of their own, or one that is too long, by what they ask for. The line does not show the name of a kept answer, with which it can be read.
func TestT88ARequestCannotWriteALine(t *testing.T) {
	odd := "x\"}\n{\"seq\":1,\"event\":\"call\"}\n\x1b[2J\u202e\u2028" + strings.Repeat("\x01", 100_000)
	quoted, err := json.Marshal(odd)
	if err != nil {
		t.Fatal(err)
	}
	kept := "orla://answers/ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	lines := asked(t, true,
		peer.Request{Method: "resources/read", Params: []byte(`{"uri":` + string(quoted) + `}`), Caller: odd, Task: odd, Meta: []byte(`{"orloj.dev/agent":` + string(quoted) + `}`)},
		peer.Request{Method: "prompts/get", Params: []byte(`{"name":` + string(quoted) + `,"arguments":{"a":` + string(quoted) + `}}`)},
		peer.Request{Method: "resources/read", Params: []byte(`{"uri":"` + kept + `"}`)},
		peer.Request{Method: "resources/read", Params: []byte(`{"uri":"ORLA` + kept[4:] + `"}`)},
	)
	for _, got := range []string{text(lines[0]["uri"]), text(lines[0]["agent"]), text(lines[1]["prompt"])} {
		if !strings.HasPrefix(got, "x\"}\n{") || len(got) > 400 {
			t.Errorf("%d bytes: %.50q", len(got), got)
		}
	}
	if lines[1]["args_omitted_bytes"] == nil || lines[1]["args"] != nil {
		t.Errorf("large arguments: %v", lines[1])
	}
	for _, line := range lines[2:] {
		if got := text(line["uri"]); !strings.HasPrefix(got, "orla:sha256:") || strings.Contains(got, "ABCDEF") {
			t.Errorf("the name of a kept answer is shown: %s", got)
		}
	}
}

// SPEC-TOOLS 8.8: a request that cannot be recorded is refused, and may be tried again.
func TestT88WithoutALogNothingIsRead(t *testing.T) {
	l, _ := openAudit(t)
	l.Close() // it takes no lines
	noted, ended, err := Recorder{l}.Request()
	if fault.CodeOf(err) != fault.NotReady || noted != nil || ended != nil || !strings.Contains(err.Error(), "audit_log") {
		t.Errorf("%+v, %v", noted, err)
	}
}

// SPEC-TOOLS 8.8: orla audit show finds requests by what they ask for, and by whose it is.
func TestT88ShowFindsRequests(t *testing.T) {
	l, path := openAudit(t)
	for _, req := range []peer.Request{
		{Method: "resources/read", Params: []byte(`{"uri":"box://one"}`), Caller: "ann"},
		{Method: "prompts/get", Params: []byte(`{"name":"ask"}`), Caller: "bob"},
	} {
		noted, ended, err := Recorder{l}.Request()
		if err != nil {
			t.Fatal(err)
		}
		noted.Target, noted.Verdict, req.Noted = "box", audit.Allow, noted
		ended(t.Context(), &req, audit.OK)
	}
	l.Close()
	written := testkit.ReadFile(t, path)
	for which, want := range map[audit.Selection]int{
		{}: 2, {Tool: "box"}: 2, {Tool: "box://one"}: 1, {Tool: "ask"}: 1, {Tool: "other"}: 0, {Caller: "ann"}: 1, {Verdict: audit.Deny}: 0,
	} {
		got := 0
		odd, err := which.Show(context.Background(), strings.NewReader(written), func(l *audit.Line, _ []byte) error {
			if got++; !l.IsRequest() || l.Asked() == "" {
				t.Errorf("%+v", l)
			}
			return nil
		})
		if got != want || odd != 0 || err != nil {
			t.Errorf("%+v: %d lines, %d odd, %v; want %d", which, got, odd, err, want)
		}
	}
}
