package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/console"
	"github.com/orla-project/orla/internal/testing/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// site is a console that is served on loopback.
type site struct {
	*console.Console
	t      *testing.T
	server *httptest.Server
	mu     sync.Mutex
	asked  []string // what reached the API
}

func newSite(t *testing.T, instance string, log ...*slog.Logger) *site {
	t.Helper()
	s := &site{t: t}
	s.Console = console.New(console.Options{API: http.HandlerFunc(s.api), Instance: instance, Log: append(log, slog.New(slog.DiscardHandler))[0]})
	mux := http.NewServeMux()
	for _, pattern := range console.Patterns() {
		mux.Handle(pattern, s)
	}
	s.server = httptest.NewServer(mux)
	t.Cleanup(s.server.Close)
	t.Cleanup(s.Close)
	return s
}

func (s *site) api(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	s.mu.Unlock()
	if r.URL.Path == "/v1/watch" {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	_, _ = io.WriteString(w, "{}")
}

func (s *site) reached() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.asked...)
}

// host is the site's own host and port.
func (s *site) host() string { return strings.TrimPrefix(s.server.URL, "http://") }

// ask is one request. In texts, SELF is the site's origin.
type ask struct {
	method, path, body string
	header             map[string]string
	host               string
}

// reply is the answer to a request, of which the body was read.
type reply struct {
	StatusCode int
	Header     http.Header
	Cookies    []*http.Cookie
}

