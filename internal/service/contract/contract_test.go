package contract_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/schema"
	"github.com/orla-project/orla/internal/service/contract"
	"github.com/orla-project/orla/manifest"
)

const id = "K5XQ2WZ7MB3TNDY6RHCJVFPA4E"

// token is credentials of one secret.
type token string

func (c token) Contract() (typ, text string) {
	if c == "" {
		return "", ""
	}
	return "bearer", string(c)
}

func (c token) Redact(text string) string {
	if c == "" {
		return text
	}
	return strings.ReplaceAll(text, string(c), "[redacted]")
}

func (c token) RedactBody(body []byte) []byte {
	if c == "" || !strings.Contains(string(body), string(c)) {
		return body
	}
	return []byte(c.Redact(string(body)))
}

// exchange begins an attempt of a tool without an output schema.
func exchange(t testing.TB, c token) *contract.Exchange {
	return exchangeOf(t, manifest.Tool{Name: "web_search"}, peer.Call{Attempt: 1}, c)
}

func exchangeOf(t testing.TB, of manifest.Tool, call peer.Call, c token) *contract.Exchange {
	t.Helper()
	tool, err := contract.For(of)
	if err != nil {
		t.Fatal(err)
	}
	return tool.Exchange(callid.With(t.Context(), id), call, c)
}

// SPEC-TOOLS 2.1.
func TestTheRequestIsThatOfThePage(t *testing.T) {
	of := manifest.Tool{Name: "web_search", Resource: &manifest.Resource{Namespace: "team-a"}}
	place, ok := trace.Parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "")
	if !ok {
		t.Fatal("no trace context")
	}
	traced := trace.With(callid.With(t.Context(), id), place)
	cases := map[string]struct {
		ctx   context.Context
		call  peer.Call
		token token
		want  string
	}{
		"all of it": {
			traced,
			peer.Call{Args: json.RawMessage(` {"query": "<a&b>", "n": 12345678901234567890.10} `), Task: "weekly-report", Caller: "research-agent", Attempt: 2},
			"sk-1",
			`{"request_id":"` + id + `","tool":"web_search","action":"invoke","parameters":{"query":"<a&b>","n":12345678901234567890.10},` +
				`"auth":{"type":"bearer","token":"sk-1"},"context":{"task":"weekly-report","agent":"research-agent","attempt":2,"namespace":"team-a",` +
				`"trace_id":"4bf92f3577b34da6a3ce929d0e0e4736","span_id":"00f067aa0ba902b7"}}`,
		},
		"nothing but the caller": {
			callid.With(t.Context(), id),
			peer.Call{Caller: "stdio"},
			"",
			`{"request_id":"` + id + `","tool":"web_search","action":"invoke","parameters":{},"context":{"task":"","agent":"stdio","attempt":1,"namespace":"team-a"}}`,
		},
		"null for no arguments": {
			callid.With(t.Context(), id),
			peer.Call{Caller: "stdio", Args: json.RawMessage("null"), Attempt: 1},
			"",
			`{"request_id":"` + id + `","tool":"web_search","action":"invoke","parameters":{},"context":{"task":"","agent":"stdio","attempt":1,"namespace":"team-a"}}`,
		},
	}
	fits := compiled(t, contract.RequestSchema())
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			tool, err := contract.For(of)
			if err != nil {
				t.Fatal(err)
			}
			got := tool.Exchange(c.ctx, c.call, c.token).Request().JSON()
			if string(got) != c.want {
				t.Errorf("request = %s\nwant %s", got, c.want)
			}
			if err := fits.ValidateOutput(t.Context(), got); err != nil {
				t.Errorf("the request does not fit its own schema: %v", err)
			}
		})
	}
}

