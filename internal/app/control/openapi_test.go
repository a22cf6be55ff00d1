package control_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/orla-project/orla/internal/app/arguments"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/decisions"
	"github.com/orla-project/orla/internal/call/approvals/passkey"
	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/mcp/schema"
)

// document is docs/control-api.yaml.
type document struct {
	Paths map[string]map[string]struct {
		OperationID string `json:"operationId"`
		Parameters  []struct {
			Name string `json:"name"`
			In   string `json:"in"`
		} `json:"parameters"`
		Responses map[string]struct {
			Content map[string]struct {
				Schema json.RawMessage `json:"schema"`
			} `json:"content"`
		} `json:"responses"`
	} `json:"paths"`
	Components struct {
		Schemas map[string]json.RawMessage `json:"schemas"`
	} `json:"components"`
}

func readDocument(t *testing.T) (doc document, raw json.RawMessage) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "control-api.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var free struct {
		Doc yamldoc.JSON `json:"doc"`
	}
	indented := "doc:\n  " + strings.ReplaceAll(string(text), "\n", "\n  ")
	if _, err := yamldoc.Decode("control-api.yaml", []byte(indented), &free, yamldoc.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(free.Doc, &doc); err != nil {
		t.Fatal(err)
	}
	return doc, json.RawMessage(free.Doc)
}

// described are the types of the answers, as the document has them.
var described = []reflect.Type{
	reflect.TypeFor[control.Status](), reflect.TypeFor[control.ToolStatus](), reflect.TypeFor[control.Problem](),
	reflect.TypeFor[control.ListedTools](), reflect.TypeFor[control.ListedTool](), reflect.TypeFor[control.CallRequest](),
	reflect.TypeFor[control.Reload](), reflect.TypeFor[control.ReloadRequest](), reflect.TypeFor[control.Upgrade](), reflect.TypeFor[control.UpgradeRequest](), reflect.TypeFor[control.Error](),
	reflect.TypeFor[control.Approvals](), reflect.TypeFor[control.Approval](), reflect.TypeFor[control.LastApproved](), reflect.TypeFor[control.ArgumentChange](),
	reflect.TypeFor[control.ApproveRequest](), reflect.TypeFor[control.DenyRequest](), reflect.TypeFor[control.ExtendRequest](),
	reflect.TypeFor[control.PinList](), reflect.TypeFor[control.PinnedProvider](), reflect.TypeFor[control.PinnedItem](), reflect.TypeFor[control.PinChange](),
	reflect.TypeFor[control.PinFinding](), reflect.TypeFor[control.PinApproval](),
	reflect.TypeFor[control.Manifest](), reflect.TypeFor[control.ConsoleLink](), reflect.TypeFor[control.Change](), reflect.TypeFor[control.LogLines](),
	reflect.TypeFor[control.CallEvent](), reflect.TypeFor[control.Question](), reflect.TypeFor[control.QuestionAnswer](),
	reflect.TypeFor[control.Numbers](), reflect.TypeFor[control.Sample](), reflect.TypeFor[control.ToolNumbers](), reflect.TypeFor[control.ToolSample](),
	reflect.TypeFor[control.AuditLog](), reflect.TypeFor[control.AuditLine](), reflect.TypeFor[control.AuditReport](),
	reflect.TypeFor[control.Packages](), reflect.TypeFor[control.PackageLock](), reflect.TypeFor[control.Package](),
	reflect.TypeFor[control.CallerStatus](), reflect.TypeFor[control.CallerLimits](),
	reflect.TypeFor[decisions.VisitorInfo](), reflect.TypeFor[decisions.PasskeyInfo](), reflect.TypeFor[decisions.Challenge](), reflect.TypeFor[decisions.PasskeyRequest](),
	reflect.TypeFor[decisions.KnownPasskeys](), reflect.TypeFor[decisions.KnownPasskey](), reflect.TypeFor[decisions.PasskeyDocument](), reflect.TypeFor[decisions.AskedPasskey](), reflect.TypeFor[decisions.PasskeyDecision](),
	reflect.TypeFor[control.KeptArguments](), reflect.TypeFor[arguments.KeepRequest](), reflect.TypeFor[arguments.KeptCalls](), reflect.TypeFor[arguments.KeptCall](),
	reflect.TypeFor[decisions.Statement](), reflect.TypeFor[decisions.VisitorDecision](), reflect.TypeFor[passkey.Assertion](),
}