// do makes a request exactly as it is described, without following redirects. Each has its own connection.
func (s *site) do(a ask) (reply, string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, a.method, s.server.URL, strings.NewReader(a.body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.URL.Opaque = a.path
	req.Host, req.Close = s.host(), true
	if a.host != "" {
		req.Host = a.host
	}
	for key, value := range a.header {
		for one := range strings.SplitSeq(value, "|") {
			req.Header.Add(key, strings.ReplaceAll(one, "SELF", s.server.URL))
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		s.t.Fatalf("%s %s: %v", a.method, a.path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, resp.Cookies()}, string(body)
}

// own are the headers of a request that the page makes.
func own(more ...string) map[string]string {
	h := map[string]string{"Origin": "SELF", "Content-Type": "application/json", "Sec-Fetch-Site": "same-origin"}
	for i := 0; i < len(more); i += 2 {
		if h[more[i]] = more[i+1]; more[i+1] == "" {
			delete(h, more[i])
		}
	}
	return h
}

// code returns a fresh code.
func (s *site) code() string { return s.codeOf("user:ada(1000)") }

func (s *site) codeOf(who string) string {
	path, _ := s.Link(console.Guest{Name: who})
	_, code, _ := strings.Cut(path, "#")
	return code
}

// login lets a browser in, and returns its cookie and its key.
func (s *site) login() (cookie, key string) { return s.loginOf("user:ada(1000)") }

func (s *site) loginOf(who string) (cookie, key string) {
	s.t.Helper()
	resp, body := s.do(ask{method: "POST", path: "/console/login", body: fmt.Sprintf(`{"code":%q}`, s.codeOf(who)), header: own()})
	var got struct{ Key string }
	if err := json.Unmarshal([]byte(body), &got); err != nil || resp.StatusCode != http.StatusOK || got.Key == "" {
		s.t.Fatalf("login: %d %s", resp.StatusCode, body)
	}
	c := resp.Cookies[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" {
		s.t.Errorf("the cookie is %v", c)
	}
	return c.Name + "=" + c.Value, got.Key
}

// SPEC S2, O3: whoever tries links does not fill the log.
func TestS2RefusedLinksAreLoggedAtABoundedRate(t *testing.T) {
	var log bytes.Buffer
	s := newSite(t, "x", slog.New(slog.NewJSONHandler(&log, nil)))
	for range 15 {
		if resp, body := s.do(ask{method: "POST", path: "/console/login", body: `{"code":"guess"}`, header: own()}); resp.StatusCode != http.StatusForbidden {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
	}
	s.server.Close() // which ends its goroutines
	if n := strings.Count(log.String(), "was refused"); n != 10 {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
}

// O3: whoever comes another way than by the page in a browser that was let in does not reach the API.
func TestO3Abuse(t *testing.T) {
	s, other := newSite(t, "a1"), newSite(t, "b2")
	cookie, key := s.login()
	theirs, theirKey := other.login()
	in := func(more ...string) map[string]string {
		return own(append([]string{"Cookie", cookie, "X-Orla-Console", key}, more...)...)
	}
	const (
		status = "/api/v1/status"
		stop   = "/api/v1/capsules/notes/stop"
	)
	if resp, body := s.do(ask{method: "GET", path: status, header: in("Origin", "")}); resp.StatusCode != http.StatusOK {
		t.Fatalf("the page itself: %d %s", resp.StatusCode, body)
	}
	if resp, body := s.do(ask{method: "POST", path: stop, header: in()}); resp.StatusCode != http.StatusOK {
		t.Fatalf("the page itself: %d %s", resp.StatusCode, body)
	}
	before := len(s.reached())
	huge := strings.Repeat("x", 4<<20+1)
	used := s.code()
	s.do(ask{method: "POST", path: "/console/login", body: fmt.Sprintf(`{"code":%q}`, used), header: own()})
	for _, c := range []struct {
		name string
		ask
		want int
	}{
		{"no cookie", ask{method: "GET", path: status, header: own("X-Orla-Console", key)}, 401},
		{"no key: a page on another port got the cookie", ask{method: "GET", path: status, header: own("Cookie", cookie)}, 401},
		{"another key", ask{method: "GET", path: status, header: in("X-Orla-Console", theirKey)}, 401},
		{"an empty key", ask{method: "GET", path: status, header: in("X-Orla-Console", " ")}, 401},
		{"the key twice", ask{method: "GET", path: status, header: in("X-Orla-Console", key+"|"+key)}, 401},
		{"the cookie of another Orla", ask{method: "GET", path: status, header: in("Cookie", theirs, "X-Orla-Console", theirKey)}, 401},
		{"its value under our name", ask{method: "GET", path: status, header: in("Cookie", "orla_console_a1="+theirs[len("orla_console_b2="):], "X-Orla-Console", theirKey)}, 401},
		{"two cookies of our name", ask{method: "GET", path: status, header: in("Cookie", cookie+"; "+cookie)}, 401},
		{"the key as the cookie", ask{method: "GET", path: status, header: in("Cookie", "orla_console_a1="+key)}, 401},
		{"the key in the query", ask{method: "GET", path: status + "?key=" + key, header: own("Cookie", cookie)}, 401},
		{"a bearer token", ask{method: "GET", path: status, header: own("Authorization", "Bearer "+key)}, 401},
		{"a rebound host", ask{method: "GET", path: status, header: in("Origin", ""), host: "evil.example:8080"}, 403},
		{"a rebound host with its Origin", ask{method: "POST", path: stop, header: in("Origin", "http://evil.example"), host: "evil.example"}, 403},
		{"a host that begins with ours", ask{method: "GET", path: status, header: in("Origin", ""), host: "127.0.0.1.evil.example"}, 403},
		{"a host that ends with ours", ask{method: "GET", path: status, header: in("Origin", ""), host: "evil.localhost"}, 403},
		{"localhost with a dot", ask{method: "GET", path: status, header: in("Origin", ""), host: "localhost.:80"}, 403},
		{"an address of another machine", ask{method: "GET", path: status, header: in("Origin", ""), host: "10.0.0.1"}, 403},
		{"all addresses", ask{method: "GET", path: status, header: in("Origin", ""), host: "0.0.0.0:80"}, 403},
		{"a port that is not one", ask{method: "GET", path: status, header: in("Origin", ""), host: "localhost:80@evil"}, 403},
		{"a foreign Origin", ask{method: "POST", path: stop, header: in("Origin", "https://evil.example")}, 403},
		{"a foreign Origin that reads", ask{method: "GET", path: status, header: in("Origin", "https://evil.example")}, 403},
		{"the Origin null", ask{method: "POST", path: stop, header: in("Origin", "null")}, 403},
		{"an Origin on another port", ask{method: "POST", path: stop, header: in("Origin", "http://127.0.0.1:1")}, 403},
		{"an Origin with https", ask{method: "POST", path: stop, header: in("Origin", "https://"+s.host())}, 403},
		{"two Origins", ask{method: "POST", path: stop, header: in("Origin", "SELF|https://evil.example")}, 403},
		{"no Origin for a change", ask{method: "POST", path: stop, header: in("Origin", "")}, 403},
		{"another site's fetch", ask{method: "GET", path: status, header: in("Origin", "", "Sec-Fetch-Site", "cross-site")}, 403},
		{"another port's fetch", ask{method: "GET", path: status, header: in("Origin", "", "Sec-Fetch-Site", "same-site")}, 403},
		{"another site's navigation to the API", ask{method: "GET", path: status, header: in("Origin", "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document")}, 403},
		{"another site's frame", ask{method: "GET", path: "/", header: in("Origin", "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe")}, 403},
		{"another site's script", ask{method: "GET", path: "/console/app.js", header: in("Origin", "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "script")}, 403},
		{"a form", ask{method: "POST", path: stop, header: in("Content-Type", "application/x-www-form-urlencoded")}, 415},
		{"plain text", ask{method: "POST", path: stop, header: in("Content-Type", "text/plain")}, 415},
		{"no type", ask{method: "POST", path: stop, header: in("Content-Type", "")}, 415},
		{"two types", ask{method: "POST", path: stop, header: in("Content-Type", "application/json|text/plain")}, 415},
		{"a preflight", ask{method: "OPTIONS", path: stop, header: in("Access-Control-Request-Method", "POST")}, 405},
		{"HEAD", ask{method: "HEAD", path: status, header: in()}, 405},
		{"DELETE", ask{method: "DELETE", path: stop, header: in()}, 405},
		{"PUT", ask{method: "PUT", path: stop, header: in()}, 405},
		{"a method of its own", ask{method: "STOP", path: stop, header: in()}, 405},
		{"a websocket", ask{method: "GET", path: "/api/v1/watch", header: in("Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "x")}, 400},
		{"a link that was used", ask{method: "POST", path: "/console/login", body: fmt.Sprintf(`{"code":%q}`, used), header: own()}, 403},
		{"a link that was never made", ask{method: "POST", path: "/console/login", body: `{"code":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}`, header: own()}, 403},
		{"a login without a code", ask{method: "POST", path: "/console/login", body: `{}`, header: own()}, 403},
		{"a login that is not JSON", ask{method: "POST", path: "/console/login", body: `code=x`, header: own()}, 400},
		{"a huge login", ask{method: "POST", path: "/console/login", body: `{"code":"` + huge + `"}`, header: own()}, 400},
		{"a login by another page", ask{method: "POST", path: "/console/login", body: fmt.Sprintf(`{"code":%q}`, s.code()), header: own("Origin", "https://evil.example")}, 403},
		{"a login by GET", ask{method: "GET", path: "/console/login?code=" + s.code(), header: own()}, 200},
		{"a login with a foreign host", ask{method: "POST", path: "/console/login", body: fmt.Sprintf(`{"code":%q}`, s.code()), header: own("Origin", "http://evil.example"), host: "evil.example"}, 403},
		{"steps up in the path", ask{method: "GET", path: "/x/../api/v1/status", header: own()}, 307},
		{"steps out of the files", ask{method: "GET", path: "/console/../api/v1/status", header: own()}, 307},
		{"escaped steps out of the files", ask{method: "GET", path: "/console/%2e%2e/api/v1/status", header: own()}, 404},
		{"an escaped slash", ask{method: "GET", path: "/console/..%2fconsole.go", header: own()}, 404},
		{"two slashes", ask{method: "GET", path: "//api/v1/status", header: own()}, 404},
		{"the page behind its back", ask{method: "GET", path: "/console/index.html", header: own()}, 404},
		{"a file that is not part of the page", ask{method: "GET", path: "/console/console.go", header: own()}, 404},
		{"a folder", ask{method: "GET", path: "/console/", header: own()}, 404},
	} {
		resp, body := s.do(c.ask)
		if resp.StatusCode != c.want {
			t.Errorf("%s: %d %.200s, want %d", c.name, resp.StatusCode, body, c.want)
		}
		for key := range resp.Header {
			if strings.HasPrefix(key, "Access-Control-") {
				t.Errorf("%s: the answer has %s", c.name, key)
			}
		}
		if len(resp.Cookies) > 0 {
			t.Errorf("%s: the answer has a cookie", c.name)
		}
	}
	if now := s.reached(); len(now) != before {
		t.Errorf("these reached the API: %v", now[before:])
	}
	if resp, _ := s.do(ask{method: "POST", path: "/api/v1/tools/notes/call", body: huge, header: in()}); resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a huge body: %d", resp.StatusCode)
	}
}

// O3: a connection that does not come to a loopback address is not let in, whatever it says.
func TestO3OnlyOnLoopback(t *testing.T) {
	c := console.New(console.Options{API: http.NotFoundHandler(), Instance: "a1", Log: slog.New(slog.DiscardHandler)})
	defer c.Close()
	for _, at := range []net.Addr{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80}, &net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 80}, &net.UnixAddr{Name: "/run/x.sock", Net: "unix"}, nil} {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/", nil)
		if at != nil {
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, at))
		}
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "loopback") {
			t.Errorf("on %v: %d %s", at, w.Code, w.Body)
		}
	}
}

// O3: who has no cookie learns how to get in, and nothing else. Each answer has the headers that keep other pages out.
func TestO3ThePage(t *testing.T) {
	s := newSite(t, "a1")
	cookie, _ := s.login()
	resp, body := s.do(ask{method: "GET", path: "/"})
	if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(body, "orla console") || strings.Contains(body, "app.js") {
		t.Errorf("without a cookie: %d %s", resp.StatusCode, body)
	}
	resp, body = s.do(ask{method: "GET", path: "/", header: map[string]string{"Cookie": cookie}})
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, "app.js") {
		t.Errorf("with a cookie: %d %s", resp.StatusCode, body)
	}
	if strings.Contains(body, cookie[len("orla_console_a1="):]) {
		t.Error("the page has the secret in it")
	}
	for _, path := range []string{"/", "/console/login", "/console/app.js", "/console/style.css", "/console/icon.svg", "/console/none", "/api/v1/status"} {
		resp, _ := s.do(ask{method: "GET", path: path})
		csp := resp.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: the policy is %q, without %s", path, csp, want)
			}
		}
		if strings.Contains(csp, "unsafe") || resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", path, resp.Header)
		}
	}
	resp, _ = s.do(ask{method: "GET", path: "/console/app.js"})
	if again, _ := s.do(ask{method: "GET", path: "/console/app.js", header: map[string]string{"If-None-Match": resp.Header.Get("ETag")}}); again.StatusCode != http.StatusNotModified {
		t.Errorf("an unchanged file: %d", again.StatusCode)
	}
	for _, from := range []string{"cross-site", "none"} {
		if resp, body := s.do(ask{method: "GET", path: "/console/login", header: map[string]string{"Sec-Fetch-Site": from, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}}); resp.StatusCode != http.StatusOK {
			t.Errorf("a person follows a link (%s): %d %s", from, resp.StatusCode, body)
		}
	}
}

// O3: console: off removes the page and ends all sessions.
func TestO3Off(t *testing.T) {
	s := newSite(t, "a1")
	cookie, key := s.login()
	s.Turn(false)
	for _, path := range []string{"/", "/console/app.js", "/api/v1/status"} {
		if resp, _ := s.do(ask{method: "GET", path: path, header: own("Cookie", cookie, "X-Orla-Console", key)}); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	s.Turn(true)
	if resp, _ := s.do(ask{method: "GET", path: "/api/v1/status", header: own("Cookie", cookie, "X-Orla-Console", key)}); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the session from before: %d", resp.StatusCode)
	}
}

// O3: a closed session is over, with what it has open.
func TestO3ASessionEnds(t *testing.T) {
	s := newSite(t, "a1")
	cookie, key := s.login()
	_, stream := s.open(cookie, key)
	if resp, _ := s.do(ask{method: "POST", path: "/console/logout", body: "{}", header: own("Cookie", cookie, "X-Orla-Console", key)}); resp.StatusCode != http.StatusOK {
		t.Fatalf("logout: %d", resp.StatusCode)
	}
	if _, err := io.ReadAll(stream); err != nil { // it ends
		t.Log(err)
	}
	_ = stream.Close()
	if resp, _ := s.do(ask{method: "GET", path: "/api/v1/status", header: own("Cookie", cookie, "X-Orla-Console", key)}); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("afterwards: %d", resp.StatusCode)
	}
}

