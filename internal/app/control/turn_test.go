package control_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/call/turns"
)

// slow is a backend that takes a second to say what there is.
type slow struct {
	*backend
	asked, now, most atomic.Int64
}

func (s *slow) Status() control.Status {
	s.asked.Add(1)
	s.most.Store(max(s.most.Load(), s.now.Add(1)))
	defer s.now.Add(-1)
	time.Sleep(time.Second)
	return control.Status{Version: "v1"}
}

// stuck is a client that reads nothing until it ends.
type stuck struct {
	*httptest.ResponseRecorder
	ends <-chan struct{}
}

func (s stuck) Write(p []byte) (int, error) {
	<-s.ends
	return s.ResponseRecorder.Write(p)
}

// S2, N2: of the answers that have all tools two are made at once, however many are asked for. Clients that do not read keep
// nobody's place, and whoever leaves meanwhile is not answered.
func TestN2LargeAnswersAreMadeInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{backend: newBackend()}
		page := control.New(control.Options{Backend: s, MaxRequest: 1 << 10, Log: slog.New(slog.DiscardHandler)}).PageAPI()
		ask := func(ctx context.Context, w http.ResponseWriter) {
			page.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/status", nil))
		}
		end := make(chan struct{})
		var asking sync.WaitGroup
		began := time.Now()
		for range 8 {
			w := stuck{httptest.NewRecorder(), end}
			asking.Go(func() { ask(t.Context(), w) })
		}
		synctest.Wait() // two are being made
		left, leave := context.WithCancel(t.Context())
		asking.Go(func() { ask(left, httptest.NewRecorder()) })
		synctest.Wait()
		leave()
		last := httptest.NewRecorder()
		ask(t.Context(), last)
		if took := time.Since(began); took != 5*time.Second || s.most.Load() != 2 || s.asked.Load() != 9 {
			t.Errorf("9 answers were made in %v, %d at once; %d were asked for", took, s.most.Load(), s.asked.Load())
		}
		if got := last.Body.String(); last.Code != http.StatusOK || got == "" || got[len(got)-1] != '\n' {
			t.Errorf("the answer: %d %q", last.Code, got)
		}
		close(end)
		asking.Wait()
	})
}

// starting is a backend with a tool that takes a minute to say what it offers.
type starting struct{ *backend }

func (s starting) Tools(ctx context.Context) []control.ListedTool {
	time.Sleep(time.Minute)
	return s.backend.Tools(ctx)
}

// O1, N2: who lists all tools waits for those that start, and keeps nobody from seeing the status meanwhile.
func TestN2StatusDoesNotWaitForTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := control.New(control.Options{Backend: starting{newBackend()}, MaxRequest: 1 << 10, Log: slog.New(slog.DiscardHandler)}).PageAPI()
		ask := func(path string) int {
			w := httptest.NewRecorder()
			page.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			return w.Code
		}
		var listing sync.WaitGroup
		for range 3 {
			listing.Go(func() {
				if code := ask("/v1/tools"); code != http.StatusOK {
					t.Errorf("the tools: %d", code)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		if code, took := ask("/v1/status"), time.Since(began); code != http.StatusOK || took > 0 {
			t.Errorf("the status: %d, after %v", code, took)
		}
		listing.Wait()
	})
}

// verifying is a backend that checks its audit log until it may end.
type verifying struct {
	*backend
	may <-chan struct{}
}

func (v verifying) VerifyAudit(ctx context.Context) (control.AuditReport, error) {
	<-v.may
	return v.backend.VerifyAudit(ctx)
}

// SPEC N2: who has the audit log checked keeps nobody else from it.
func TestN2EachCallerHasTheAuditLogChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		may := make(chan struct{})
		page := control.New(control.Options{Backend: verifying{newBackend(), may}, MaxRequest: 1 << 10, Log: slog.New(slog.DiscardHandler)}).PageAPI()
		queue := turns.NewAging(turns.NoLimit, 1, time.Hour)
		check := func(caller, session string) *httptest.ResponseRecorder {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/audit/verify", nil)
			page.ServeHTTP(w, r.WithContext(queue.In(r.Context(), turns.Owner{Caller: caller, Session: session})))
			return w
		}
		var checking sync.WaitGroup
		for _, caller := range []string{"ann", "bob"} {
			checking.Go(func() {
				if w := check(caller, "1"); w.Code != http.StatusOK {
					t.Errorf("%s: %d %s", caller, w.Code, w.Body)
				}
			})
		}
		synctest.Wait()
		for _, session := range []string{"1", "2"} {
			if w := check("ann", session); w.Code != http.StatusConflict {
				t.Errorf("the second of one caller: %d %s", w.Code, w.Body)
			}
		}
		close(may)
		checking.Wait()
		if w := check("ann", "2"); w.Code != http.StatusOK {
			t.Errorf("after the first one: %d %s", w.Code, w.Body)
		}
	})
}
