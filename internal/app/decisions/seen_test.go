package decisions_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/app/decisions"
	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/manifest"
)

// SPEC O3: a viewer does not see the files of tools, which have what somebody has written into them.
func TestO3AViewerSeesNoFilesOfTools(t *testing.T) {
	handler := (&decisions.Decisions{}).Page(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	for role, want := range map[string]int{decisions.Viewer: http.StatusForbidden, decisions.Operator: http.StatusOK, decisions.Approver: http.StatusOK} {
		for _, path := range []string{"/v1/manifests/a", "/v1/%6Danifests/a"} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r.WithContext(decisions.With(r.Context(), &decisions.Visitor{Name: "v", Roles: []string{role}})))
			if w.Code != want {
				t.Errorf("%s, %s: %d, want %d", role, path, w.Code, want)
			}
		}
	}
}

// SPEC O3: a viewer sees that calls wait, and how large they are, and not their arguments, nor how they differ from earlier ones.
func TestO3AViewerSeesNoArgumentsOfCallsThatWait(t *testing.T) {
	store, err := approvals.Open(approvals.Options{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	ask := func(secret string) approvals.Record {
		t.Helper()
		r, _, err := store.Ask(approvals.Question{
			Caller: "ci", Tool: "wipe", Args: json.RawMessage(`{"key":"` + secret + `"}`), Input: json.RawMessage(`{"answer":"` + secret + `"}`),
			Policy: "1", Approvers: []manifest.Approver{manifest.ApproverOperator},
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := ask("hidden-1")
	if _, err := store.Decide(first.ID, approvals.Decision{Approve: true, By: "root", How: manifest.ApproverOperator}); err != nil {
		t.Fatal(err)
	}
	waits := ask("hidden-2")
	handler := (&decisions.Decisions{Store: func() *approvals.Store { return store }}).Page(http.NotFoundHandler())
	for role, sees := range map[string]bool{decisions.Viewer: false, decisions.Operator: true, decisions.Approver: true} {
		r := httptest.NewRequest(http.MethodGet, "/v1/approvals/"+waits.ID, nil)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r.WithContext(decisions.With(r.Context(), &decisions.Visitor{Name: "v", Roles: []string{role}})))
		if text := w.Body.String(); w.Code != http.StatusOK || !strings.Contains(text, waits.ID) || strings.Contains(text, "hidden-2") != sees || strings.Contains(text, "hidden-1") != sees || !strings.Contains(text, `"input_bytes":21`) {
			t.Errorf("%s: %d %s", role, w.Code, text)
		}
	}
}
