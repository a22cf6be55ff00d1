package conversation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// request is a Request of a client. It notes what a conversation does with it.
type request struct {
	owner    turns.Owner
	refuses  error
	progress bool
	notified []string
	asking   atomic.Int32 // questions that count now
	asked    atomic.Int32 // that ever counted
}

func (r *request) Session() string    { return r.owner.Session }
func (r *request) Owner() turns.Owner { return r.owner }
func (r *request) Hears() bool        { return false }
func (r *request) Declared() peer.Declared {
	return peer.Declared{LogLevel: "level of " + r.owner.Session}
}
func (r *request) WantsProgress() bool { return r.progress }
func (r *request) Notify(_ context.Context, m string, _ json.RawMessage) {
	r.notified = append(r.notified, m)
}
func (r *request) Refuses(string) error { return r.refuses }
func (r *request) Ask(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	return nil, errors.New("not by a request of its own")
}

func (r *request) Asking() (answered func()) {
	r.asking.Add(1)
	r.asked.Add(1)
	return func() { r.asking.Add(-1) }
}

func by(caller string) *request { return &request{owner: turns.Owner{Caller: caller, Session: caller}} }

const room = 1 << 30

// table is a Table with its log.
type table struct {
	*Table
	log bytes.Buffer
}

func tabled() *table {
	t := &table{}
	t.Table = New(Options{Replica: "r1.", Self: json.RawMessage(`{"name":"orla"}`), Room: turns.NewRoom(room), Log: slog.New(slog.NewTextHandler(&t.log, nil))})
	return t
}

// empty checks that nothing is kept or counted.
func (t *table) empty(tb testing.TB, after string) {
	tb.Helper()
	synctest.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) != 0 || len(t.parked) != 0 || t.shares.Taken() != 0 || t.bytes.Taken() != 0 || t.running.Open() != 0 || t.opts.Room.Free() != room {
		tb.Errorf("after %s: %d in all, %d wait and %d count, with %d bytes; %d work; %d bytes of answers are free",
			after, len(t.all), len(t.parked), t.shares.Taken(), t.bytes.Taken(), t.running.Open(), t.opts.Room.Free())
	}
}

var call = results.Asking{Client: "ann", Method: "tools/call", Name: "echo"}

// round is an answer of a Table.
type round struct {
	State     string `json:"requestState"`
	Questions map[string]struct {
		Method string
		Params json.RawMessage
	} `json:"inputRequests"`
	text    string // the whole of it
	release func()
	err     *jsonrpc.Error
}

// names are those of the questions.
func (r round) names() string { return strings.Join(slices.Sorted(maps.Keys(r.Questions)), " ") }

// answer answers one request of a client.
func (t *table) answer(ctx context.Context, r Request, state, answers string, do Work) round {
	p := wire.Params{Raw: json.RawMessage(`{"a":1}`), Responses: json.RawMessage(answers)}
	if state != "" {
		p.State = json.RawMessage(fmt.Sprintf("%q", state))
	}
	return t.answerTo(ctx, r, p, call, do)
}

func (t *table) answerTo(ctx context.Context, r Request, p wire.Params, of results.Asking, do Work) round {
	got, release, err := t.Answer(ctx, r, p, of, do)
	said := round{text: string(got.Join()), release: release, err: err}
	_ = json.Unmarshal(got.Join(), &said) // of questions alone
	return said
}

// asks is a Work that asks one question and answers with what it got.
func asks(params string) Work {
	return func(ctx context.Context, c peer.Client) (wire.Parts, *jsonrpc.Error) {
		return ask(ctx, c, params), nil
	}
}

func ask(ctx context.Context, c peer.Client, params string) wire.Parts {
	raw, err := c.Ask(ctx, "elicitation/create", json.RawMessage(params))
	if err != nil {
		return wire.Parts{[]byte(err.Error())}
	}
	return wire.Parts{raw}
}

