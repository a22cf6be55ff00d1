package capsuletest

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"syscall"
)

// Args are the arguments of a call that the usual tools understand: what else
// they are to do than answer. Nothing is done by the zero value.
type Args struct {
	Text string `json:"text,omitempty"`
	// Size is how many bytes of padding the answer has.
	Size int `json:"size,omitempty"`

	SleepMS int `json:"sleep_ms,omitempty"`
	// Hold makes the call wait until another one Releases that name, before or after.
	Hold    string `json:"hold,omitempty"`
	Release string `json:"release,omitempty"`
	// Mute leaves the call without an answer.
	Mute bool `json:"mute,omitempty"`
	// Late answers even if the call was cancelled.
	Late bool `json:"late,omitempty"`

	// Progress is how many notifications/progress go before the answer, if the
	// call has a progress token.
	Progress int `json:"progress,omitempty"`
	// Notify are notifications that go before the answer.
	Notify []Notice `json:"notify,omitempty"`
	// Ask is a request of the client, whose answer is in the Answer.
	Ask *Notice `json:"ask,omitempty"`
	// Later leaves Ask, and Notify before it, until another call Releases that name,
	// whatever has become of this one by then.
	Later string `json:"later,omitempty"`
	// Heard waits for the answer to what the call that had that name as its Later
	// asks. It is in the Answer.
	Heard string `json:"heard,omitempty"`
	// Named says in the _meta of what it notifies and asks which call it is about.
	Named bool `json:"named,omitempty"`
	// Tools makes these the tools of tools/list and says list_changed.
	Tools []string `json:"tools,omitempty"`

	// Result is the result, whatever it is, instead of an Answer.
	Result json.RawMessage `json:"result,omitempty"`
	// Error is a JSON-RPC error to answer with.
	Error json.RawMessage `json:"error,omitempty"`

	Stderr string `json:"stderr,omitempty"`
	// Exit ends the process without an answer, with that code.
	Exit *int `json:"exit,omitempty"`
	// Signal ends the process without an answer, by that signal.
	Signal int `json:"signal,omitempty"`
}

// Notice is a method with parameters.
type Notice struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params,omitempty"`
}

// JSON returns the arguments as a call has them.
func (a Args) JSON() json.RawMessage { return encode(a) }

// Answer is what the text of a usual answer says about the process that gave it.
type Answer struct {
	Pid      int    `json:"pid"`
	Code     string `json:"code"` // what Save had saved when the process started
	Tool     string `json:"tool"` // the name that the capsule was called by
	Text     string `json:"text,omitempty"`
	Call     int    `json:"call"`      // how many calls the process had got
	InFlight int    `json:"in_flight"` // how many of them had no answer, this one included
	// Cancelled is how many notifications/cancelled had arrived.
	Cancelled int             `json:"cancelled"`
	Probes    int             `json:"probes,omitempty"` // how many server/discover had arrived, of no-discover
	Forked    []int           `json:"forked,omitempty"` // processes that it had started
	Client    json.RawMessage `json:"client,omitempty"` // what the client answered: a result or an error
	Meta      json.RawMessage `json:"meta,omitempty"`   // the request's _meta
	Dir       string          `json:"dir"`
	Argv      []string        `json:"argv"`
	Padding   string          `json:"padding,omitempty"`
}

// callParams are the parameters of tools/call.
type callParams struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Meta      json.RawMessage `json:"_meta"`
}

