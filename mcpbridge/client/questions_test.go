package client

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/orla-project/orla/mcpbridge/wire"
)

// asked is a client that keeps the ids of its questions.
type asked struct {
	Outlet
	ids chan json.RawMessage
}

func (a asked) Tell(_ context.Context, message json.RawMessage) error {
	var m struct{ ID json.RawMessage }
	if err := json.Unmarshal(message, &m); err != nil {
		return err
	}
	if m.ID != nil { // else it is told that a question was given up
		a.ids <- m.ID
	}
	return nil
}

// SPEC Q2: a session goes on in another process. The client's late answer to a question of the
// process before reaches no other question.
func TestQ2ALateAnswerReachesNoOtherQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		to := asked{ids: make(chan json.RawMessage, 1)}
		answers := make(chan json.RawMessage, 2)
		ask := func(s *Session) json.RawMessage {
			go func() {
				answer, _ := s.Questions.Ask(ctx, slog.New(slog.DiscardHandler), to, "elicitation/create", nil)
				answers <- answer
			}()
			return <-to.ids
		}
		before, after := New("x"), New("x") // one session, in two processes
		late, id := ask(before), ask(after)
		after.Questions.Answer(&wire.Message{ID: late, Result: json.RawMessage(`"late"`)})
		after.Questions.Answer(&wire.Message{ID: id, Result: json.RawMessage(`"right"`)})
		if got := string(<-answers); got != `"right"` {
			t.Errorf("question %s got the answer %s; the question of the process before had id %s", id, got, late)
		}
		cancel()
		<-answers
	})
}
