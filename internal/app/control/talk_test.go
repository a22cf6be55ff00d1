package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
)

// asks is a tool that tells of its progress, asks what its arguments say, and answers with the answer.
func asks(client peer.Client, params json.RawMessage) (json.RawMessage, error) {
	client.Notify(context.Background(), "notifications/message", json.RawMessage(`{}`)) // is not wanted
	client.Notify(context.Background(), "notifications/progress", json.RawMessage(`{"progress":1}`))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	said, err := client.Ask(ctx, "elicitation/create", params)
	if err != nil {
		said = json.RawMessage(fmt.Sprintf("%q", err))
	}
	return json.RawMessage(`{"said":` + string(said) + `}`), nil
}

// asksMany asks as many questions at once as one browser may have open, and one more.
func asksMany(client peer.Client) (json.RawMessage, error) {
	ctx, cancel := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	refused := make(chan struct{})
	for range 65 {
		asking.Go(func() {
			if _, err := client.Ask(ctx, "elicitation/create", json.RawMessage(`{}`)); ctx.Err() == nil && err != nil {
				refused <- struct{}{}
			}
		})
	}
	<-refused
	cancel()
	asking.Wait()
	return json.RawMessage(`{}`), nil
}

// O2: the stream of a call has progress and questions, whose answers the tool gets. Nobody can answer Orla's own
// questions there, which decide about approvals.
func TestO2AQuestionIsAnsweredInTheStream(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(control.New(control.Options{Backend: newBackend(), MaxRequest: 1 << 20, Log: slog.New(slog.DiscardHandler)}).PageAPI())
	t.Cleanup(api.Close)
	ask := func(path, body string) (int, io.ReadCloser) {
		t.Helper()
		resp, err := http.Post(api.URL+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Body
	}
	stream := func(params string, answers ...string) (events []control.CallEvent) {
		t.Helper()
		_, body := ask("/v1/tools/asks/call", `{"stream":true,"arguments":`+params+`}`)
		defer func() { _ = body.Close() }()
		for lines := json.NewDecoder(body); ; {
			var e control.CallEvent
			if err := lines.Decode(&e); err != nil {
				return events
			}
			events = append(events, e)
			if e.Question.ID != "" {
				for _, answer := range answers {
					status, said := ask("/v1/questions/"+e.Question.ID, answer)
					text, _ := io.ReadAll(said)
					_ = said.Close()
					if good := answer == answers[len(answers)-1]; good != (status == http.StatusOK) {
						t.Errorf("the answer %s: %d %s", answer, status, text)
					}
				}
			}
		}
	}
	events := stream(`{"message":"M"}`, `{"action":"accept"}`, `{"action":"maybe"}`, `{"action":"decline","content":{}}`, `{"action":"accept","content":[]}`, `{"action":"accept","content":{"n":12345678901234567890123}}`)
	if len(events) != 4 || string(events[0].Progress) != `{"progress":1}` || string(events[1].Question.Params) != `{"message":"M"}` || events[2].Answered != events[1].Question.ID ||
		string(events[3].Result) != `{"said":{"action":"accept","content":{"n":12345678901234567890123}}}` {
		t.Errorf("the stream has %+v", events)
	}
	status, again := ask("/v1/questions/"+events[1].Question.ID, `{"action":"cancel"}`)
	if _ = again.Close(); status != http.StatusNotFound {
		t.Errorf("a second answer: %d", status)
	}
	events = stream(`{"_meta":{"orla/name":"ap-1"},"message":"Approve this call?"}`, `{"action":"accept","content":{"decision":"approve"}}`)
	if len(events) != 2 || !strings.Contains(string(events[1].Result), "cannot decide about approvals") {
		t.Errorf("a question of Orla itself: %+v", events)
	}
	_, body := ask("/v1/tools/absent/call", `{"stream":true}`)
	defer func() { _ = body.Close() }()
	var last control.CallEvent
	if err := json.NewDecoder(body).Decode(&last); err != nil || last.Error.Code == "" {
		t.Errorf("a call of an absent tool: %+v %v", last, err)
	}
}

// SPEC N2, D8: each browser is a client of its own for a tool that asks without saying whom (docs/decisions/0030), and one caller does not
// take all places of questions.
func TestN2BrowsersAreSeparateClients(t *testing.T) {
	t.Parallel()
	api := control.New(control.Options{Backend: newBackend(), MaxRequest: 1 << 20, Log: slog.New(slog.DiscardHandler)}).PageAPI()
	queue := turns.NewAging(turns.NoLimit, 1, time.Hour)
	call := func(caller, session, tool, arguments string) string {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/v1/tools/"+tool+"/call", strings.NewReader(`{"stream":true,"arguments":`+arguments+`}`))
		ctx := queue.In(control.WithCaller(r.Context(), control.Caller{Name: caller}), turns.Owner{Caller: caller, Session: session})
		api.ServeHTTP(w, r.WithContext(ctx))
		return w.Body.String()
	}
	seen := map[string]bool{}
	for _, by := range [][2]string{{"ada", "1"}, {"ada", "2"}, {"bob", "3"}} {
		seen[call(by[0], by[1], "who", "{}")] = true
	}
	if len(seen) != 3 {
		t.Errorf("three browsers are the clients %v", seen)
	}
	for range 2 {
		if n := strings.Count(call("ada", "1", "many", "{}"), `"question"`); n != 64 {
			t.Errorf("one caller has %d questions at one time", n)
		}
	}
}
