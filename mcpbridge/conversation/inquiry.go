package conversation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// inquiry is the questions of a peer to the client of a conversation.
type inquiry struct {
	asked chan struct{} // holds a token when there is a new question

	mu      sync.Mutex // guards the fields that follow
	open    Request    // the request that is being answered; nil while the peer is kept waiting
	pending []*question
	given   map[string]json.RawMessage // answers in the open request to questions that have not been asked yet
	serial  int
}

// question waits for the client's answer.
type question struct {
	id     string
	method string
	params json.RawMessage
	answer chan json.RawMessage // has room for the answer; nil refuses the question
}

func (i *inquiry) current() Request {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.open
}

// put adds a question to be asked. Its id is name, if that is not "" and not in use, and else a new one. If the
// client has answered it already, put returns the answer instead.
func (i *inquiry) put(q *question, name string) (given json.RawMessage) {
	i.mu.Lock()
	defer i.mu.Unlock()
	used := func(id string) bool {
		return slices.ContainsFunc(i.pending, func(p *question) bool { return p.id == id })
	}
	if q.id = name; name == "" || used(name) {
		for q.id = ""; q.id == "" || used(q.id); {
			i.serial++
			q.id = fmt.Sprint("question-", i.serial)
		}
	} else if given = i.given[name]; given != nil {
		delete(i.given, name)
		return given
	}
	i.pending = append(i.pending, q)
	return nil
}

func (i *inquiry) drop(q *question) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pending = slices.DeleteFunc(i.pending, func(p *question) bool { return p == q })
}

// reply passes answers to the questions, and keeps the others for questions that come while
// the request is open. A question without an answer is asked again, and so is one whose answer
// is not an object, which no result of a client can be.
func (i *inquiry) reply(answers map[string]json.RawMessage) {
	maps.DeleteFunc(answers, func(_ string, raw json.RawMessage) bool { return !rawjson.IsObject(raw) })
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pending = slices.DeleteFunc(i.pending, func(q *question) bool {
		raw, ok := answers[q.id]
		if ok {
			q.answer <- raw
			delete(answers, q.id)
		}
		return ok
	})
	i.given = answers
}

// questions returns the open questions as inputRequests; nil if there are none.
func (i *inquiry) questions() json.RawMessage {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.pending) == 0 {
		return nil
	}
	out := wire.Parts{}
	before := []byte("{")
	for _, q := range i.pending {
		out = append(out, before, rawjson.Quote(q.id), []byte(`:{"method":`), rawjson.Quote(q.method), []byte(`,"params":`), q.params, []byte("}"))
		before = []byte(",")
	}
	return append(out, []byte("}")).Join()
}

// refuseAll ends all open questions without an answer.
func (i *inquiry) refuseAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, q := range i.pending {
		q.answer <- nil
	}
	i.pending = nil
}

// attach makes r the request that is being answered; nil for none.
func (i *inquiry) attach(r Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.open, i.given = r, nil
}
