package mcpbridge_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

func TestG8OriginAndHost(t *testing.T) {
	f := newWorld(t).front(t, httpfront.Settings{
		AllowedOrigins: []string{"https://app.example", "https://Port.example:443", "http://[0:0:0:0:0:0:0:1]:3000"},
		AllowedHosts:   []string{"orla.internal", "proxy.example:8443", "[2001:db8:0::1]", "Dot.example.", "[2001:DB8::2]:8443"},
	})
	for name, c := range map[string]struct {
		headers []string
		ok      bool
	}{
		"no origin":              {nil, true},
		"same origin":            {[]string{"Origin", f.url}, true},
		"allowed origin":         {[]string{"Origin", "https://app.example"}, true},
		"allowed, other case":    {[]string{"Origin", "https://APP.example"}, true},
		"the scheme's port":      {[]string{"Origin", "https://port.example"}, true},
		"another one":            {[]string{"Origin", "https://port.example:8443"}, false},
		"an address":             {[]string{"Origin", "http://[::1]:3000"}, true},
		"foreign origin":         {[]string{"Origin", "https://evil.example"}, false},
		"its prefix":             {[]string{"Origin", "https://app.example.evil"}, false},
		"other scheme":           {[]string{"Origin", "http://app.example"}, false},
		"null origin":            {[]string{"Origin", "null"}, false},
		"junk origin":            {[]string{"Origin", "://"}, false},
		"other port":             {[]string{"Origin", "http://127.0.0.1:1"}, false},
		"cross-site, no origin":  {[]string{"Sec-Fetch-Site", "cross-site"}, false},
		"same-site, no origin":   {[]string{"Sec-Fetch-Site", "same-site"}, false},
		"same-origin fetch":      {[]string{"Sec-Fetch-Site", "same-origin"}, true},
		"typed by the user":      {[]string{"Sec-Fetch-Site", "none"}, true},
		"localhost":              {[]string{"Host", "localhost:1234"}, true},
		"localhost, no port":     {[]string{"Host", "LOCALHOST"}, true},
		"trailing dot":           {[]string{"Host", "localhost."}, true},
		"a name of localhost":    {[]string{"Host", "x.localhost:80"}, true},
		"IPv6 loopback":          {[]string{"Host", "[::1]:8080"}, true},
		"IPv6, no port":          {[]string{"Host", "[::1]"}, true},
		"IPv4 in IPv6":           {[]string{"Host", "[::ffff:127.0.0.1]"}, true},
		"other IPv4 loopback":    {[]string{"Host", "127.9.9.9"}, true},
		"allowed host":           {[]string{"Host", "orla.internal:99"}, true},
		"allowed host and port":  {[]string{"Host", "proxy.example:8443"}, true},
		"its other port":         {[]string{"Host", "proxy.example:1"}, false},
		"allowed address":        {[]string{"Host", "[2001:db8::1]"}, true},
		"at a port":              {[]string{"Host", "[2001:db8::1]:8080"}, true},
		"address and port":       {[]string{"Host", "[2001:db8::2]:8443"}, true},
		"at its other port":      {[]string{"Host", "[2001:db8::2]"}, false},
		"allowed, with a dot":    {[]string{"Host", "dot.example.:80"}, true},
		"allowed, without it":    {[]string{"Host", "dot.example"}, true},
		"rebound name":           {[]string{"Host", "evil.example"}, false},
		"rebound, same origin":   {[]string{"Host", "evil.example", "Origin", "http://evil.example"}, false},
		"a host behind the port": {[]string{"Host", "localhost:1234,evil.example"}, false},
		"name like localhost":    {[]string{"Host", "localhost.evil.example"}, false},
		"name like 127.0.0.1":    {[]string{"Host", "127.0.0.1.evil.example"}, false},
		"another address":        {[]string{"Host", "192.168.1.1"}, false},
		"IPv6 address":           {[]string{"Host", "[fe80::1]:80"}, false},
	} {
		for _, r := range []reply{
			f.post(t, call(1, "echo"), c.headers...),
			f.post(t, "["+call(1, "echo")+"]", c.headers...),
			f.send(t, http.MethodGet, "/mcp", "", c.headers...),
			f.send(t, http.MethodDelete, "/mcp", "", c.headers...),
			f.send(t, http.MethodPost, "/sse?sessionid=x", "{}", c.headers...),
		} {
			if refused := r.status == http.StatusForbidden; refused == c.ok {
				t.Errorf("%s: %d %s", name, r.status, r.raw)
			}
			if !c.ok && (strings.Contains(r.raw, "result") || r.header.Get("Access-Control-Allow-Origin") != "") {
				t.Errorf("%s: a refusal says %s, %v", name, r.raw, r.header)
			}
		}
		if !c.ok {
			if r := f.send(t, http.MethodGet, "/sse", "", c.headers...); r.status != http.StatusForbidden {
				t.Errorf("%s: GET /sse: %d", name, r.status)
			}
		}
	}
}

