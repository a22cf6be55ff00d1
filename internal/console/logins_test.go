package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/console"
)

// O3: who logs in at an authorization server enters with the token that it gives, at the address where the login began. The
// answer may come from another page, as a document; all else of a login may not.
func TestO3ByALogin(t *testing.T) {
	s := newSite(t, "a1")
	var redirects []string
	doors := console.Doors{
		Hosts: []string{"orla.example.com"},
		Token: func(_ context.Context, _, text string) (console.Guest, time.Time, error) {
			if text != "good" {
				return console.Guest{}, time.Time{}, errors.New("ann has no role here")
			}
			return console.Guest{Name: "oauth:ann", Token: "t1"}, time.Time{}, nil
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
}

// O3, N2: strangers who send invented answers do not keep people out, of their own network or another one, and ask the
// authorization server a few times a second.
func TestO3StrangersDoNotCloseTheLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := console.New(console.Options{API: http.NotFoundHandler(), Log: slog.New(slog.DiscardHandler)})
		defer c.Close()
		var atOnce, most, asked atomic.Int64
		c.Open(console.Doors{
			Hosts: []string{"orla.example.com"},
			Token: func(context.Context, string, string) (console.Guest, time.Time, error) {
				return console.Guest{Name: "oauth:ann", Token: "t1"}, time.Time{}, nil
			},
			Still: func(console.Guest) bool { return true },
			Login: &console.Login{
				Begin: func(context.Context, string) (console.Ticket, error) { return console.Ticket{State: "s"}, nil },
				Finish: func(_ context.Context, _ string, _ console.Ticket, answer string) (string, error) {
					asked.Add(1)
					now := atOnce.Add(1)
					defer atOnce.Add(-1)
					if now > most.Load() {
						most.Store(now)
					}
					time.Sleep(50 * time.Millisecond) // the authorization server
					if answer == "good" {
						return "token", nil
					}
					return "", errors.New("invalid_grant")
				},
			},
		})
		post := func(from, path, body string) int {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
			r.Host, r.RemoteAddr = "orla.example.com", from+":1"
			for key, value := range own("Origin", "https://orla.example.com") {
				r.Header.Set(key, value)
			}
			w := httptest.NewRecorder()
			c.ServeHTTP(w, r)
			return w.Code
		}
		var strangers sync.WaitGroup
		began := time.Now()
		for range 24 {
			strangers.Go(func() {
				for time.Since(began) < time.Minute {
					if post("192.0.2.1", "/console/login", `{"answer":"code=c&state=s","state":"s","verifier":"v"}`) == http.StatusTooManyRequests {
						time.Sleep(time.Millisecond) // on its way
					}
				}
			})
		}
		time.Sleep(5 * time.Second)
		for _, from := range []string{"192.0.2.1", "192.0.2.2", "2001:db8::1"} {
			if code := post(from, "/console/ticket", "{}"); code != http.StatusOK {
				t.Errorf("%s: a ticket: %d", from, code)
			}
			start := time.Now()
			code := post(from, "/console/login", `{"answer":"good","state":"s","verifier":"v"}`)
			took := time.Since(start)
			if code != http.StatusOK || from != "192.0.2.1" && took > 100*time.Millisecond {
				t.Errorf("%s: a login: %d after %s", from, code, took)
			}
		}
		strangers.Wait()
		if most.Load() > 8 || asked.Load() > 4*70 {
			t.Errorf("in a minute, the authorization server was asked %d times, %d at once", asked.Load(), most.Load())
		}
	})
}

// O3: a network has the places of logins that others leave, and who waits for too long is told so.
func TestO3LoginsThatWaitForTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := console.New(console.Options{API: http.NotFoundHandler(), Log: slog.New(slog.DiscardHandler)})
		wait := make(chan struct{})
		c.Open(console.Doors{
			Hosts: []string{"orla.example.com"},
			Token: func(context.Context, string, string) (console.Guest, time.Time, error) {
				return console.Guest{}, time.Time{}, errors.New("no")
			},
			Still: func(console.Guest) bool { return true },
			Login: &console.Login{Finish: func(context.Context, string, console.Ticket, string) (string, error) {
				<-wait
				return "", errors.New("no")
			}},
		})
		codes := make(chan int, 20)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/console/login", strings.NewReader(`{"answer":"x"}`))
				r.Host = "orla.example.com"
				for key, value := range own("Origin", "https://orla.example.com") {
					r.Header.Set(key, value)
				}
				w := httptest.NewRecorder()
				c.ServeHTTP(w, r)
				codes <- w.Code
			})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(codes) != 16 {
			t.Errorf("%d of 20 were told that too many log in, want 16", len(codes))
		}
		for range len(codes) {
			if code := <-codes; code != http.StatusTooManyRequests {
				t.Errorf("%d", code)
			}
		}
		c.Close() // nobody waits after it
		close(wait)
		all.Wait()
	})
}

// N2, S2: bodies of logins, which anybody can send, are read in turn.
func TestN2BodiesOfLoginsAreReadInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := console.New(console.Options{API: http.NotFoundHandler(), Instance: "a1", Log: slog.New(slog.DiscardHandler)})
		defer c.Close()
		login := func() int {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}),
				http.MethodPost, "/console/login", strings.NewReader(`{"code":"x"}`))
			r.Host = "localhost"
			r.Header.Set("Origin", "http://localhost")
			r.Header.Set("Content-Type", "application/json")
			c.ServeHTTP(w, r)
			return w.Code
		}
		if got := login(); got != http.StatusForbidden {
			t.Errorf("a wrong code: %d", got)
		}
		time.Sleep(time.Second)
		done := c.Busy(t.Context())
		began := time.Now()
		if got := login(); got != http.StatusTooManyRequests || time.Since(began) < time.Second {
			t.Errorf("beside another that lasts: %d after %v", got, time.Since(began))
		}
		done()
		if got := login(); got != http.StatusForbidden {
			t.Errorf("after it: %d", got)
		}
	})
}
