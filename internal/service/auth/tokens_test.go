package auth_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
)

const (
	id     = "orla-client"
	hidden = "s3cr3t/of+the=client"
)

// pair is a secret of oauth2_client_credentials.
func pair(id, hidden string) map[string]string {
	return map[string]string{"client_id": id, "client_secret": hidden}
}

// endpoint is a token endpoint in memory. Its tokens are token-1, token-2, …
type endpoint struct {
	answer func(w http.ResponseWriter, r *http.Request, n int64)
	asked  atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (e *endpoint) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, fault.From(context.Cause(r.Context()))
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w.Result(), nil
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := e.asked.Add(1)
	if e.answer != nil {
		e.answer(w, r, n)
		return
	}
	grant(w, n, 3600)
}

// grant gives token n. A nil expiry says nothing of its end.
func grant(w http.ResponseWriter, n int64, expiry any) {
	answer := map[string]any{"access_token": fmt.Sprintf("token-%d", n), "token_type": "Bearer"}
	if expiry != nil {
		answer["expires_in"] = expiry
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func refuse(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// source returns a Source whose tokens come from url, of next.
func source(tokens *auth.Tokens, url string, secrets *secret.Store, scopes ...string) *auth.Source {
	a := profile(manifest.AuthOAuth2)
	a.TokenURL, a.Scopes = url, scopes
	return auth.New(a, auth.Options{Secrets: secrets, Tokens: tokens})
}

func tokenOf(t *testing.T, s *auth.Source) string {
	t.Helper()
	c, err := s.Credentials(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	typ, token := c.Contract()
	if typ != "bearer" {
		t.Errorf("the type is %q", typ)
	}
	return token
}

const anyURL = "http://idp.test/token"

// SPEC-TOOLS 5.2: cached until expires_in less 30 s, whatever expires_in says.
func TestTokenLasts(t *testing.T) {
	for _, c := range []struct {
		expiry any
		lasts  time.Duration
	}{
		{3600, 3570 * time.Second},
		{"3600", 3570 * time.Second}, // as text, as some do
		{31, time.Second},
		{30, 0},
		{5, 0},
		{-1, 0},
		{nil, auth.Undated},
		{0, auth.Undated},
		{1 << 40, auth.Longest},
		{int64(1) << 62, auth.Longest},
	} {
		t.Run(fmt.Sprint(c.expiry), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &endpoint{answer: func(w http.ResponseWriter, _ *http.Request, n int64) { grant(w, n, c.expiry) }}
				s := source(auth.NewTokensOver(e), anyURL, store(pair(id, hidden)))
				tokenOf(t, s)
				if c.lasts > 0 {
					time.Sleep(c.lasts - time.Millisecond)
					if got := tokenOf(t, s); got != "token-1" || e.asked.Load() != 1 {
						t.Errorf("just before its end: %q, asked %d times", got, e.asked.Load())
					}
					time.Sleep(2 * time.Millisecond)
				}
				if got := tokenOf(t, s); got != "token-2" || e.asked.Load() != 2 {
					t.Errorf("after its end: %q, asked %d times", got, e.asked.Load())
				}
			})
		})
	}
}

// A form in place of JSON, with a lie in it that overflows what times can hold.
func TestTokenAsAForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{answer: func(w http.ResponseWriter, _ *http.Request, n int64) {
			w.Header().Set("Content-Type", "application/x-www-form-urlencoded")
			_, _ = fmt.Fprintf(w, "access_token=token-%d&expires_in=%d", n, int64(1)<<62)
		}}
		s := source(auth.NewTokensOver(e), anyURL, store(pair(id, hidden)))
		tokenOf(t, s)
		time.Sleep(auth.Longest + time.Second)
		if got := tokenOf(t, s); got != "token-2" {
			t.Errorf("after the longest time: %q", got)
		}
	})
}

// SPEC-TOOLS 5.2: the key of the cache is URL, id, the secret's hash, scopes.
func TestTokensOfDifferentGrants(t *testing.T) {
	e := &endpoint{}
	tokens := auth.NewTokensOver(e)
	secrets := store(pair(id, hidden))
	first := tokenOf(t, source(tokens, anyURL, secrets, "a", "b"))
	for name, s := range map[string]*auth.Source{
		"another URL":    source(tokens, anyURL+"2", secrets, "a", "b"),
		"other scopes":   source(tokens, anyURL, secrets, "a"),
		"another id":     source(tokens, anyURL, store(pair("other", hidden)), "a", "b"),
		"another secret": source(tokens, anyURL, store(pair(id, "rotated")), "a", "b"),
	} {
		if got := tokenOf(t, s); got == first {
			t.Errorf("%s has the same token", name)
		}
	}
	if got := tokenOf(t, source(tokens, anyURL, store(pair(id, hidden)), "a", "b")); got != first {
		t.Errorf("the same grant has another token")
	}
}