func TestG8ContentTypes(t *testing.T) {
	f := newWorld(t).front(t, httpfront.Settings{})
	for kind, ok := range map[string]bool{
		"application/json": true, "application/json; charset=utf-8": true, "Application/JSON": true,
		"text/plain": false, "text/plain; application/json": false, "application/x-www-form-urlencoded": false,
		"multipart/form-data; boundary=x": false, "application/jsonp": false, "": false, ";;": false,
	} {
		for _, body := range []string{call(1, "echo"), "[" + call(1, "echo") + "]"} {
			r := f.post(t, body, "Content-Type", kind)
			if got := r.status == http.StatusOK; got != ok || !ok && r.status != http.StatusUnsupportedMediaType {
				t.Errorf("%q: %d %s", kind, r.status, r.raw)
			}
		}
	}
}

func TestG8CORS(t *testing.T) {
	const app = "https://app.example"
	settings := httpfront.Settings{Loopback: true, AllowedOrigins: []string{app}, Verify: tokens}
	f := newWorld(t).front(t, settings)
	ask := []string{
		"Origin", app, "Access-Control-Request-Method", "POST",
		"Access-Control-Request-Headers", "content-type, mcp-param-region, x-other", "Access-Control-Request-Private-Network", "true",
	}
	for _, path := range []string{"/mcp", "/sse"} {
		r := f.send(t, http.MethodOptions, path, "", ask...) // without a token
		if r.status != http.StatusNoContent || r.header.Get("Access-Control-Allow-Origin") != app || r.header.Get("Vary") != "Origin" {
			t.Errorf("%s: preflight: %d %v", path, r.status, r.header)
		}
		allowed := strings.ToLower(r.header.Get("Access-Control-Allow-Headers"))
		if !strings.Contains(allowed, "mcp-session-id") || !strings.Contains(allowed, "mcp-param-region") || strings.Contains(allowed, "x-other") {
			t.Errorf("%s: allowed headers: %s", path, allowed)
		}
		ask[1] = "https://evil.example"
		if r := f.send(t, http.MethodOptions, path, "", ask...); r.status != http.StatusForbidden || r.header.Get("Access-Control-Allow-Methods") != "" {
			t.Errorf("%s: a foreign preflight: %d %v", path, r.status, r.header)
		}
		ask[1] = app
	}
	r := f.post(t, call(1, "echo"), "Origin", app, "Authorization", "Bearer ann")
	if r.status != http.StatusOK || r.header.Get("Access-Control-Allow-Origin") != app || !strings.Contains(r.header.Get("Access-Control-Expose-Headers"), "Mcp-Session-Id") {
		t.Errorf("%d %v", r.status, r.header)
	}
	// The page has to see why it is refused.
	if r := f.post(t, call(1, "echo"), "Origin", app); r.status != http.StatusUnauthorized || r.header.Get("Access-Control-Allow-Origin") != app {
		t.Errorf("without a token: %d %v", r.status, r.header)
	}
	if r := f.post(t, call(1, "echo"), "Authorization", "Bearer ann"); r.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("without an origin: %v", r.header)
	}
	f.Configure(httpfront.Settings{Loopback: true})
	if r := f.send(t, http.MethodOptions, "/mcp", ""); r.status != http.StatusMethodNotAllowed || r.header.Get("Allow") == "" {
		t.Errorf("OPTIONS without an origin: %d %v", r.status, r.header)
	}
	if r := f.send(t, http.MethodPut, "/sse", ""); r.status != http.StatusMethodNotAllowed {
		t.Errorf("PUT /sse: %d", r.status)
	}
}

// reached is a listener whose connections came to another address.
type reached struct {
	net.Listener
	at net.IP
}

func (l reached) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return reachedConn{c, l.at}, err
}

type reachedConn struct {
	net.Conn
	at net.IP
}

func (c reachedConn) LocalAddr() net.Addr { return &net.TCPAddr{IP: c.at, Port: 80} }

// A connection that came from outside is let in by settings for outside alone: it may
// be older than those that hold, and those older than it (SPEC H2).
func TestG8ConnectionsFromOutside(t *testing.T) {
	f := newWorld(t).front(t, httpfront.Settings{})
	l := listen(t)
	serveOn(t, reached{l, net.IPv4(192, 0, 2, 1)}, f.Front)
	f.url = "http://" + l.Addr().String()
	local := []string{"Host", "localhost"}
	if r := f.post(t, call(1, "echo"), local...); r.status != http.StatusForbidden || !strings.Contains(r.raw, "its own machine") {
		t.Errorf("without tokens: %d %s", r.status, r.raw)
	}
	f.Configure(httpfront.Settings{Verify: tokens})
	if r := f.post(t, call(1, "echo"), append(local, "Authorization", "Bearer ann")...); r.status != http.StatusOK {
		t.Errorf("with one: %d %s", r.status, r.raw)
	}
	f.Configure(httpfront.Settings{Loopback: true})
	if r := f.post(t, call(1, "echo"), append(local, "Authorization", "Bearer ann")...); r.status != http.StatusForbidden {
		t.Errorf("when none is asked for any more: %d %s", r.status, r.raw)
	}
}

