package control

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// CallEvent is one line of the stream of a call. It has one member.
type CallEvent struct {
	Progress json.RawMessage `json:"progress,omitempty" jsonschema:"The params of a notifications/progress of the tool."`
	Question Question        `json:"question,omitzero" jsonschema:"The tool asks the person who made the call."`
	Answered string          `json:"answered,omitempty" jsonschema:"The id of a question that is over."`
	Result   json.RawMessage `json:"result,omitempty" jsonschema:"The answer, a CallToolResult; the last line."`
	Error    Error           `json:"error,omitzero" jsonschema:"Why there is no answer; the last line."`
}

// Question is an elicitation of a tool.
type Question struct {
	ID     string          `json:"id" jsonschema:"Its id, for the answer."`
	Params json.RawMessage `json:"params" jsonschema:"The params of the elicitation/create: message and requestedSchema."`
}

// QuestionAnswer is the answer to a Question: an ElicitResult.
type QuestionAnswer struct {
	Action  string          `json:"action" jsonschema:"accept, decline or cancel."`
	Content json.RawMessage `json:"content,omitempty" jsonschema:"With accept, an object as the question's requestedSchema has it."`
}

// maxQuestions bounds the questions that wait for an answer. A browser has a quarter at most.
const maxQuestions = 256

// questions are those that wait for an answer.
type questions struct {
	places *turns.Shares // of maxQuestions
	open   sync.Map      // of chan json.RawMessage, by their ids
}

// ask opens a question; nil if there are too many. Otherwise the place is to be given back.
func (q *questions) ask(of turns.Owner) (id string, answer chan json.RawMessage) {
	if !q.places.Try(of, 1) {
		return "", nil
	}
	id, answer = rand.Text(), make(chan json.RawMessage, 1)
	q.open.Store(id, answer)
	return id, answer
}

// take closes a question. It returns nil if that was done before.
func (q *questions) take(id string) chan json.RawMessage {
	open, _ := q.open.LoadAndDelete(id)
	answer, _ := open.(chan json.RawMessage)
	return answer
}

// caller is the peer.Client of a call whose answer is a stream.
type caller struct {
	asking *questions
	owner  turns.Owner // whose session is that of the browser, if there is one

	mu   sync.Mutex // guards the fields that follow, and the order of lines
	w    http.ResponseWriter
	over bool
}

// write writes an event. It does nothing after the last one.
func (c *caller) write(event CallEvent, last bool) {
	line, err := json.Marshal(event)
	if err != nil { // a result that is not JSON
		line, last = []byte(`{"error":{"code":"internal","message":"the answer is not JSON"}}`), true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.over = last
	control := http.NewResponseController(c.w)
	_ = control.SetWriteDeadline(time.Now().Add(stallTimeout)) // what net/http gives us can
	if _, err := c.w.Write(append(line, '\n')); err != nil || control.Flush() != nil {
		c.over = true // the client is gone
	}
}

// Session implements peer.Client.
func (c *caller) Session() string { return c.owner.Session }

// Owner implements peer.Client.
func (c *caller) Owner() turns.Owner { return c.owner }

// Hears implements peer.Client.
func (*caller) Hears() bool { return true }

// WantsProgress implements peer.Client.
func (*caller) WantsProgress() bool { return true }

// Declared implements peer.Client.
func (*caller) Declared() peer.Declared {
	return peer.Declared{Capabilities: json.RawMessage(`{"elicitation":{"form":{}}}`), Waits: true}
}

// Notify implements peer.Client.
func (c *caller) Notify(_ context.Context, method string, params json.RawMessage) {
	if method == "notifications/progress" {
		c.write(CallEvent{Progress: params}, false)
	}
}

// Ask implements peer.Client. Orla's own questions, which decide about approvals, are not for this client: any program
// of the same user could answer them.
func (c *caller) Ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	refused := func(why string) (json.RawMessage, error) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: why}
	}
	if method != "elicitation/create" {
		return refused("the console does not take " + method)
	}
	if rawjson.Get(rawjson.Get(params, "_meta"), "orla/name") != nil {
		return refused("the console cannot decide about approvals")
	}
	id, answer := c.asking.ask(c.owner)
	if answer == nil {
		return refused("too many questions wait for an answer")
	}
	defer func() {
		c.asking.take(id)
		c.asking.places.Give(c.owner, 1)
		c.write(CallEvent{Answered: id}, false)
	}()
	c.write(CallEvent{Question: Question{ID: id, Params: params}}, false)
	select {
	case said := <-answer:
		return said, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// callStreaming answers a call with a stream.
func (s *Server) callStreaming(w http.ResponseWriter, r *http.Request, by Caller, asked CallRequest) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush() // then the first line tells
	c := &caller{asking: &s.questions, owner: turns.Owner{Caller: by.Name, Session: Page + " " + turns.OwnerIn(r.Context()).Session}, w: w}
	result, err := s.opts.Backend.Call(r.Context(), by, r.PathValue("name"), asked.Arguments, c)
	if err != nil {
		c.write(CallEvent{Error: *asError(err)}, true)
		return
	}
	c.write(CallEvent{Result: result}, true)
}

// answer answers a question of a call.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) (any, error) {
	var said QuestionAnswer
	if err := s.read(w, r, &said); err != nil {
		return nil, err
	}
	if _, err := oneOf(said.Action, []string{"accept", "decline", "cancel"}); err != nil {
		return nil, &Error{Code: CodeBadRequest, Message: "action: " + err.Error()}
	}
	if said.Action == "accept" != rawjson.IsObject(said.Content) {
		return nil, &Error{Code: CodeBadRequest, Message: "content: must be an object if action is accept, and absent otherwise"}
	}
	raw, err := json.Marshal(said)
	if err != nil { // content is JSON
		return nil, err
	}
	waiting := s.questions.take(r.PathValue("id"))
	if waiting == nil {
		return nil, &Error{Code: CodeNotFound, Message: "this question was answered, or is over"}
	}
	waiting <- raw
	return struct{}{}, nil
}
