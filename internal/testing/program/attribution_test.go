package program

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// gossip is a service that says whatever it hears in its errors.
type gossip struct {
	*httptest.Server
	elsewhere *httptest.Server
	grpc      *httptest.Server

	mu    sync.Mutex // guards heard
	heard map[string][]string
}

func newGossip(t *testing.T) *gossip {
	g := &gossip{heard: map[string][]string{}}
	g.elsewhere = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.note("elsewhere", r, nil)
		http.Error(w, "you should not be here", http.StatusTeapot)
	}))
	g.grpc = httptest.NewUnstartedServer(http.HandlerFunc(g.answerGRPC))
	g.grpc.Config.Protocols = new(http.Protocols)
	g.grpc.Config.Protocols.SetUnencryptedHTTP2(true)
	g.grpc.Start()
	g.Server = httptest.NewServer(g)
	t.Cleanup(g.grpc.Close)
	t.Cleanup(g.Close)
	t.Cleanup(g.elsewhere.Close)
	return g
}

// note keeps what was said to the service, and returns it in every form.
func (g *gossip) note(at string, r *http.Request, body []byte) string {
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		fmt.Fprintf(&all, "%s: %s; ", name, r.Header[name])
	}
	all.Write(body)
	said := all.String()
	g.mu.Lock()
	g.heard[at] = append(g.heard[at], said)
	g.mu.Unlock()
	secret := r.Header.Get("Authorization") + r.Header.Get("X-Api-Key")
	_, secret, _ = strings.Cut(secret, " ")
	quoted, _ := json.Marshal(said)
	return strings.Join([]string{
		said, url.QueryEscape(said), base64.StdEncoding.EncodeToString([]byte(secret)), fmt.Sprintf("%q", secret), string(quoted), secret,
	}, " | ")
}

// listened returns what was said to a tool's service.
func (g *gossip) listened(at string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.heard[at])
}

// behaviours are what the service does, and overGRPC what it does there.
var behaviours = []string{
	"500", "400", "401", "403", "429", "html", "envelope", "denied", "garbage", "number", "wrong-id", "half", "huge",
	"redirect-same", "redirect-away", "redirect-host", "redirect-metadata", "raw", "raw-header", "headers", "reset", "success",
}

var overGRPC = []string{"status-2", "status-3", "status-7", "status-8", "status-13", "status-14", "status-16", "envelope", "success"}

// answerGRPC repeats what it hears in the message of a status, or in an envelope.
func (g *gossip) answerGRPC(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var request struct {
		ID   string `json:"request_id"`
		Tool string `json:"tool"`
	}
	_ = json.Unmarshal(body[min(len(body), 5):], &request)
	said := g.note(request.Tool, r, body)
	w.Header().Set("Content-Type", "application/grpc+json")
	_, what := split(request.Tool)
	if status, ok := strings.CutPrefix(what, "status-"); ok {
		w.Header().Set("Grpc-Status", status)
		w.Header().Set("Grpc-Message", url.PathEscape(said))
		return
	}
	w.Header().Set("Trailer", "Grpc-Status")
	envelope, _ := json.Marshal(map[string]any{
		"request_id": request.ID, "status": "error",
		"error": map[string]any{"tool_code": "execution_failed", "tool_reason": said},
	})
	if what == "success" {
		envelope, _ = json.Marshal(map[string]any{"request_id": request.ID, "status": "success", "result": map[string]any{"said": said}})
	}
	_, _ = w.Write(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(envelope))))
	_, _ = w.Write(envelope)
	w.Header().Set("Grpc-Status", "0")
}