// open opens a stream.
func (s *site) open(cookie, key string) (status int, stream io.ReadCloser) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.server.URL+"/api/v1/watch", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Cookie", cookie)
	req.Header.Set("X-Orla-Console", key)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, resp.Body
}

// N2, S2: a browser has so many streams, and who has several browsers keeps nobody else out.
func TestN2Streams(t *testing.T) {
	s := newSite(t, "a1")
	var open []io.Closer
	defer func() {
		for _, r := range open {
			_ = r.Close()
		}
	}()
	served := 0
	for browser := range 6 {
		cookie, key := s.login()
		for range 7 {
			status, stream := s.open(cookie, key)
			if open = append(open, stream); status == http.StatusOK {
				served++
			}
		}
		if want := min(6*(browser+1), 16); served != want {
			t.Errorf("%d browsers have %d streams, want %d", browser+1, served, want)
		}
	}
	cookie, key := s.loginOf("user:eve(1001)")
	status, stream := s.open(cookie, key)
	if open = append(open, stream); status != http.StatusOK {
		t.Errorf("somebody else gets %d", status)
	}
	if resp, body := s.do(ask{method: "GET", path: "/console/app.js"}); resp.StatusCode != http.StatusOK {
		t.Errorf("the page: %d %s", resp.StatusCode, body)
	}
}