// SPEC-TOOLS 2.2, 2.3: what is well is an answer.
func TestASuccessIsAnAnswer(t *testing.T) {
	cases := map[string]struct {
		members string // behind request_id
		text    string
		object  bool
	}{
		"object":                    {`"status":"success","result":{"n":1.0,"big":12345678901234567890}`, `{"n":1.0,"big":12345678901234567890}`, true},
		"string":                    {`"status":"success","result":"a \"b\"\n\u00e9"`, "a \"b\"\n\u00e9", false},
		"number":                    {`"status":"success","result":1.10`, `1.10`, false},
		"list":                      {`"status":"success","result":[1, {"a":2}]`, `[1, {"a":2}]`, false},
		"null":                      {`"status":"success","result":null`, `null`, false},
		"nothing":                   {`"status":"success"`, ``, false},
		"status ok":                 {`"status":"ok","result":"x"`, `x`, false},
		"output.result":             {`"status":"success","output":{"result":{"a":1}}`, `{"a":1}`, true},
		"a null error beside it":    {`"status":"success","result":"x","error":null`, `x`, false},
		"members that nobody knows": {`"status":"success","result":"x","tim\u00e9":[{}]`, `x`, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := exchange(t, "").Answer([]byte(` {"request_id":"` + id + `",` + c.members + "}\r\n"))
			if err != nil {
				t.Fatal(err)
			}
			check(t, got, c.text, c.object)
		})
	}
}

// check compares an answer of one block of text.
func check(t *testing.T, got peer.Answer, text string, object bool) {
	t.Helper()
	want := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
	if object {
		want.StructuredContent = json.RawMessage(text)
	}
	if got.Raw != nil || !reflect.DeepEqual(got.Result, want) {
		t.Errorf("answer = %s; want %s", shown(t, got.Result), shown(t, want))
	}
}

func shown(t *testing.T, res *mcp.CallToolResult) string {
	t.Helper()
	raw, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// SPEC-TOOLS 2.2, 4.1: a tool's own code, reason and word on retries pass through.
func TestAnErrorPassesThrough(t *testing.T) {
	cases := map[string]struct {
		members   string // behind request_id
		code      fault.Code
		reason    string
		retryable bool
	}{
		"the page's":        {`"status":"error","error":{"tool_code":"rate_limited","tool_reason":"slow down","retryable":true}`, fault.RateLimited, "slow down", true},
		"against the code":  {`"status":"error","error":{"tool_code":"rate_limited","tool_reason":"for ever","retryable":false}`, fault.RateLimited, "for ever", false},
		"a code of its own": {`"status":"error","error":{"tool_code":"quota.Daily-2","tool_reason":"tomorrow","retryable":true}`, "quota.Daily-2", "tomorrow", true},
		"code and reason":   {`"status":"error","error":{"code":"invalid_input","reason":"no","retryable":false}`, fault.InvalidInput, "no", false},
		"no retryable":      {`"status":"error","error":{"tool_code":"timeout","tool_reason":"late"}`, fault.Timeout, "late", true},
		"no reason":         {`"status":"error","error":{"tool_code":"crashed","retryable":null}`, fault.Crashed, "web_search failed, and gave no reason", true},
		"denied":            {`"status":"denied","error":{"tool_reason":"not you"}`, fault.PermissionDenied, "not you", false},
		"denied by a code":  {`"status":"denied","error":{"code":"auth_forbidden","reason":"not you"}`, fault.AuthForbidden, "not you", false},
		"denied bare":       {`"status":"denied"`, fault.PermissionDenied, "web_search failed, and gave no reason", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := exchange(t, "").Answer([]byte(`{"request_id":"` + id + `",` + c.members + `}`))
			f := fault.From(err)
			if f == nil || got.Result != nil {
				t.Fatalf("answer = %+v, error = %v; want an error alone", got, err)
			}
			if f.Code != c.code || f.Reason != c.reason || f.Retryable() != c.retryable {
				t.Errorf("fault = %s %q, retryable %v; want %s %q, %v", f.Code, f.Reason, f.Retryable(), c.code, c.reason, c.retryable)
			}
			if reason, _ := f.Log(); strings.Contains(reason, c.reason) {
				t.Errorf("the log quotes the service: %q", reason)
			}
		})
	}
}