// answerToken gives a token, which is a secret as well.
func (g *gossip) answerToken(w http.ResponseWriter, r *http.Request, body []byte) {
	g.note("token", r, body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"access_token":"%s%d","token_type":"Bearer","expires_in":3600}`, planted["access token"], len(g.listened("token")))
}

// ServeHTTP does what the path says: /TOOL/BEHAVIOUR, or /TOOL/BEHAVIOUR/ID of
// those that are asked again.
func (g *gossip) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	at := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if at[0] == "token" {
		g.answerToken(w, r, body)
		return
	}
	tool, what := at[0], at[min(1, len(at)-1)]
	said := g.note(tool, r, body)
	if strings.HasPrefix(tool, "near") {
		if what = answerMCP(w, body, said); what == "" {
			return
		}
	}
	if strings.HasPrefix(tool, "webhook") && r.Method == http.MethodPost {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusAccepted)
		return
	}
	quoted, _ := json.Marshal(said)
	var request struct {
		ID string `json:"request_id"`
	}
	_ = json.Unmarshal(body, &request)
	if request.ID == "" {
		request.ID = at[len(at)-1]
	}
	switch what {
	case "raw", "raw-header", "reset":
		babble(w, what, said)
	case "redirect-same", "redirect-away", "redirect-host", "redirect-metadata":
		g.sendAway(w, r, what, said)
	default:
		answerAs(w, what, request.ID, said, string(quoted))
	}
}

// overMCP are what an MCP server does with a call beside the behaviours.
var overMCP = []string{"rpc-error", "coded", "stream", "tool-error"}

// answerMCP is an MCP server with a tool for each behaviour. It returns the one
// that is to follow, of a call.
func answerMCP(w http.ResponseWriter, body []byte, said string) (what string) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Version string `json:"protocolVersion"`
			Name    string `json:"name"`
		} `json:"params"`
	}
	_ = json.Unmarshal(body, &m)
	if m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return ""
	}
	answer := map[string]any{"jsonrpc": "2.0", "id": m.ID}
	reason := map[string]any{"code": -32000, "message": said}
	switch m.Method {
	case "initialize":
		answer["result"] = map[string]any{
			"protocolVersion": m.Params.Version, "capabilities": map[string]any{"tools": map[string]any{}},
			"serverInfo": map[string]any{"name": "near", "version": "1"},
		}
	case "tools/list":
		var tools []any
		for _, name := range append(overMCP, behaviours...) {
			tools = append(tools, map[string]any{"name": name, "inputSchema": map[string]any{"type": "object"}})
		}
		answer["result"] = map[string]any{"tools": tools}
	default:
		switch what = m.Params.Name; what {
		case "rpc-error", "stream":
		case "coded":
			reason["data"] = map[string]any{"tool_code": "auth_forbidden", "tool_reason": said}
		case "tool-error":
			answer["result"] = map[string]any{"isError": true, "content": []any{map[string]any{"type": "text", "text": said}}}
		default:
			return what
		}
		if answer["result"] == nil {
			answer["error"] = reason
		}
	}
	text, _ := json.Marshal(answer)
	if what == "stream" {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, ": %s\nevent: %[1]s\ndata: %s\n\n", url.QueryEscape(said), text)
		return ""
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
	return ""
}

// answerAs answers as HTTP has it.
func answerAs(w http.ResponseWriter, what, id, said, quoted string) {
	status := map[string]int{"500": 500, "400": 400, "401": 401, "403": 403, "429": 429}[what]
	switch what {
	case "500", "400", "401", "403", "429":
		w.Header().Set("WWW-Authenticate", "Bearer error=\""+url.QueryEscape(said)+"\"")
		http.Error(w, said, status)
	case "html":
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "<html>"+said)
	case "envelope":
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"request_id":%q,"status":"error","error":{"tool_code":"execution_failed","tool_reason":%s,"retryable":false}}`, id, quoted)
	case "success":
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"request_id":%q,"status":"success","result":{"said":%s,"list":[{"in":%[2]s}]}}`, id, quoted)
	case "denied":
		_, _ = fmt.Fprintf(w, `{"request_id":%q,"status":"denied","error":{"code":"no","reason":%s,"message":%[2]s}}`, id, quoted)
	case "garbage":
		_, _ = io.WriteString(w, `{"status":"error","error":{"tool_reason":`+quoted)
	case "number":
		_, _ = fmt.Fprintf(w, `{"request_id":%s,"status":%[1]s}`, quoted)
	case "wrong-id":
		_, _ = fmt.Fprintf(w, `{"request_id":%s,"status":"error","error":{"tool_code":%[1]s,"tool_reason":%[1]s}}`, quoted)
	case "half":
		w.Header().Set("Content-Length", "1000000")
		_, _ = io.WriteString(w, said)
	case "huge":
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, strings.Repeat("x", 500)+strings.Repeat(said, 1000))
	case "headers":
		w.Header().Set("Content-Type", url.QueryEscape(said))
		w.Header().Set("Retry-After", url.QueryEscape(said))
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// sendAway redirects, and has the secrets in the address.
func (g *gossip) sendAway(w http.ResponseWriter, r *http.Request, what, said string) {
	switch what {
	case "redirect-same":
		http.Redirect(w, r, "/"+strings.Split(r.URL.Path, "/")[1]+"/500?key="+url.QueryEscape(said), http.StatusTemporaryRedirect)
	case "redirect-away":
		http.Redirect(w, r, g.elsewhere.URL+"/?key="+url.QueryEscape(said), http.StatusTemporaryRedirect)
	case "redirect-host":
		_, secret, _ := strings.Cut(r.Header.Get("Authorization")+" "+r.Header.Get("X-Api-Key"), " ")
		w.Header().Set("Location", "http://"+url.PathEscape(strings.TrimSpace(secret))+".invalid/")
		w.WriteHeader(http.StatusPermanentRedirect)
	case "redirect-metadata":
		http.Redirect(w, r, "http://169.254.169.254/?"+url.QueryEscape(said), http.StatusSeeOther)
	}
}

// babble says something that is not HTTP, or nothing.
func babble(w http.ResponseWriter, what, said string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer func() { _ = conn.Close() }()
	line := strings.NewReplacer("\r", " ", "\n", " ").Replace(said)
	switch what {
	case "raw":
		_, _ = fmt.Fprintf(conn, "%s\r\n\r\n", line)
	case "raw-header":
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\n%s\r\n\r\n", strings.ReplaceAll(line, ":", " "))
	case "reset":
		_ = conn.(*net.TCPConn).SetLinger(0)
	}
}

// leakingServer is an MCP server that says what it was given wherever it can.
const leakingServer = `import base64, json, os, sys
token = os.environ["LEAK"]
print("starting with", token, flush=True)
print("stderr has", token, base64.b64encode(token.encode()).decode(), json.dumps(token), file=sys.stderr, flush=True)
if os.environ.get("DIES"):
    sys.exit(token + " was not accepted")
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    answer = {"jsonrpc": "2.0", "id": m["id"]}
    if "REFUSES" in os.environ:
        answer["error"] = {"code": -32000, "message": token + " is not accepted", "data": token}
    elif m["method"] == "initialize":
        answer["result"] = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "leak", "version": "1"}}
    elif m["method"] == "tools/list":
        answer["result"] = {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("fail", "plain")]}
    elif m["method"] == "tools/call":
        answer["error"] = {"code": -32000, "message": token, "data": [token]}
        if m["params"]["name"] == "fail":
            answer["error"]["data"] = {"tool_code": "auth_invalid", "tool_reason": "the token " + token}
    else:
        answer["error"] = {"code": -32601, "message": "no " + token}
    print(json.dumps(answer), flush=True)
`

// profiles are the ways in which secrets are shown, by name: what stands below
// auth, and what the service then hears.
func (g *gossip) profiles() map[string][2]string {
	return map[string][2]string{
		"bearer": {"{secretRef: from-resource}", planted["resource"]},
		"key":    {"{profile: api_key_header, headerName: X-Api-Key, secretRef: 'from-file:key'}", planted["file"]},
		"basic":  {"{profile: basic, secretRef: from-credential}", base64.StdEncoding.EncodeToString([]byte(planted["user"] + ":" + planted["credential"]))},
		"oauth":  {"{profile: oauth2_client_credentials, secretRef: from-environment, tokenURL: '" + g.URL + "/token?k=1'}", planted["access token"]},
	}
}