// schemaOf is the schema that a type has in the document: that of its tags,
// with references to the other types.
func schemaOf(t *testing.T, typ reflect.Type) json.RawMessage {
	t.Helper()
	others := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[time.Time]():       {Type: "string", Format: "date-time"},
		reflect.TypeFor[json.RawMessage](): {},
		reflect.TypeFor[passkey.Bytes]():   {Type: "string", Description: "base64url"},
	}
	for _, other := range described {
		if other != typ {
			others[other] = &jsonschema.Schema{Ref: "#/components/schemas/" + other.Name()}
		}
	}
	s, err := jsonschema.ForType(typ, &jsonschema.ForOptions{TypeSchemas: others})
	if err != nil {
		t.Fatal(err)
	}
	s.AdditionalProperties = nil // a later Orla may say more
	for _, p := range s.Properties {
		if i := slices.Index(p.Types, "null"); i >= 0 { // lists are never null
			p.Type, p.Types = p.Types[1-i], nil
		}
	}
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestJ2TheDocumentDescribesTheTypes(t *testing.T) {
	doc, _ := readDocument(t)
	names := map[string]bool{}
	for _, typ := range described {
		names[typ.Name()] = true
		want := schemaOf(t, typ)
		if got := doc.Components.Schemas[typ.Name()]; !equalJSON(t, got, want) {
			t.Errorf("docs/control-api.yaml, schema %s:\n%s\nthe type has:\n%s", typ.Name(), got, want)
		}
	}
	for name := range doc.Components.Schemas {
		if !names[name] && name != "CallToolResult" && name != "Line" {
			t.Errorf("docs/control-api.yaml describes %s, which is not a type of the answers", name)
		}
	}
}

// N4: who approves is the user at the other end of the socket, and nothing that a request says.
func TestN4AnApprovalIsThatOfTheUserOfTheSocket(t *testing.T) {
	s := serve(t, newBackend())
	_, _, body := s.request("POST", "/v1/pins/weather/approve", `{"by":"uid 12345","user":12345}`)
	if want := fmt.Sprintf(`"by":"uid %d"`, os.Geteuid()); !strings.Contains(body, want) {
		t.Errorf("%s, want %s", body, want)
	}
}

func equalJSON(t *testing.T, a, b json.RawMessage) bool {
	t.Helper()
	var x, y any
	if len(a) == 0 || json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return reflect.DeepEqual(x, y)
}