// SPEC-TOOLS 5.2: fetched once by many concurrent callers.
func TestOneFetchForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{answer: func(w http.ResponseWriter, _ *http.Request, n int64) {
			time.Sleep(time.Second)
			grant(w, n, 3600)
		}}
		s := source(auth.NewTokensOver(e), anyURL, store(pair(id, hidden)))
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				if got := tokenOf(t, s); got != "token-1" {
					t.Errorf("got %q", got)
				}
			})
		}
		wg.Wait()
		if n := e.asked.Load(); n != 1 {
			t.Errorf("the endpoint was asked %d times", n)
		}
	})
}

// SPEC-TOOLS 5.2: a caller that goes away does not fail the others.
func TestCancellationFailsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{}
		e.answer = func(w http.ResponseWriter, r *http.Request, n int64) {
			select {
			case <-time.After(time.Second):
				grant(w, n, 3600)
			case <-r.Context().Done():
				refuse(w, http.StatusInternalServerError, "{}")
			}
		}
		s := source(auth.NewTokensOver(e), anyURL, store(pair(id, hidden)))
		left := fault.New(fault.Canceled, "the client went away")
		ctx, leave := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := s.Credentials(ctx)
			if f := fault.From(err); f.Code != fault.Canceled || !f.Unsent {
				t.Errorf("who went away got %v", err)
			}
		})
		synctest.Wait() // the first one asks
		waiting, leaveToo := context.WithCancelCause(t.Context())
		wg.Go(func() {
			if _, err := s.Credentials(waiting); fault.CodeOf(err) != fault.Timeout {
				t.Errorf("who waited no longer got %v", err)
			}
		})
		for range 20 {
			wg.Go(func() {
				if got := tokenOf(t, s); got != "token-2" {
					t.Errorf("got %q", got)
				}
			})
		}
		synctest.Wait()
		leaveToo(fault.New(fault.Timeout, "late"))
		synctest.Wait()
		leave(left)
		wg.Wait()
		if n := e.asked.Load(); n != 2 {
			t.Errorf("the endpoint was asked %d times", n)
		}
		if left.Unsent {
			t.Error("the cause of the context was changed")
		}
	})
}

// SPEC-TOOLS 5.2: dropped and fetched once more when the tool answers 401.
func TestOneRetryAfter401(t *testing.T) {
	for name, c := range map[string]struct {
		accepts  string // the token that the tool takes
		want     fault.Code
		attempts []string
	}{
		"the next token works": {"token-2", "", []string{"token-1", "token-2"}},
		"none works":           {"none", fault.AuthInvalid, []string{"token-1", "token-2"}},
		"the first works":      {"token-1", "", []string{"token-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := &endpoint{}
			s := source(auth.NewTokensOver(e), anyURL, store(pair(id, hidden)))
			var attempts []string
			err := s.Do(t.Context(), func(shown auth.Credentials) error {
				_, token := shown.Contract()
				attempts = append(attempts, token)
				if token != c.accepts {
					return fmt.Errorf("the service: %w", fault.New(fault.AuthInvalid, "401"))
				}
				return nil
			})
			if fault.CodeOf(err) != c.want || !slices.Equal(attempts, c.attempts) {
				t.Errorf("got %v after %v", err, attempts)
			}
		})
	}
}

// SPEC-TOOLS 6.3: a call that the tool has had is not one that never reached it, also if the second attempt is not made.
func TestT63ACallThatWasAnswered401WasSent(t *testing.T) {
	tokens := auth.NewTokensOver(&endpoint{})
	attempts := 0
	s := source(tokens, anyURL, store(pair(id, hidden)))
	err := s.Do(t.Context(), func(auth.Credentials) error {
		attempts++
		if attempts == 1 {
			return fault.New(fault.AuthInvalid, "401")
		}
		return fault.Unsent(fault.New(fault.NotReady, "the connection was refused"))
	})
	if attempts != 2 || fault.CodeOf(err) != fault.NotReady || fault.IsUnsent(err) {
		t.Errorf("after %d attempts: %v, unsent: %v", attempts, err, fault.IsUnsent(err))
	}
}