// call answers tools/call.
func call(s *server, m *Message) {
	var params callParams
	var args Args
	if err := json.Unmarshal(m.Params, &params); err != nil {
		s.Error(m.ID, -32602, err.Error())
		return
	}
	if params.Arguments != nil {
		if err := json.Unmarshal(params.Arguments, &args); err != nil {
			s.Error(m.ID, -32602, err.Error())
			return
		}
	}
	n, inFlight, out := s.count()
	defer out()

	if args.Named {
		about := encode(map[string]any{"_meta": map[string]any{"orla/call": m.ID}})
		for i := range args.Notify {
			args.Notify[i].Params = about
		}
		if args.Ask != nil {
			args.Ask.Params = about
		}
	}
	client := s.act(m.ctx, args, params)
	if args.Mute || m.ctx.Err() != nil && !args.Late {
		return
	}
	switch {
	case args.Error != nil:
		s.Send(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": args.Error})
		return
	case args.Result != nil:
		s.Result(m.ID, args.Result)
		return
	}
	s.mu.Lock()
	cancelled, probes := s.cancelled, s.probes
	s.mu.Unlock()
	dir, _ := os.Getwd() // a test that looks sees that it is missing
	s.Result(m.ID, textResult(string(encode(Answer{
		Pid:       os.Getpid(),
		Code:      s.code,
		Tool:      params.Name,
		Text:      args.Text,
		Call:      n,
		InFlight:  inFlight,
		Cancelled: cancelled,
		Probes:    probes,
		Forked:    s.forked,
		Client:    client,
		Meta:      params.Meta,
		Dir:       dir,
		Argv:      os.Args,
		Padding:   strings.Repeat("x", args.Size),
	}))))
}

// count counts a call in; out counts it out again.
func (s *server) count() (n, inFlight int, out func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.inFlight++
	return s.calls, s.inFlight, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inFlight--
	}
}

// act does what the arguments say, and returns what the client answered, if it
// was asked.
func (s *server) act(ctx context.Context, args Args, params callParams) (client json.RawMessage) {
	if args.Stderr != "" {
		complain("%s", args.Stderr)
	}
	if args.Tools != nil {
		s.offer(args.Tools)
	}
	if args.Later != "" {
		go s.later(args) //nolint:contextcheck // it outlives the call
		args.Notify, args.Ask = nil, nil
	}
	for _, n := range args.Notify {
		s.Notify(n.Method, n.Params)
	}
	s.progress(args.Progress, params.Meta)
	if args.Ask != nil {
		reply := s.ask(ctx, args.Ask.Method, args.Ask.Params)
		client = encode(map[string]any{"result": reply.Result, "error": reply.Error})
	}
	if args.Release != "" {
		close(s.hold(args.Release))
	}
	if args.Heard != "" {
		select {
		case <-s.hold("answer to " + args.Heard):
			s.mu.Lock()
			client = s.late[args.Heard]
			s.mu.Unlock()
		case <-ctx.Done():
		}
	}
	if args.Hold != "" {
		select {
		case <-s.hold(args.Hold):
		case <-ctx.Done():
		}
	}
	select {
	case <-after(args.SleepMS):
	case <-ctx.Done():
	}
	if args.Exit != nil {
		exit(*args.Exit)
	}
	if args.Signal != 0 {
		die(syscall.Signal(args.Signal))
	}
	return client
}

// later notifies and asks what a call left for when its Later is released.
func (s *server) later(args Args) {
	<-s.hold(args.Later)
	for _, n := range args.Notify {
		s.Notify(n.Method, n.Params)
	}
	reply := s.ask(context.Background(), args.Ask.Method, args.Ask.Params)
	s.mu.Lock()
	s.late[args.Later] = encode(map[string]any{"result": reply.Result, "error": reply.Error})
	s.mu.Unlock()
	close(s.hold("answer to " + args.Later))
}

func (s *server) hold(name string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[name] == nil {
		s.held[name] = make(chan struct{})
	}
	return s.held[name]
}

func (s *server) progress(steps int, meta json.RawMessage) {
	var token struct {
		ProgressToken json.RawMessage `json:"progressToken"`
	}
	if meta == nil || json.Unmarshal(meta, &token) != nil || token.ProgressToken == nil {
		return
	}
	for i := range steps {
		s.Notify("notifications/progress", map[string]any{
			"progressToken": token.ProgressToken, "progress": i + 1, "total": steps,
		})
	}
}

// offer changes the tools of tools/list and says so.
func (s *server) offer(names []string) {
	s.mu.Lock()
	s.tools = nil
	for _, name := range names {
		s.tools = append(s.tools, toolNamed(name))
	}
	s.mu.Unlock()
	s.Notify("notifications/tools/list_changed", struct{}{})
}

func textResult(text string) any {
	return map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}}
}
