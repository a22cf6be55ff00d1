package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/console"
)

// O3: who logs in at an authorization server enters with the token that it gives, at the address where the login began. The
// answer may come from another page, as a document; all else of a login may not.
func TestO3ByALogin(t *testing.T) {
	s := newSite(t, "a1")
	var redirects []string
	wait := make(chan struct{})
	waiting := make(chan struct{}, 10)
	doors := console.Doors{
		Hosts: []string{"orla.example.com"},
		Token: func(_ context.Context, text string) (console.Guest, time.Time, error) {
			if text != "good" {
				return console.Guest{}, time.Time{}, errors.New("ann has no role here")
			}
			return console.Guest{Name: "oauth:ann", Token: "t1", Issued: true}, time.Time{}, nil
		},
		Still: func(console.Guest) bool { return true },
	}
	begin := ask{method: "POST", path: "/console/ticket", body: "{}", host: "orla.example.com", header: own("Origin", "https://orla.example.com")}
	if resp, text := s.do(begin); resp.StatusCode != http.StatusForbidden {
		t.Errorf("without tokens: %d %s", resp.StatusCode, text)
	}
	s.Open(doors)
	if resp, text := s.do(begin); resp.StatusCode != http.StatusForbidden || !strings.Contains(text, "console_client_id") {
		t.Errorf("without a login: %d %s", resp.StatusCode, text)
	}
	doors.Login = &console.Login{
		Host: "login.example.com",
		Begin: func(_ context.Context, redirect string) (console.Ticket, error) {
			redirects = append(redirects, redirect)
			return console.Ticket{Open: "https://login.example.com/?x", State: "s", Verifier: "v"}, nil
		},
		Finish: func(_ context.Context, redirect string, ticket console.Ticket, answer string) (string, error) {
			if answer == "wait" {
				waiting <- struct{}{}
				<-wait
			}
			if redirect != "https://orla.example.com/console/login" || ticket.State != "s" || ticket.Verifier != "v" {
				return "", errors.New("the issuer refuses the login: access_denied")
			}
			return answer, nil
		},
	}
	s.Open(doors)
	resp, text := s.do(begin)
	var ticket console.Ticket
	if err := json.Unmarshal([]byte(text), &ticket); err != nil || resp.StatusCode != http.StatusOK || ticket.Open != "https://login.example.com/?x" || redirects[0] != "https://orla.example.com/console/login" {
		t.Errorf("begin: %d %s, %q", resp.StatusCode, text, redirects)
	}
	if _, text := s.do(ask{method: "GET", path: "/console/door", host: "orla.example.com"}); !strings.Contains(text, `"login":"login.example.com"`) {
		t.Errorf("the door: %s", text)
	}
	back := map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
	if resp, text := s.do(ask{method: "GET", path: "/console/login?code=c&state=s", host: "orla.example.com", header: back}); resp.StatusCode != http.StatusOK || !strings.Contains(text, "login.js") {
		t.Errorf("the browser comes back: %d %s", resp.StatusCode, text)
	}
	for _, c := range []struct{ name, host, origin, body, want string }{
		{"good", "orla.example.com", "https://orla.example.com", `{"answer":"good","state":"s","verifier":"v"}`, `"key"`},
		{"another ticket", "orla.example.com", "https://orla.example.com", `{"answer":"good","state":"s","verifier":"w"}`, "The login at login.example.com did not succeed: the issuer refuses the login: access_denied."},
		{"a token without a role", "orla.example.com", "https://orla.example.com", `{"answer":"bad","state":"s","verifier":"v"}`, "ann has no role here"},
		{"another address", "orla.example.com:81", "https://orla.example.com:81", `{"answer":"good","state":"s","verifier":"v"}`, "access_denied"},
		{"another page", "orla.example.com", "https://evil.example", `{"answer":"good","state":"s","verifier":"v"}`, "another page"},
	} {
		if _, text := s.do(ask{method: "POST", path: "/console/login", host: c.host, body: c.body, header: own("Origin", c.origin)}); !strings.Contains(text, c.want) {
			t.Errorf("%s: %s, want %q", c.name, text, c.want)
		}
	}
	var slow sync.WaitGroup
	for range 8 {
		slow.Go(func() {
			s.do(ask{method: "POST", path: "/console/login", host: "orla.example.com", body: `{"answer":"wait"}`, header: own("Origin", "https://orla.example.com")})
		})
	}
	for range 8 {
		<-waiting
	}
	if resp, text := s.do(begin); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("with 8 that wait: %d %s", resp.StatusCode, text)
	}
	close(wait)
	slow.Wait()
}
