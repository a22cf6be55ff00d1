package webhook_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/kind/webhook"
	"github.com/orla-project/orla/internal/mcp/peer"
)

// SPEC-TOOLS 3.4: the id of a request is a secret of its service. That of the call is in the log before the call has ended: in
// the line of an attempt.
func TestT34WhoReadsTheLogAnswersNoCall(t *testing.T) {
	set := newSetup(t)
	set.callbacks = webhook.NewCallbacks()
	base := listen(t, set.callbacks)
	s := serve(t, answer{status: 202}, answer{status: 202})
	tool := set.build(t, described(s.URL))
	tool.Hurry(time.Hour, time.Hour, time.Hour)
	sent := map[string]bool{}
	for attempt := 1; attempt <= 2; attempt++ {
		ended := make(chan error, 1)
		go func() {
			_, err := call(t, tool, peer.Call{Attempt: attempt})
			ended <- err
		}()
		for set.callbacks.Waiting() == 0 || len(s.requests()) < attempt {
			<-time.After(time.Millisecond)
		}
		var said struct {
			ID string `json:"request_id"`
		}
		if err := json.Unmarshal([]byte(s.requests()[attempt-1].body), &said); err != nil || !strings.HasPrefix(said.ID, id+"-") || len(said.ID) < len(id)+20 {
			t.Fatalf("the request has the id %q: %v", said.ID, err)
		}
		sent[said.ID] = true
		envelope := strings.Replace(success, id, said.ID, 1)
		for other, body := range map[string]string{id: success, id + "-": envelope, said.ID[:len(said.ID)-1]: envelope} {
			if status := pushTo(t, base+"/callbacks/"+other, body); status != http.StatusNotFound {
				t.Errorf("%s: %d", other, status)
			}
		}
		if status := pushTo(t, base+"/callbacks/"+said.ID, envelope); status != http.StatusNoContent {
			t.Errorf("%s: %d", said.ID, status)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if len(sent) != 1 {
		t.Errorf("the attempts of a call have %d ids", len(sent))
	}
}

func pushTo(t *testing.T, at, body string) int {
	t.Helper()
	resp, err := http.Post(at, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // it was not read
	return resp.StatusCode
}