// tokens knows ann and bob, each by a token that is their name.
func tokens(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	if token != "ann" && token != "bob" {
		return nil, fmt.Errorf("%w: not one of ours", auth.ErrInvalidToken)
	}
	return &auth.TokenInfo{UserID: token}, nil
}

func TestG8Bearer(t *testing.T) {
	w := newWorld(t)
	f := w.front(t, httpfront.Settings{Verify: tokens})
	ann, bob := []string{"Authorization", "Bearer ann"}, []string{"Authorization", "Bearer bob"}
	for name, headers := range map[string][]string{
		"none": nil, "wrong": {"Authorization", "Bearer eve"}, "empty": {"Authorization", "Bearer "}, "basic": {"Authorization", "Basic ann"},
	} {
		for _, r := range []reply{
			f.post(t, call(1, "echo"), headers...), f.send(t, http.MethodGet, "/sse", "", headers...),
			f.send(t, http.MethodGet, "/mcp", "", headers...), f.send(t, http.MethodDelete, "/mcp", "", headers...),
		} {
			if r.status != http.StatusUnauthorized || !strings.HasPrefix(r.header.Get("WWW-Authenticate"), "Bearer") || strings.Contains(r.raw, "result") {
				t.Errorf("%s: %d %v %s", name, r.status, r.header, r.raw)
			}
		}
	}
	if r := f.post(t, call(1, "echo"), ann...); r.status != http.StatusOK || r.header.Get("WWW-Authenticate") != "" {
		t.Errorf("the right token: %d %v", r.status, r.header)
	}
	// A Host that is not a name of ours does not matter to those with a token.
	if r := f.post(t, call(1, "echo"), append(ann, "Host", "orla.example")...); r.status != http.StatusOK {
		t.Errorf("another Host, with a token: %d %s", r.status, r.raw)
	}
	session := f.initialize(t, ann...)
	with := append([]string{"Mcp-Session-Id", session}, bob...)
	for _, r := range []reply{
		f.post(t, call(1, "echo"), with...), f.send(t, http.MethodGet, "/mcp", "", with...), f.send(t, http.MethodDelete, "/mcp", "", with...),
	} {
		if r.status != http.StatusNotFound { // whether there is such a session is not for him to know
			t.Errorf("bob in ann's session: %d %s", r.status, r.raw)
		}
	}
	stream := f.openSSE(t, ann...)
	if r := f.send(t, http.MethodPost, stream.endpoint, initialize("2024-11-05"), bob...); r.status != http.StatusNotFound {
		t.Errorf("bob on ann's stream: %d", r.status)
	}
	stream.post(t, initialize("2024-11-05"))
	if r := stream.next(t); r.failed {
		t.Errorf("ann on her own stream: %s", r.raw)
	}
	stream.post(t, call(1, "echo"))
	stream.next(t)
	if r := f.post(t, call(1, "echo"), append([]string{"Mcp-Session-Id", session}, ann...)...); r.failed {
		t.Errorf("ann's session is gone: %s", r.raw)
	}
	for _, line := range w.log.lines(t, "call") {
		if line["caller"] != "ann" {
			t.Errorf("the log: %v", line)
		}
	}
	if r := f.send(t, http.MethodGet, "/healthz", ""); r.status != http.StatusOK {
		t.Errorf("/healthz asks for a token: %d", r.status)
	}
}

func TestI2TheLineOfACall(t *testing.T) {
	w := newWorld(t)
	f := w.front(t, httpfront.Settings{})
	session := f.initialize(t)
	f.post(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"k":"tOpSeCrEt"}}}`, "Mcp-Session-Id", session)
	f.post(t, call(2, "unknown"), "Mcp-Session-Id", session)
	w.gives(nil, fmt.Errorf("the cause: %w", context.DeadlineExceeded))
	stream := f.openSSE(t)
	stream.post(t, initialize("2024-11-05"))
	stream.next(t)
	stream.post(t, call(1, "echo"))
	stream.next(t)
	lines := w.log.calls(t, 3)
	if len(lines) != 3 {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	for i, want := range []map[string]any{
		{"tool": "echo", "ok": true, "request_bytes": 17.0, "response_bytes": 17.0, "session": session[:8], "caller": "anonymous", "level": "INFO"},
		{"tool": "unknown", "ok": false, "code": "unsupported_tool", "response_bytes": 0.0, "session": session[:8]},
		{"tool": "echo", "ok": false, "code": "timeout", "err": "the cause: context deadline exceeded", "caller": "anonymous"},
	} {
		for key, value := range want {
			if lines[i][key] != value {
				t.Errorf("line %d: %s is %v; want %v", i, key, lines[i][key], value)
			}
		}
		if id, _ := lines[i]["call_id"].(string); len(id) < 10 || lines[i]["duration_ms"] == nil {
			t.Errorf("line %d: %v", i, lines[i])
		}
	}
	if log := w.log.String(); strings.Contains(log, "tOpSeCrEt") || strings.Contains(log, session) {
		t.Errorf("arguments or a whole session id in the log: %s", log)
	}
}