func named(name string) string { return `{"_meta":{"orla/name":"` + name + `"}}` }

// SPEC D8: questions that come within a moment of the one before go together, and wait no longer than that.
func TestD8QuestionsThatBelongTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, r := tabled(), by("ann")
		var all sync.WaitGroup
		began := time.Now()
		got := tb.answer(t.Context(), r, "", "", func(ctx context.Context, c peer.Client) (wire.Parts, *jsonrpc.Error) {
			for i, after := range []time.Duration{0, together - 1, together - 1, 2 * together} {
				time.Sleep(after)
				all.Go(func() { ask(ctx, c, named(fmt.Sprint("q", i))) })
			}
			all.Wait()
			return wire.Parts{[]byte("done")}, nil
		})
		if took := time.Since(began); got.names() != "q0 q1 q2" || took != 3*together-2 {
			t.Errorf("asked %q after %s", got.names(), took)
		}
		if !strings.HasPrefix(got.State, results.HeldPrefix+"r1.") || !strings.Contains(got.text, `"resultType":"input_required","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"orla"}}`) || got.release != nil {
			t.Errorf("asked as %s", got.text)
		}
		if got = tb.answer(t.Context(), r, got.State, `{"q0":{},"q1":{},"q2":{}}`, nil); got.names() != "q3" {
			t.Errorf("asked %q then", got.names())
		}
		began = time.Now()
		got = tb.answer(t.Context(), r, got.State, `{"q3":{}}`, nil)
		if took := time.Since(began); took != 0 {
			t.Errorf("without a question, the answer took %s", took)
		}
		if got.text != "done" || got.release == nil || r.asked.Load() != 4 || r.asking.Load() != 0 {
			t.Fatalf("answered %s; %d questions counted, and %d still do", got.text, r.asked.Load(), r.asking.Load())
		}
		got.release()
		tb.empty(t, "the answer")
	})
}

// SPEC D8: an answer gets to the question that it is for, whatever peers call their questions.
func TestD8AnAnswerIsOfOneQuestion(t *testing.T) {
	for _, c := range []struct {
		questions []string // their names
		early     string   // the client's answers before it is asked
		first     string   // what is asked
		answers   string
		then      string // what is asked after that; "" for nothing
		want      string // what the questions get, if nothing is
	}{
		{[]string{"", ""}, "", "question-1 question-2", `{"question-2":{"n":2},"question-1":{"n":1}}`, "", `{"n":1}{"n":2}`},
		{[]string{"a", "b"}, "", "a b", `{"b":{"n":2},"a":{"n":1}}`, "", `{"n":1}{"n":2}`},
		{[]string{"a", "a"}, "", "a question-1", `{"a":{"n":1},"question-1":{"n":2}}`, "", `{"n":1}{"n":2}`},
		{[]string{"question-1", ""}, "", "question-1 question-2", `{"question-1":{"n":1},"question-2":{"n":2}}`, "", `{"n":1}{"n":2}`},
		{[]string{"question-2", "", ""}, "", "question-1 question-2 question-3", `{"question-1":{"n":1},"question-2":{"n":2},"question-3":{"n":3}}`, "", `{"n":2}{"n":1}{"n":3}`},
		{[]string{"a", "b"}, "", "a b", `{"a":{}}`, "b", ""},
		{[]string{"a", "b"}, "", "a b", `{"a":"text","b":[]}`, "a b", ""},
		{[]string{"a", "b"}, "", "a b", `[]`, "a b", ""},
		{[]string{"a", "b"}, `{"a":{"n":1}}`, "b", `{"b":{"n":2}}`, "", `{"n":1}{"n":2}`},
		{[]string{"a", "a"}, `{"a":{"n":1}}`, "a", `{"a":{"n":2}}`, "", `{"n":1}{"n":2}`},
		{[]string{"a", ""}, `{"a":7,"":{},"question-1":{}}`, "a question-1", `{}`, "a question-1", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			tb, r := tabled(), by("ann")
			got := tb.answer(t.Context(), r, "", c.early, func(ctx context.Context, v peer.Client) (wire.Parts, *jsonrpc.Error) {
				var all sync.WaitGroup
				said := make(wire.Parts, len(c.questions))
				for i, name := range c.questions {
					time.Sleep(time.Nanosecond) // so that they come in this order
					params := named(name)
					if name == "" {
						params = ""
					}
					all.Go(func() { said[i] = ask(ctx, v, params).Join() })
				}
				all.Wait()
				return said, nil
			})
			if got.names() != c.first {
				t.Errorf("%q, of which %s are answered: asked %q, want %q", c.questions, c.early, got.names(), c.first)
			}
			for name, q := range got.Questions {
				if q.Method != "elicitation/create" || string(q.Params) != "{}" && string(q.Params) != named(name) && c.questions[0] != c.questions[1] {
					t.Errorf("%s is asked as %s %s", name, q.Method, q.Params)
				}
			}
			got = tb.answer(t.Context(), r, got.State, c.answers, nil)
			if got.names() != c.then || c.then == "" && got.text != c.want {
				t.Errorf("%q got %s: asked %q, answered %s; want %q, %s", c.questions, c.answers, got.names(), got.text, c.then, c.want)
			}
			tb.Close(errors.New("over"))
		})
	}
}