// SPEC-TOOLS 2.2: a violation is execution_failed, not retryable, and says what
// was wrong.
func TestAViolationSaysWhatWasWrong(t *testing.T) {
	deep := strings.Repeat(`[`, 600) + strings.Repeat(`]`, 600)
	cases := map[string]struct{ body, want string }{
		"nothing":                 {``, `it is empty; it answered nothing`},
		"HTML":                    {`<html><body>Sign in</body></html>`, `it is not JSON; it answered "<html>`},
		"half a JSON":             {`{"request_id":"` + id + `","status":"succ`, `it is not JSON`},
		"two JSONs":               {`{"request_id":"` + id + `","status":"success"}{}`, `it is not JSON`},
		"a list":                  {`[{"request_id":"` + id + `","status":"success"}]`, `it is not a JSON object`},
		"null":                    {`null`, `it is not a JSON object`},
		"a string":                {`"success"`, `it is not a JSON object; it answered "\"success\""`},
		"not UTF-8":               {"{\"request_id\":\"" + id + "\",\"status\":\"success\",\"result\":\"\xff\"}", `it is not UTF-8`},
		"too deep":                {`{"request_id":"` + id + `","status":"success","result":` + deep + `}`, `it is nested more than 512 deep`},
		"another's id":            {`{"request_id":"other","status":"success","result":"x"}`, `its request_id is not this call's`},
		"no id":                   {`{"status":"success","result":"x"}`, `it has no request_id`},
		"an id that is a number":  {`{"request_id":5,"status":"success"}`, `its request_id is not a string`},
		"no status":               {`{"request_id":"` + id + `","result":"x"}`, `it has no status`},
		"a status that is none":   {`{"request_id":"` + id + `","status":true}`, `its status is not a string`},
		"a status of the future":  {`{"request_id":"` + id + `","status":"running"}`, `its status is neither success nor error`},
		"upper case":              {`{"request_id":"` + id + `","status":"SUCCESS","result":"x"}`, `its status is neither success nor error`},
		"status twice":            {`{"request_id":"` + id + `","status":"success","status":"error"}`, `it has a member twice`},
		"twice by an escape":      {`{"request_id":"` + id + `","status":"success","st\u0061tus":"error"}`, `it has a member twice`},
		"an error without one":    {`{"request_id":"` + id + `","status":"error"}`, `it has no error`},
		"an error of null":        {`{"request_id":"` + id + `","status":"error","error":null}`, `its error: it is not a JSON object`},
		"an error that is a text": {`{"request_id":"` + id + `","status":"error","error":"boom"}`, `its error: it is not a JSON object; it answered`},
		"an error without a code": {`{"request_id":"` + id + `","status":"error","error":{"tool_reason":"boom","retryable":true}}`, `its error has no tool_code`},
		"a code of another kind":  {`{"request_id":"` + id + `","status":"error","error":{"tool_code":500}}`, `its error: its tool_code is not a string`},
		"a code of a whole page":  {`{"request_id":"` + id + `","status":"error","error":{"tool_code":"` + strings.Repeat("x", 65) + `"}}`, `at most 64 letters`},
		"a code of two lines":     {`{"request_id":"` + id + `","status":"error","error":{"tool_code":"a\nb"}}`, `at most 64 letters`},
		"retryable of a text":     {`{"request_id":"` + id + `","status":"error","error":{"tool_code":"timeout","retryable":"yes"}}`, `neither true nor false`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := exchange(t, "").Answer([]byte(c.body))
			f := fault.From(err)
			if f == nil || f.Code != fault.ExecutionFailed || f.Retryable() || got.Result != nil {
				t.Fatalf("answer = %+v, error = %v; want execution_failed, not retryable", got, err)
			}
			if !strings.Contains(f.Reason, "violates the tool contract") || !strings.Contains(f.Reason, c.want) {
				t.Errorf("reason = %q; want it to contain %q", f.Reason, c.want)
			}
			if reason, _ := f.Log(); strings.Contains(reason, "it answered") {
				t.Errorf("the log quotes the service: %q", reason)
			}
		})
	}
}

// Secrets go before a text is cut: half of one would not be recognised.
func TestAQuoteIsShortAndHasNoSecret(t *testing.T) {
	secret := token("sk-" + strings.Repeat("0123456789", 10))
	for pad := range 220 {
		body := strings.Repeat("é", pad/2) + string(secret) + strings.Repeat("y", 10_000)
		_, err := exchange(t, secret).Answer([]byte(body))
		reason := fault.From(err).Reason
		if strings.Contains(reason, "sk-0") || len(reason) > 600 {
			t.Fatalf("pad %d: reason = %q", pad, reason)
		}
	}
	_, err := exchange(t, secret).Answer([]byte(`{"request_id":"` + id + `","status":"error","error":{"tool_code":"auth_invalid","tool_reason":"no such key: ` + string(secret) + `"}}`))
	if got := fault.From(err).Reason; got != "no such key: [redacted]" {
		t.Errorf("reason = %q", got)
	}
}

