package login_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/login"
	"github.com/orla-project/orla/internal/service/outbound"
)

// otherProcess has the folder and the address for a process that a test starts.
const otherProcess = "ORLA_TEST_LOGIN"

// SPEC N3: two processes with one folder, which both need other tokens at the same moment, make one refresh, and no
// refresh token is used twice: an issuer ends the login for that.
func TestN3TwoProcessesRefreshOnce(t *testing.T) {
	if where := os.Getenv(otherProcess); where != "" {
		dir, url, _ := strings.Cut(where, "|")
		callWhenAsked(t, dir, url)
		return
	}
	f := newFake(t)
	f.login()
	used := map[string]int{}
	f.with(func() {
		f.serves["/token"] = func(w http.ResponseWriter, r *http.Request) {
			token := r.PostFormValue("refresh_token")
			f.mu.Lock()
			used[token]++
			again, newest := used[token] > 1, fmt.Sprint("refresh-", f.issued)
			f.mu.Unlock()
			if again || token != newest {
				answer(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
				return
			}
			f.token(w, r)
		}
		f.serves["/works"] = func(w http.ResponseWriter, r *http.Request) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if r.Header.Get("Authorization") != fmt.Sprint("Bearer access-", f.issued) {
				w.WriteHeader(http.StatusUnauthorized)
			}
		}
	})
	var asks []io.Writer
	var answers []*bufio.Scanner
	for range 2 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestN3TwoProcessesRefreshOnce$", "-test.count=1")
		cmd.Env = append(os.Environ(), otherProcess+"="+f.dir+"|"+f.url)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = in.Close(); _, _ = io.Copy(io.Discard, out); _ = cmd.Wait() }()
		asks, answers = append(asks, in), append(answers, bufio.NewScanner(out))
	}
	const rounds = 8
	for round := range rounds {
		f.expire()
		for _, in := range asks {
			if _, err := fmt.Fprintln(in, round); err != nil {
				t.Fatal(err)
			}
		}
		for n, out := range answers {
			if !out.Scan() || out.Text() != "done" {
				t.Fatalf("round %d, process %d: %s", round, n, out.Text())
			}
		}
		if want := round + 2; f.count("/token") != want {
			t.Fatalf("round %d: %d requests for tokens; want %d: %v", round, f.count("/token"), want, used)
		}
	}
	f.with(func() {
		if len(used) != rounds {
			t.Errorf("refresh tokens: %v", used)
		}
	})
}

// callWhenAsked makes calls at once for each line of stdin.
func callWhenAsked(t *testing.T, dir, url string) {
	client := outbound.New(outbound.Options{})
	defer client.Close()
	store := login.NewStore(dir, client, slog.New(slog.DiscardHandler))
	defer store.Close()
	s := auth.NewLogin(store.Tokens("far", url+"/mcp", true))
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				err := s.Do(t.Context(), func(c auth.Credentials) error {
					req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/works", nil)
					if err != nil {
						return err
					}
					c.Apply(req.Header)
					resp, err := http.DefaultClient.Do(req)
					if err != nil {
						return err
					}
					_ = resp.Body.Close()
					if resp.StatusCode != http.StatusOK {
						return fault.New(fault.AuthInvalid, "answered %s", resp.Status)
					}
					return nil
				})
				if err != nil {
					fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
				}
			})
		}
		calls.Wait()
		fmt.Println("done")
	}
}