// SPEC D8: an answer is for one question, and one that comes early is for questions of that request.
func TestD8AnswersAreNotKept(t *testing.T) {
	for name, c := range map[string]struct {
		early string
		then  time.Duration // when the second question comes after the first, or after the answer to that
		both  bool          // it does not wait for that
		names [2]string
	}{
		"for the next request": {`{"b":{}}`, 0, false, [2]string{"a", "b"}},
		"between two requests": {`{"b":{}}`, time.Second, true, [2]string{"a", "b"}},
		"for the same name":    {``, 0, false, [2]string{"a", "a"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			tb, r := tabled(), by("ann")
			got := tb.answer(t.Context(), r, "", c.early, func(ctx context.Context, v peer.Client) (wire.Parts, *jsonrpc.Error) {
				var first sync.WaitGroup
				first.Go(func() { _ = ask(ctx, v, named(c.names[0])) })
				if !c.both {
					first.Wait()
				}
				time.Sleep(c.then)
				defer first.Wait()
				return ask(ctx, v, named(c.names[1])), nil
			})
			if got.names() != "a" {
				t.Errorf("%s: asked %q, answered %s", name, got.names(), got.text)
			}
			time.Sleep(2 * c.then)
			if got = tb.answer(t.Context(), r, got.State, `{"a":{"n":1}}`, nil); got.names() != c.names[1] {
				t.Errorf("%s: then asked %q, answered %s", name, got.names(), got.text)
			}
			tb.Close(nil)
		})
	}
}

// SPEC D8: a question that its peer has given up is not asked any more, and does not delay the answer.
func TestD8AQuestionThatWasGivenUpIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, r := tabled(), by("ann")
		got := tb.answer(t.Context(), r, "", "", func(ctx context.Context, v peer.Client) (wire.Parts, *jsonrpc.Error) {
			var all sync.WaitGroup
			impatient, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			all.Go(func() { _ = ask(impatient, v, named("b")) })
			_ = ask(ctx, v, named("a"))
			all.Wait()
			all.Go(func() { _ = ask(ctx, v, named("c")) })
			time.Sleep(together / 2)
			defer all.Wait()
			ended, end := context.WithCancel(ctx)
			end()
			_ = ask(ended, v, named("d"))
			return ask(ctx, v, named("e")), nil
		})
		if got.names() != "a b" {
			t.Errorf("asked %q", got.names())
		}
		time.Sleep(2 * time.Second)
		if got = tb.answer(t.Context(), r, got.State, `{"a":{}}`, nil); got.names() != "c e" {
			t.Errorf("asked %q then", got.names())
		}
		tb.Close(nil)
		began := time.Now()
		got = tb.answer(t.Context(), r, "", "", func(ctx context.Context, v peer.Client) (wire.Parts, *jsonrpc.Error) {
			go func() { _ = ask(ctx, v, "") }()
			time.Sleep(together / 2)
			return wire.Parts{[]byte("done")}, nil
		})
		if took := time.Since(began); got.text != "done" || took != together/2 {
			t.Errorf("a question that nobody waits for: answered %s after %s", got.text, took)
		}
	})
}