// A 401 of another profile, or another error, is not tried again here.
func TestOtherErrorsAreNotRepeated(t *testing.T) {
	e := &endpoint{}
	for _, c := range []struct {
		profile manifest.AuthProfile
		code    fault.Code
	}{
		{manifest.AuthBearer, fault.AuthInvalid},
		{manifest.AuthOAuth2, fault.AuthForbidden},
		{manifest.AuthOAuth2, fault.ExecutionFailed},
	} {
		a := profile(c.profile)
		a.TokenURL = anyURL
		values := pair(id, hidden)
		values["value"] = "a-token"
		s := auth.New(a, auth.Options{Secrets: store(values), Tokens: auth.NewTokensOver(e)})
		attempts := 0
		err := s.Do(t.Context(), func(auth.Credentials) error { attempts++; return fault.New(c.code, "no") })
		if fault.CodeOf(err) != c.code || attempts != 1 {
			t.Errorf("%s %s: got %v after %d attempts", c.profile, c.code, err, attempts)
		}
	}
}

// Many calls that are refused at the same time get one new token, not each its own.
func TestOneDropForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{answer: func(w http.ResponseWriter, _ *http.Request, n int64) {
			time.Sleep(time.Second)
			grant(w, n, 3600)
		}}
		s := source(auth.NewTokensOver(e), anyURL, store(pair(id, hidden)))
		tokenOf(t, s)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				err := s.Do(t.Context(), func(shown auth.Credentials) error {
					_, token := shown.Contract()
					time.Sleep(time.Second)
					if token == "token-1" {
						return fault.New(fault.AuthInvalid, "401")
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := e.asked.Load(); n != 2 {
			t.Errorf("the endpoint was asked %d times", n)
		}
	})
}