// SPEC-TOOLS 3.1: only what is an envelope is one; all else is the result.
func TestRawTellsEnvelopesFromData(t *testing.T) {
	const jsonType = "application/json; charset=utf-8"
	cases := map[string]struct {
		body, contentType string
		text              string
		object            bool
	}{
		"an envelope":                     {`{"request_id":"its own","status":"success","result":{"a":1.0}}`, jsonType, `{"a":1.0}`, true},
		"an envelope, leniently":          {`{"request_id":"r","status":"ok","output":{"result":"x"}}`, jsonType, `x`, false},
		"somebody's status":               {`{"status":"queued"}`, jsonType, `{"status":"queued"}`, true},
		"somebody's success":              {`{"status":"success","result":5}`, jsonType, `{"status":"success","result":5}`, true},
		"somebody's id and status":        {`{"request_id":"r","status":"OK","data":[1]}`, jsonType, `{"request_id":"r","status":"OK","data":[1]}`, true},
		"somebody's id and success":       {`{"request_id":"r","status":"success","data":[1]}`, jsonType, `{"request_id":"r","status":"success","data":[1]}`, true},
		"somebody's error":                {`{"status":"error","message":"x"}`, jsonType, `{"status":"error","message":"x"}`, true},
		"an error that is not an object":  {`{"status":"error","error":"x"}`, jsonType, `{"status":"error","error":"x"}`, true},
		"a number for a status":           {`{"request_id":"r","status":200,"result":1}`, jsonType, `{"request_id":"r","status":200,"result":1}`, true},
		"an object that says no type":     {`{"a":1}`, ``, `{"a":1}`, true},
		"an object behind a BOM":          {"\xEF\xBB\xBF{\"a\":1}\n", jsonType, `{"a":1}`, true},
		"an object that says a key twice": {`{"a":1,"a":2}`, jsonType, `{"a":1,"a":2}`, false},
		"a list":                          {`[1,2]`, jsonType, `[1,2]`, false},
		"a string":                        {`"a\nb"`, jsonType, "a\nb", false},
		"a quoted text":                   {`"a\nb"`, `text/plain`, `"a\nb"`, false},
		"HTML":                            {"<html>\n</html>\n", "text/html", "<html>\n</html>\n", false},
		"half a JSON":                     {`{"a":`, jsonType, `{"a":`, false},
		"nothing":                         {``, jsonType, ``, false},
		"no picture":                      {``, `image/png`, ``, false},
		"text of an odd type":             {"a: 1\n", "application/yaml", "a: 1\n", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := exchange(t, "").Raw([]byte(c.body), c.contentType)
			if err != nil {
				t.Fatal(err)
			}
			check(t, got, c.text, c.object)
		})
	}
}

func TestRawTakesAnErrorEnvelope(t *testing.T) {
	cases := map[string]struct {
		body string
		code fault.Code
	}{
		"without an id":     {`{"status":"error","error":{"tool_code":"rate_limited","tool_reason":"slow","retryable":true}}`, fault.RateLimited},
		"with an id":        {`{"request_id":"r","status":"error","error":{"code":"auth_forbidden","reason":"no"}}`, fault.AuthForbidden},
		"denied":            {`{"request_id":"r","status":"denied"}`, fault.PermissionDenied},
		"an empty one":      {`{"request_id":"r","status":"error"}`, fault.ExecutionFailed},
		"one without codes": {`{"status":"error","error":{"message":"boom"}}`, fault.ExecutionFailed},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := exchange(t, "").Raw([]byte(c.body), "application/json")
			if fault.CodeOf(err) != c.code || got.Result != nil {
				t.Errorf("answer = %+v, error = %v; want %s", got, err, c.code)
			}
		})
	}
}