// SPEC N2: a state is valid once, for the same request of the same client. What others try with it changes nothing.
func TestN2AStateIsOfOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, r := tabled(), by("ann")
		state := tb.answer(t.Context(), r, "", "", asks(named("a"))).State
		p := wire.Params{State: json.RawMessage(fmt.Sprintf("%q", state)), Responses: json.RawMessage(`{"a":{"n":1}}`)}
		for _, change := range []func(*results.Asking){
			func(of *results.Asking) { of.Client = "bob" }, func(of *results.Asking) { of.Name = "other" }, func(of *results.Asking) { of.Args = json.RawMessage("{}") },
		} {
			of := call
			change(&of)
			if got := tb.answerTo(t.Context(), by("bob"), p, of, nil); got.err != results.ErrUnknownState {
				t.Errorf("%+v got %s, %v", of, got.text, got.err)
			}
		}
		if got := tb.answer(t.Context(), r, state, `{"a":{"n":1}}`, nil); got.text != `{"n":1}` {
			t.Errorf("its client got %s, %v", got.text, got.err)
		} else {
			got.release()
		}
		if got := tb.answer(t.Context(), r, state, `{"a":{"n":1}}`, nil); got.err != results.ErrUnknownState {
			t.Errorf("a second time it gave %s, %v", got.text, got.err)
		}
		tb.empty(t, "the answer")
		if got := tb.answer(t.Context(), r, "a peer's own", "", asks(named("a"))); got.names() != "a" {
			t.Errorf("a state of a peer gave %s, %v", got.text, got.err)
		}
		tb.Close(nil)
	})
}

// SPEC D8: a peer has the client of the first request; what it says goes to the request that is being answered, if there is one.
func TestD8WhatAPeerSaysGoesToTheOpenRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, first, second := tabled(), by("ann"), by("ann")
		second.progress = true
		var v peer.Client
		got := tb.answer(t.Context(), first, "", "", func(ctx context.Context, c peer.Client) (wire.Parts, *jsonrpc.Error) {
			v = c
			c.Notify(ctx, "one", nil)
			if c.WantsProgress() || !c.Hears() || c.Session() != "ann" || c.Owner() != first.owner || c.Declared().LogLevel != "level of ann" {
				t.Errorf("the client is %+v", c)
			}
			_ = ask(ctx, c, "")
			c.Notify(ctx, "three", nil)
			if !c.WantsProgress() {
				t.Error("the second request wants no progress")
			}
			return nil, nil
		})
		if v.Notify(t.Context(), "two", nil); v.WantsProgress() {
			t.Error("no request wants progress")
		}
		tb.answer(t.Context(), second, got.State, `{"question-1":{}}`, nil).release()
		if one, two := fmt.Sprint(first.notified), fmt.Sprint(second.notified); one != "[one]" || two != "[three]" {
			t.Errorf("notified %s and %s", one, two)
		}
		tb.empty(t, "the answer")
	})
}

// SPEC D8: what the client does not take is not asked.
func TestD8ARefusedQuestionIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, r := tabled(), by("ann")
		r.refuses = errors.New("it has not declared it")
		got := tb.answer(t.Context(), r, "", "", asks(""))
		if got.text != "it has not declared it" || r.asked.Load() != 0 {
			t.Errorf("answered %s; %d questions counted", got.text, r.asked.Load())
		}
		got.release()
		tb.empty(t, "the answer")
	})
}