// O3: a link is good for a minute, a session for 12 hours without use and 7 days in all; of both there are 16.
func TestO3HowLongAccessLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := console.NewAccess()
		defer a.Clear()
		code := a.Issue()
		time.Sleep(time.Minute + time.Second)
		if a.Enter(code) != "" {
			t.Error("a link is good after a minute")
		}
		token := a.Enter(a.Issue())
		for range 13 {
			time.Sleep(12 * time.Hour)
			if !a.Knows(token) {
				t.Fatal("a session that is used ends")
			}
		}
		time.Sleep(11 * time.Hour)
		if !a.Knows(token) {
			t.Error("a session ends before a week is over")
		}
		time.Sleep(2 * time.Hour)
		if a.Knows(token) {
			t.Error("a session lasts for more than a week")
		}
		token = a.Enter(a.Issue())
		time.Sleep(12*time.Hour + time.Second)
		if a.Knows(token) {
			t.Error("a session lasts for more than 12 hours without use")
		}
		first := a.Issue()
		time.Sleep(time.Millisecond)
		for range 16 {
			a.Issue()
			time.Sleep(time.Millisecond)
		}
		if a.Enter(first) != "" {
			t.Error("there are more than 16 links")
		}
		token = a.Enter(a.Issue())
		var others []string
		for range 16 {
			time.Sleep(time.Second)
			others = append(others, a.Enter(a.Issue()))
		}
		if a.Knows(token) || !a.Knows(others[0]) || !a.Knows(others[15]) {
			t.Error("not the session goes that was not used for longest")
		}
	})
}

