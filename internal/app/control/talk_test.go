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
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/control"
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