// What a token endpoint may do, over HTTP. None of it shows the secret.
func TestBadEndpoints(t *testing.T) {
	echo := func(r *http.Request) string {
		user, password, _ := r.BasicAuth()
		_ = r.ParseForm()
		return fmt.Sprintf("%s %s %s %s %s", user, password, r.Header.Get("Authorization"), r.PostForm.Get("client_secret"), hidden)
	}
	var sent atomic.Int64
	for name, c := range map[string]struct {
		answer    func(http.ResponseWriter, *http.Request, int64)
		retryable bool
		want      string
		asked     int64
	}{
		"invalid_client": {func(w http.ResponseWriter, _ *http.Request, _ int64) {
			refuse(w, 401, `{"error":"invalid_client","error_description":"no such client"}`)
		}, false, "401: invalid_client no such client", 2}, // in the header, and in the form
		"invalid_scope": {func(w http.ResponseWriter, _ *http.Request, _ int64) { refuse(w, 400, `{"error":"invalid_scope"}`) }, false, "400: invalid_scope", 1},
		"an echo": {func(w http.ResponseWriter, r *http.Request, _ int64) {
			body, _ := json.Marshal(map[string]string{"error": "invalid_scope", "error_description": echo(r)})
			refuse(w, 400, string(body))
		}, false, "[redacted]", 1},
		"an echo in plain text": {func(w http.ResponseWriter, r *http.Request, _ int64) { http.Error(w, echo(r), http.StatusForbidden) }, false, "answered 403", 1},
		"500":                   {func(w http.ResponseWriter, _ *http.Request, _ int64) { refuse(w, 500, "") }, true, "answered 500", 1},
		"503 with a long text": {func(w http.ResponseWriter, _ *http.Request, _ int64) {
			refuse(w, 503, `{"error":"temporarily_unavailable","error_description":"`+strings.Repeat("x", 100_000)+`"}`)
		}, true, "temporarily_unavailable xxx", 1},
		"429": {func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Retry-After", "3")
			refuse(w, 429, "")
		}, true, "answered 429", 1},
		"an error with 200": {func(w http.ResponseWriter, _ *http.Request, _ int64) { refuse(w, 200, `{"error":"access_denied"}`) }, false, "access_denied", 1},
		"HTML": {func(w http.ResponseWriter, r *http.Request, _ int64) {
			_, _ = io.WriteString(w, "<html>"+echo(r)+"</html>")
		}, false, "no token", 1},
		"nothing":     {func(http.ResponseWriter, *http.Request, int64) {}, false, "no token", 1},
		"half a JSON": {func(w http.ResponseWriter, r *http.Request, _ int64) { refuse(w, 200, `{"access_token":"`+echo(r)) }, false, "no token", 1},
		"no access_token": {func(w http.ResponseWriter, _ *http.Request, _ int64) {
			refuse(w, 200, `{"token_type":"Bearer","expires_in":3600}`)
		}, false, "no token", 1},
		"a token that is none": {func(w http.ResponseWriter, _ *http.Request, _ int64) {
			refuse(w, 200, `{"access_token":"a\r\nX-Evil: 1","expires_in":3600}`)
		}, false, "a bearer token cannot have", 1},
		"a token of many spellings": {func(w http.ResponseWriter, _ *http.Request, _ int64) { // SPEC S2
			refuse(w, 200, `{"access_token":"a<b&c","expires_in":3600}`)
		}, false, "a bearer token cannot have", 1},
		"a long token": {func(w http.ResponseWriter, _ *http.Request, _ int64) {
			refuse(w, 200, `{"access_token":"`+strings.Repeat("a", 20_000)+`","expires_in":3600}`)
		}, false, "a token of over 16384 bytes", 1},
		"a strange expires_in": {func(w http.ResponseWriter, _ *http.Request, _ int64) {
			refuse(w, 200, `{"access_token":"abc","expires_in":{}}`)
		}, false, "no token", 1},
		"1 GiB": {func(w http.ResponseWriter, _ *http.Request, _ int64) {
			block := []byte(strings.Repeat(" ", 1<<16))
			for sent.Load() < 1<<30 {
				n, err := w.Write(block)
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		}, false, "over", 1},
		"much, and no end": {func(w http.ResponseWriter, r *http.Request, _ int64) {
			_, _ = w.Write([]byte(strings.Repeat(" ", 1<<18)))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, false, "over", 1},
		"a redirect": {func(w http.ResponseWriter, r *http.Request, _ int64) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, false, "answered 307", 1},
		"a connection that ends": {func(http.ResponseWriter, *http.Request, int64) { panic(http.ErrAbortHandler) }, true, "could not be asked", 1},
		"a body that ends": {func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"access_token":`)
		}, true, "could not be asked", 1},
	} {
		t.Run(name, func(t *testing.T) {
			e := &endpoint{answer: c.answer}
			server := httptest.NewServer(e)
			defer server.Close()
			client := outbound.New(outbound.Options{})
			defer client.Close()
			s := source(auth.NewTokens(client), server.URL+"/token?key="+id, store(pair(id, hidden)))
			_, err := s.Credentials(t.Context())
			f := failing(t, err, c.retryable, id, hidden, "czNjcjN0", "s3cr3t", "c2VjcmV0")
			if !strings.Contains(f.Reason, c.want) || !strings.Contains(f.Reason, server.URL) || len(f.Error()) > 400 {
				t.Errorf("got %q, want it to say %q", f.Error(), c.want)
			}
			if n := e.asked.Load(); n != c.asked {
				t.Errorf("it was asked %d times, want %d", n, c.asked)
			}
			if name == "429" && f.RetryAfter != 3*time.Second {
				t.Errorf("to be asked again after %v", f.RetryAfter)
			}
			t.Log(f.Error())
		})
	}
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("%d bytes of 1 GiB were sent", n)
	}
}

// An endpoint that cannot be reached, and one that must not be.
func TestUnreachableEndpoints(t *testing.T) {
	client := outbound.New(outbound.Options{})
	defer client.Close()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	_, err := source(auth.NewTokens(client), server.URL, store(pair(id, hidden))).Credentials(t.Context())
	failing(t, err, true, hidden)
	_, err = source(auth.NewTokens(client), "http://169.254.169.254/token", store(pair(id, hidden))).Credentials(t.Context())
	if f := fault.From(err); f.Code != fault.RuntimePolicyInvalid || f.Retryable() || !f.Unsent {
		t.Errorf("got %v", err)
	}
}

// An endpoint that does not answer costs those who wait its own patience, not
// the whole of an attempt, and its failure is everybody's.
func TestSilentEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		s := source(auth.NewTokensOver(roundTripper(func(r *http.Request) (*http.Response, error) {
			asked++
			<-r.Context().Done()
			return nil, fault.From(context.Cause(r.Context()))
		})), anyURL, store(pair(id, hidden)))
		began := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				_, err := s.Credentials(t.Context())
				failing(t, err, true, hidden)
			})
		}
		wg.Wait()
		if took := time.Since(began); took != auth.Patience || asked != 1 {
			t.Errorf("it took %v, and %d questions", took, asked)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// An endpoint that wants to be told in the form is told so at once the next time.
func TestStyleIsRemembered(t *testing.T) {
	e := &endpoint{}
	e.answer = func(w http.ResponseWriter, r *http.Request, n int64) {
		if _, _, inHeader := r.BasicAuth(); inHeader || r.FormValue("client_secret") != hidden {
			refuse(w, http.StatusUnauthorized, `{"error":"invalid_client"}`)
			return
		}
		grant(w, n, 10) // asked for anew at each call
	}
	s := source(auth.NewTokensOver(e), anyURL, store(pair(id, hidden)))
	for _, want := range []string{"token-2", "token-3", "token-4"} {
		if got := tokenOf(t, s); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// An endpoint that wants to be told otherwise from some day on.
func TestStyleIsFoundOutAgain(t *testing.T) {
	var inForm atomic.Bool
	inForm.Store(true)
	e := &endpoint{}
	e.answer = func(w http.ResponseWriter, r *http.Request, n int64) {
		if _, _, inHeader := r.BasicAuth(); inHeader == inForm.Load() {
			refuse(w, http.StatusUnauthorized, `{"error":"invalid_client"}`)
			return
		}
		grant(w, n, 10)
	}
	s := source(auth.NewTokensOver(e), anyURL, store(pair(id, hidden)))
	tokenOf(t, s)
	inForm.Store(false)
	_, err := s.Credentials(t.Context())
	failing(t, err, false, hidden)
	tokenOf(t, s)
}

// A panic under way leaves nobody waiting.
func TestPanicReleasesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{}
		s := source(auth.NewTokensOver(roundTripper(func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			if e.asked.Load() == 0 {
				e.asked.Add(1)
				panic("planned")
			}
			return e.RoundTrip(r)
		})), anyURL, store(pair(id, hidden)))
		var wg sync.WaitGroup
		wg.Go(func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_, _ = s.Credentials(t.Context())
		})
		synctest.Wait()
		wg.Go(func() {
			_, err := s.Credentials(t.Context())
			failing(t, err, true, hidden)
		})
		wg.Wait()
		tokenOf(t, s)
	})
}

// SPEC-TOOLS 5.3: a client secret that is rotated counts from the next attempt on.
func TestClientSecretIsRotated(t *testing.T) {
	var accepted atomic.Value
	accepted.Store(hidden)
	e := &endpoint{answer: func(w http.ResponseWriter, r *http.Request, n int64) {
		_, password, _ := r.BasicAuth()
		if got, err := url.QueryUnescape(password); err != nil || got != accepted.Load() {
			refuse(w, http.StatusUnauthorized, `{"error":"invalid_client"}`)
			return
		}
		grant(w, n, 3600)
	}}
	secrets := store(pair(id, hidden))
	s := source(auth.NewTokensOver(e), anyURL, secrets)
	first := tokenOf(t, s)
	accepted.Store("rotated secret")
	set(secrets, pair(id, "rotated secret"))
	if got := tokenOf(t, s); got == first {
		t.Errorf("still %q", got)
	}
	set(secrets, pair(id, "wrong secret"))
	_, err := s.Credentials(t.Context())
	failing(t, err, false, "wrong secret")
	set(secrets, map[string]string{"client_id": id})
	_, err = s.Credentials(t.Context())
	failing(t, err, false)
	set(secrets, pair("", hidden))
	_, err = s.Credentials(t.Context())
	failing(t, err, false, hidden)
}

// However many grants there are, what is kept is bounded, and what is used stays.
func TestTokensAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{}
		tokens := auth.NewTokensOver(e)
		secrets := store(pair(id, hidden))
		used := source(tokens, anyURL, secrets, "used")
		first := tokenOf(t, used)
		for n := range 3 * auth.MaxTokens {
			time.Sleep(time.Millisecond)
			tokenOf(t, source(tokens, anyURL, secrets, fmt.Sprint(n)))
			if got := tokenOf(t, used); got != first {
				t.Fatalf("what is used was forgotten after %d others", n)
			}
		}
		if n := tokens.Kept(); n > auth.MaxTokens {
			t.Errorf("%d are kept", n)
		}
	})
}