// O3: who makes one link after another does not end the session of a page that is open, whether with streams or without.
func TestO3AnOpenPageKeepsItsSession(t *testing.T) {
	for _, opens := range []bool{false, true} {
		t.Run(fmt.Sprintf("opens=%v", opens), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := console.NewAccess()
				defer a.Clear()
				person := a.Enter(a.Issue())
				defer a.Open(person)()
				last := ""
				for range 40 {
					time.Sleep(time.Second)
					last = a.Enter(a.Issue())
					if opens {
						defer a.Open(last)()
					}
				}
				if !a.Knows(person) {
					t.Error("the session of the open page has ended")
				}
				if !a.Knows(last) {
					t.Error("the last link has no session")
				}
			})
		})
	}
}

// O3: all callers together have 1024 sessions. A further caller has to wait; one that has 16 loses one of its own.
func TestO3HowManySessionsThereAre(t *testing.T) {
	a := console.NewAccess()
	defer a.Clear()
	for i := range 64 * 16 {
		if !a.EnterByToken(fmt.Sprint("caller ", i/16)) {
			t.Fatalf("there are only %d sessions", i)
		}
	}
	if a.EnterByToken("one more") {
		t.Error("there are more than 1024 sessions")
	}
	if !a.EnterByToken("caller 3") {
		t.Error("a caller with 16 sessions does not lose one of its own")
	}
}

// O1: the page loads nothing from elsewhere, has no inline code, and is small.
func TestO1TheFiles(t *testing.T) {
	total := 0
	for name, content := range console.Files() {
		total += len(content)
		for _, never := range []string{"https://", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=", "onclick=\"", "<style"} {
			if strings.Contains(content, never) {
				t.Errorf("%s has %s", name, never)
			}
		}
		if strings.HasSuffix(name, ".html") && strings.Count(content, "<script") != strings.Count(content, "<script type=\"module\" src=\"/console/") {
			t.Errorf("%s has inline code", name)
		}
	}
	if total > 200<<10 {
		t.Errorf("the page has %d bytes", total)
	}
}