func TestBytesAreNeverBrokenText(t *testing.T) {
	png := []byte("\x89PNG\r\n\x1a\n\x00")
	cases := map[string]struct {
		body        []byte
		contentType string
		want        mcp.Content
	}{
		"a picture": {png, "image/png", &mcp.ImageContent{Data: png, MIMEType: "image/png"}},
		"a sound":   {png, "audio/wav; x=y", &mcp.AudioContent{Data: png, MIMEType: "audio/wav"}},
		"bytes":     {png, "application/pdf", &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "orla://calls/" + id + "/body", MIMEType: "application/pdf", Blob: png}}},
		"no type":   {png, "", &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "orla://calls/" + id + "/body", MIMEType: "image/png", Blob: png}}},
		"a text that is none": {
			[]byte("{\"a\":\"\xff\"}"), "application/json",
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "orla://calls/" + id + "/body", MIMEType: "application/json", Blob: []byte("{\"a\":\"\xff\"}")}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := exchange(t, "").Raw(c.body, c.contentType)
			if err != nil {
				t.Fatal(err)
			}
			if want := (&mcp.CallToolResult{Content: []mcp.Content{c.want}}); !reflect.DeepEqual(got.Result, want) {
				t.Errorf("answer = %s; want %s", shown(t, got.Result), shown(t, want))
			}
		})
	}
}

// SPEC-TOOLS 1.2, 2.3: where there is an output schema, the result fits it.
func TestAResultFitsTheOutputSchema(t *testing.T) {
	of := manifest.Tool{Name: "sum", OutputSchema: json.RawMessage(`{"type":"object","required":["sum"],"properties":{"sum":{"type":"integer"}}}`)}
	if got, err := exchangeOf(t, of, peer.Call{}, "").Raw([]byte(`{"sum":12345678901234567890}`), "application/json"); err != nil {
		t.Error(err)
	} else {
		check(t, got, `{"sum":12345678901234567890}`, true)
	}
	for body, want := range map[string]string{
		`{"sum":"x"}`:   `sum`,
		`{}`:            `sum`,
		`[1]`:           `it is not a JSON object`,
		`"x"`:           `it is not a JSON object`,
		``:              `it is empty`,
		`<html>`:        `it is not JSON`,
		"\xff\x00":      `it is not UTF-8`,
		`{"a":1,"a":2}`: `it has a member twice`,
		`{"request_id":"r","status":"success","result":null}`: `it is not a JSON object`,
	} {
		got, err := exchangeOf(t, of, peer.Call{}, "").Raw([]byte(body), "application/json")
		f := fault.From(err)
		if f == nil || f.Code != fault.ExecutionFailed || f.Retryable() || !strings.Contains(f.Reason, "does not fit its output schema: ") || !strings.Contains(f.Reason, want) {
			t.Errorf("%s: error = %v; want it to contain %q", body, err, want)
		}
		if got.Result == nil || got.Result.StructuredContent != nil {
			t.Errorf("%s: answer = %+v; want what there is, unstructured", body, got)
		}
	}
}

func TestAnErrorBesideAStatusIsRead(t *testing.T) {
	x := exchange(t, "")
	const failed = `"status":"error","error":{"tool_code":"quota","tool_reason":"none left","retryable":false}}`
	for body, strictly := range map[string]bool{
		`{"request_id":"` + id + `",` + failed:         true,
		`{"request_id":"other",` + failed:              false,
		`{` + failed:                                   false,
		`{"request_id":"` + id + `","status":"error"}`: false,
	} {
		if f := x.Failure([]byte(body), true); (f != nil) != strictly {
			t.Errorf("%s: strictly: %v; want %v", body, f, strictly)
		}
		leniently := strings.Contains(body, "quota")
		if f := x.Failure([]byte(body), false); (f != nil) != leniently {
			t.Errorf("%s: leniently: %v; want %v", body, f, leniently)
		}
	}
	for _, body := range []string{``, `<html>`, `{"status":"success","request_id":"` + id + `","result":1}`, `{"error":"quota"}`} {
		if f := x.Failure([]byte(body), true); f != nil {
			t.Errorf("%s: strictly: %v", body, f)
		}
		if f := x.Failure([]byte(body), false); f != nil {
			t.Errorf("%s: leniently: %v", body, f)
		}
	}
}