func TestJ2TheDocumentHasEveryRoute(t *testing.T) {
	doc, _ := readDocument(t)
	var described []string
	for path, methods := range doc.Paths {
		for method := range methods {
			described = append(described, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(described)
	routes := append(control.Routes(), decisions.Routes()...)
	for _, other := range arguments.New(arguments.Options{}).Routes() {
		routes = append(routes, other.Pattern)
	}
	slices.Sort(routes)
	if !slices.Equal(described, routes) {
		t.Errorf("docs/control-api.yaml has\n%s\nthe server has\n%s", strings.Join(described, "\n"), strings.Join(routes, "\n"))
	}
}

// fitting returns what says whether an answer is as the document has it.
func fitting(t *testing.T) func(method, path, status, content string, body json.RawMessage) error {
	doc, raw := readDocument(t)
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(raw, &whole); err != nil {
		t.Fatal(err)
	}
	return func(method, path, status, content string, body json.RawMessage) error {
		answer, ok := doc.Paths[path][strings.ToLower(method)].Responses[status]
		if !ok {
			answer, ok = doc.Paths[path][strings.ToLower(method)].Responses["default"]
		}
		described, has := answer.Content[content]
		if !ok || !has {
			return fmt.Errorf("no answer %s with %s", status, content)
		}
		var s map[string]json.RawMessage
		if err := json.Unmarshal(described.Schema, &s); err != nil {
			return err
		}
		s["components"] = whole["components"]
		text, err := json.Marshal(s)
		if err != nil {
			return err
		}
		compiled, err := schema.Compile(text)
		if err != nil {
			return err
		}
		return compiled.ValidateOutput(t.Context(), body)
	}
}

func TestJ2AnswersAreAsTheDocumentSays(t *testing.T) {
	fits := fitting(t)
	s := serve(t, newBackend())
	for _, c := range []struct{ method, path, of, body, status string }{
		{"GET", "/v1/status", "/v1/status", "", "200"},
		{"GET", "/v1/status/weather", "/v1/status/{name}", "", "200"},
		{"GET", "/v1/status/absent", "/v1/status/{name}", "", "404"},
		{"GET", "/v1/tools", "/v1/tools", "", "200"},
		{"POST", "/v1/tools/weather/call", "/v1/tools/{name}/call", `{"arguments":{"city":"Rome"}}`, "200"},
		{"POST", "/v1/tools/absent/call", "/v1/tools/{name}/call", `{}`, "404"},
		{"POST", "/v1/tools/weather/call", "/v1/tools/{name}/call", `{`, "400"},
		{"POST", "/v1/capsules/weather/restart", "/v1/capsules/{name}/restart", "", "200"},
		{"POST", "/v1/capsules/weather/stop", "/v1/capsules/{name}/stop", "", "200"},
		{"POST", "/v1/capsules/weather/start", "/v1/capsules/{name}/start", "", "200"},
		{"POST", "/v1/capsules/broken/start", "/v1/capsules/{name}/start", "", "409"},
		{"POST", "/v1/reload", "/v1/reload", "", "200"},
		{"GET", "/v1/manifests/weather", "/v1/manifests/{name}", "", "200"},
		{"GET", "/v1/manifests/absent", "/v1/manifests/{name}", "", "404"},
		{"POST", "/v1/console", "/v1/console", "", "200"},
		{"GET", "/v1/numbers", "/v1/numbers", "", "200"},
		{"GET", "/v1/audit?n=3", "/v1/audit", "", "200"},
		{"GET", "/v1/audit?n=0", "/v1/audit", "", "400"},
		{"GET", "/v1/audit?lines=1", "/v1/audit", "", "400"},
		{"POST", "/v1/audit/verify", "/v1/audit/verify", "", "200"},
		{"GET", "/v1/packages", "/v1/packages", "", "200"},
		{"GET", "/v1/watch?n=1&lines=1", "/v1/watch", "", "400"},
		{"GET", "/v1/watch?tool=weather", "/v1/watch", "", "400"},
		{"GET", "/v1/pins", "/v1/pins", "", "200"},
		{"GET", "/v1/pins/weather", "/v1/pins/{name}", "", "200"},
		{"GET", "/v1/pins/absent", "/v1/pins/{name}", "", "404"},
		{"POST", "/v1/pins/weather/approve", "/v1/pins/{name}/approve", "", "200"},
		{"POST", "/v1/pins/weather/approve", "/v1/pins/{name}/approve", `{"digest":"sha256:02"}`, "409"},
		{"POST", "/v1/pins/weather/approve", "/v1/pins/{name}/approve", `[`, "400"},
		{"POST", "/v1/pins/absent/approve", "/v1/pins/{name}/approve", "", "404"},
		{"GET", "/v1/logs?n=2", "/v1/logs", "", "200"},
		{"GET", "/v1/events?n=2&follow=false", "/v1/events", "", "200"},
		{"GET", "/v1/logs?n=10001", "/v1/logs", "", "400"},
		{"GET", "/v1/logs?lines=2", "/v1/logs", "", "400"},
		{"GET", "/v1/approvals", "/v1/approvals", "", "200"},
		{"GET", "/v1/approvals?phase=Denied", "/v1/approvals", "", "200"},
		{"GET", "/v1/approvals?phase=None", "/v1/approvals", "", "400"},
		{"GET", "/v1/approvals?by=root", "/v1/approvals", "", "400"},
		{"GET", "/v1/approvals/ap-1", "/v1/approvals/{id}", "", "200"},
		{"GET", "/v1/approvals/ap-2", "/v1/approvals/{id}", "", "404"},
		{"POST", "/v1/approvals/ap-1/approve", "/v1/approvals/{id}/approve", `{"digest":"d1"}`, "200"},
		{"POST", "/v1/approvals/ap-2/approve", "/v1/approvals/{id}/approve", `{"digest":"d1"}`, "404"},
		{"POST", "/v1/approvals/ap-1/deny", "/v1/approvals/{id}/deny", "", "200"},
		{"POST", "/v1/approvals/ap-1/extend", "/v1/approvals/{id}/extend", `{"ttl":"1h"}`, "200"},
	} {
		status, content, body := s.request(c.method, c.path, c.body)
		if status != c.status {
			t.Errorf("%s %s: %s: %s; want %s", c.method, c.path, status, body, c.status)
			continue
		}
		lines := []string{body}
		if content == "application/x-ndjson" {
			lines = strings.Split(strings.TrimSpace(body), "\n")
		}
		for _, line := range lines {
			if err := fits(c.method, c.of, status, content, json.RawMessage(line)); err != nil {
				t.Errorf("%s %s: %s %s\n%s\n%v", c.method, c.path, status, content, line, err)
			}
		}
	}
}

// What the document says of parameters is what the server takes.
func TestJ2TheParametersAreThoseOfTheDocument(t *testing.T) {
	doc, _ := readDocument(t)
	s := serve(t, newBackend())
	values := map[string]string{"tool": "weather", "n": "1", "since": "2026-01-02T15:04:05Z", "follow": "false", "event": "call", "level": "warn", "stream": "stderr", "grep": "x"}
	for _, path := range []string{"/v1/logs", "/v1/events"} {
		named := map[string]bool{}
		for _, p := range doc.Paths[path]["get"].Parameters {
			named[p.Name] = true
			query := "?follow=false&" + p.Name + "=" + values[p.Name]
			if status, _, body := s.request("GET", path+query, ""); status != "200" {
				t.Errorf("GET %s%s: %s %s", path, query, status, body)
			}
		}
		if want := slices.Sorted(maps.Keys(values)); !slices.Equal(slices.Sorted(maps.Keys(named)), want) {
			t.Errorf("%s: the document has the parameters %v; want %v", path, slices.Sorted(maps.Keys(named)), want)
		}
	}
}