// O3: a token lets in by a name that the page has elsewhere, and its session ends with it. Each guest has 16 sessions, and
// pushes out nobody else's. A link lets nobody in from elsewhere.
func TestO3ByAToken(t *testing.T) {
	s := newSite(t, "a1")
	cookie, key := s.login()
	stays := true
	s.Open(console.Doors{
		Hosts: []string{"orla.example.com", "other.example:8443"},
		Token: func(_ context.Context, _, text string) (console.Guest, time.Time, error) {
			if text != "good" {
				return console.Guest{}, time.Time{}, errors.New("it is nobody's")
			}
			return console.Guest{Name: "ada", Token: "t1"}, time.Time{}, nil
		},
		Still: func(console.Guest) bool { return stays },
	})
	enter := func(host, origin, body string) (status int, cookie, key string) {
		t.Helper()
		resp, text := s.do(ask{method: "POST", path: "/console/login", body: body, host: host, header: own("Origin", origin)})
		var said struct{ Key string }
		_ = json.Unmarshal([]byte(text), &said) // a refusal has none
		for _, c := range resp.Cookies {
			if c.Secure != strings.HasPrefix(origin, "https:") {
				t.Errorf("the cookie of %s is %v", origin, c)
			}
			cookie = c.Name + "=" + c.Value
		}
		return resp.StatusCode, cookie, said.Key
	}
	for _, c := range []struct {
		host, origin, body string
		want               int
	}{
		{"orla.example.com", "https://orla.example.com", `{"token":"good"}`, 200},
		{"ORLA.example.com.", "https://ORLA.example.com.", `{"token":"good"}`, 200},
		{"orla.example.com:8443", "http://orla.example.com:8443", `{"token":"good"}`, 200},
		{"other.example:8443", "https://other.example:8443", `{"token":"good"}`, 200},
		{"192.0.2.1:80", "http://192.0.2.1:80", `{"token":"good"}`, 200},
		{"[2001:db8::1]", "http://[2001:db8::1]", `{"token":"good"}`, 200},
		{"other.example", "https://other.example", `{"token":"good"}`, 403},
		{"0.0.0.0:80", "http://0.0.0.0:80", `{"token":"good"}`, 403},
		{"[::]", "http://[::]", `{"token":"good"}`, 403},
		{"orla.example.com", "https://orla.example.com", `{"token":"bad"}`, 403},
		{"orla.example.com", "https://evil.example", `{"token":"good"}`, 403},
		{"evil.example", "https://evil.example", `{"token":"good"}`, 403},
		{"orla.example.com", "https://orla.example.com", `{"code":"` + s.code() + `"}`, 403},
		{s.host(), "https://" + s.host(), `{"token":"good"}`, 403},
	} {
		if status, _, _ := enter(c.host, c.origin, c.body); status != c.want {
			t.Errorf("%s, %s, %s: %d, want %d", c.host, c.origin, c.body, status, c.want)
		}
	}
	var first [2]string
	for i := range 17 {
		_, cookie, key := enter("orla.example.com", "https://orla.example.com", `{"token":"good"}`)
		if i == 0 {
			first = [2]string{cookie, key}
		}
		if i == 16 {
			for _, c := range []struct {
				cookie, key, host string
				want              int
			}{{cookie, key, "orla.example.com", 200}, {first[0], first[1], "orla.example.com", 401}, {cookie, first[1], "orla.example.com", 401}} {
				if resp, text := s.do(ask{method: "GET", path: "/api/v1/status", host: c.host, header: map[string]string{"Cookie": c.cookie, "X-Orla-Console": c.key}}); resp.StatusCode != c.want {
					t.Errorf("session: %d %s, want %d", resp.StatusCode, text, c.want)
				}
			}
			stays = false
			if resp, _ := s.do(ask{method: "GET", path: "/api/v1/status", host: "orla.example.com", header: map[string]string{"Cookie": cookie, "X-Orla-Console": key}}); resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("a token that is gone: %d", resp.StatusCode)
			}
		}
	}
	if resp, _ := s.do(ask{method: "GET", path: "/api/v1/status", header: own("Cookie", cookie, "X-Orla-Console", key)}); resp.StatusCode != http.StatusOK {
		t.Errorf("the session of a link: %d", resp.StatusCode)
	}
	if resp, _ := s.do(ask{method: "GET", path: "/api/v1/status", host: "orla.example.com", header: map[string]string{"Cookie": cookie, "X-Orla-Console": key}}); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the session of a link, elsewhere: %d", resp.StatusCode)
	}
}