func compiled(t *testing.T, raw []byte) *schema.Schema {
	t.Helper()
	s, err := schema.Compile(raw)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The published schemas are strict where the page is strict.
func TestTheResponseSchemaIsThePages(t *testing.T) {
	s := compiled(t, contract.ResponseSchema())
	for _, body := range []string{
		`{"request_id":"r","status":"success","result":null}`,
		`{"request_id":"r","status":"error","error":{"tool_code":"x","tool_reason":"y","retryable":false}}`,
		`{"request_id":"r","status":"running","percent":5}`,
		`{"request_id":"r","status":"error","result":1,"error":{"tool_code":"x","tool_reason":"y","retryable":true},"z":1}`,
	} {
		if err := s.ValidateOutput(t.Context(), []byte(body)); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
	for _, body := range []string{
		`{"request_id":"r","status":"success"}`,
		`{"request_id":"r","status":"ok","result":1}`,
		`{"request_id":"r","status":"denied"}`,
		`{"status":"success","result":1}`,
		`{"request_id":"r","result":1}`,
		`{"request_id":"r","status":"error","error":{"tool_code":"x","tool_reason":"y"}}`,
		`{"request_id":"r","status":"error","error":{"tool_code":"x y","tool_reason":"y","retryable":false}}`,
		`{"request_id":"r","status":"error"}`,
		`{"request_id":"r","status":""}`,
		`[]`,
	} {
		if s.ValidateOutput(t.Context(), []byte(body)) == nil {
			t.Errorf("%s fits", body)
		}
	}
}

// docs/tool-contract-v1.md shows what is so: its schemas are these, and its
// examples fit them and are understood.
func TestTheDocumentIsTrue(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "tool-contract-v1.md"))
	if err != nil {
		t.Fatal(err)
	}
	request, response := compiled(t, contract.RequestSchema()), compiled(t, contract.ResponseSchema())
	var requests, responses, schemas int
	for _, block := range regexp.MustCompile("(?ms)^```json\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		switch body := []byte(block[1]); {
		case strings.Contains(block[1], `"$schema"`):
			schemas++
			if want := [][]byte{contract.RequestSchema(), contract.ResponseSchema()}[schemas-1]; block[1] != string(want) {
				t.Errorf("schema %d is not that of the code", schemas)
			}
		case strings.Contains(block[1], `"action"`):
			requests++
			if err := request.ValidateOutput(t.Context(), body); err != nil {
				t.Errorf("%s: %v", body, err)
			}
		default:
			responses++
			if err := response.ValidateOutput(t.Context(), body); err != nil {
				t.Errorf("%s: %v", body, err)
			}
			if _, err := exchange(t, "").Decode(body); err != nil {
				t.Errorf("%s: %v", body, err)
			}
		}
	}
	if requests != 1 || responses != 3 || schemas != 2 {
		t.Errorf("%d requests, %d responses and %d schemas in the document; want 1, 3 and 2", requests, responses, schemas)
	}
}

func TestABadOutputSchemaIsRefused(t *testing.T) {
	_, err := contract.For(manifest.Tool{Name: "x", Source: "x.yaml", OutputSchema: json.RawMessage(`{"type":5}`)})
	if err == nil || !strings.HasPrefix(err.Error(), "x.yaml: output_schema: ") {
		t.Errorf("error = %v", err)
	}
}

// What an answer holds in memory is bounded by max_output, not by how many
// members its author thinks of.
func TestManyMembersTakeNoMemory(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"request_id":"` + id + `","status":"success","result":"done"`)
	for i := 0; b.Len() < 4<<20; i++ {
		fmt.Fprintf(&b, `,"%x":1`, i)
	}
	b.WriteString("}")
	body := []byte(b.String())
	x := exchange(t, "")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := x.Answer(body); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 2*uint64(len(body)) {
		t.Errorf("an answer of %d bytes takes %d bytes more", len(body), allocated)
	}
}

// SPEC S2: an answer is not copied for a key with an escape.
func TestS2AKeyWithAnEscapeTakesNoCopies(t *testing.T) {
	body := []byte(`{"\u0061":"` + strings.Repeat("x", 4<<20) + `","request_id":"` + id + `","status":"success","result":"` + strings.Repeat("x", 4<<20) + `"}`)
	x := exchange(t, "")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := x.Decode(body)
	runtime.ReadMemStats(&after)
	if err != nil || len(r.Result) != 4<<20+2 {
		t.Errorf("%d bytes, %v", len(r.Result), err)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 1<<20 {
		t.Errorf("%d bytes were allocated for an answer of %d", allocated, len(body))
	}
}
