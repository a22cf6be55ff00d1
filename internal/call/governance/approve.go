package governance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// How long a call waits for a decision before it is answered with approval_pending. Many clients give up on calls after
// 60 s, whatever progress comes, and nothing in the protocol says which do. Some say that they wait longer, and others are
// asked in an answer, so that their request does not wait (docs/decisions/0044).
const (
	waitShort = 45 * time.Second
	waitLong  = 270 * time.Second
	// tick is the time between two notifications of progress.
	tick = 5 * time.Second
	// maxWaiting bounds the calls that wait. No caller has more than half of what is free; beyond it, calls are answered
	// at once.
	maxWaiting = 512
)

// desk is where decisions about calls come from.
type desk struct {
	store   *approvals.Store
	waiting *turns.Shares // of maxWaiting
}

// flight is what a call has while it does not wait.
type flight struct {
	placed bool   // it has its place
	use    *usage // what the limits of its caller count; nil while they do not
}

// asking is a call that needs an approval.
type asking struct {
	*desk
	caller rules.Caller
	task   string // that the client has named; "" for none
	target *rules.Target
	judge  *rejudged // is told when the call has an approval
	flight
	used  string          // the record that it goes on with
	input json.RawMessage // see approvals.Question

	replies chan reply      // of the client; has room for one
	asked   map[string]bool // records that the client was asked about
	open    bool            // it has not replied
}

// reply is what the person at the client has decided about a record.
type reply struct {
	id      string
	decided bool
	approve bool
	reason  string
}

// approveUnder makes approvals under other rules end, and opens the Store when it is needed. The caller holds mu.
func (g *Gate) approveUnder(s *state) {
	at := g.desk.Load()
	if at == nil && s.set.Asks() && g.Open != nil {
		store, err := g.Open()
		if err != nil {
			if g.Log != nil {
				g.Log.Error("calls that need an approval are denied", "err", err)
			}
			return
		}
		at = &desk{store, turns.NewShares(maxWaiting)}
		g.desk.Store(at)
	}
	if at != nil && !s.closed {
		at.store.Withdraw(s.version)
	}
}

// Approvals returns the Store; nil if no rule has wanted an approval.
func (g *Gate) Approvals() *approvals.Store {
	if at := g.desk.Load(); at != nil {
		return at.store
	}
	return nil
}

// asking admits a call that needs an approval.
func (g *Gate) asking(s *state, caller rules.Caller, call *peer.Call, target *rules.Target) (supervisor.Admitted, error) {
	at := g.desk.Load()
	if at == nil {
		return supervisor.Admitted{}, fault.New(fault.PermissionDenied,
			"tool_permission_denied: a call of %s by %s needs an approval, and nobody can be asked here: that needs orla serve and a state_dir that can be written", call.Tool, caller.Name)
	}
	use, err := g.limits.enter(s, caller.Name, caller.Groups, uncounted)
	if err != nil {
		return supervisor.Admitted{}, err
	}
	g.limits.leave(use) // it is not in flight while it waits
	judge := &rejudged{gate: g, decided: call.Decided, caller: caller, tool: call.Tool}
	a := &asking{desk: at, caller: caller, task: namedTask(call), target: target, judge: judge, replies: make(chan reply, 1), asked: map[string]bool{}}
	return supervisor.Admitted{Approve: a.wait, Done: a.end, Judge: judge}, nil
}

// namedTask returns the task that a client has named; "" if it has named none. An approval is bound to that alone: the
// name of a session, which stands for it otherwise, is another one after each start of the client.
func namedTask(call *peer.Call) string {
	if call.Meta == nil || rawjson.Get(call.Meta, metaTask) == nil {
		return ""
	}
	return call.Task
}

// end gives back what the call has, and its approval too if it has not reached its tool.
func (a *asking) end(sent bool) {
	if a.use != nil {
		a.judge.gate.limits.leave(a.use)
	}
	if a.used != "" && !sent {
		a.store.GiveBack(a.used)
	}
}

// wait waits until somebody has decided about a call, and returns nil if it may go on: once, and with the
// arguments that were shown. back takes back the place of the call.
func (a *asking) wait(ctx context.Context, call *peer.Call, back supervisor.Again) error {
	var err error
	if late := turns.AccountOf(ctx).Work(ctx, len(call.Args)+len(call.Input.Responses), func() { err = a.read(call) }); late != nil {
		return late
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // withdraws the question to the client
	var wait time.Duration
	if owner := (turns.Owner{Caller: a.caller.Name}); a.waiting.Try(owner, 1) {
		defer a.waiting.Give(owner, 1)
		wait = waitShort
		if call.Client != nil && call.Client.Declared().Waits {
			wait = waitLong
		}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var ticks *ticker
	if call.Client != nil && call.Client.WantsProgress() {
		call.Client = peer.Rising(call.Client) // the tool reports from the start
		ticks = &ticker{Ticker: time.NewTicker(tick), client: call.Client}
		defer ticks.Stop()
	}
	for {
		next, err := a.step(ctx, call, back)
		if next == nil {
			return err
		}
		if a.ask(ctx, call.Client, &next.Record) && wait > 0 && call.Client.Declared().Repeats {
			timer.Reset(waitLong) // its request does not wait
		}
		if err := a.sleep(ctx, call, next, timer, ticks); err != nil {
			return err
		}
	}
}

// read takes from a call what has to be shown, and leaves nothing else in it for its tool.
func (a *asking) read(call *peer.Call) error {
	args := call.Args
	if len(args) == 0 || string(args) == "null" {
		args = []byte("{}")
	}
	var fits bool
	call.Args, fits = rawjson.Canonical(args)
	if in := call.Input; fits && (in.Responses != nil || in.State != nil) {
		raw := []byte(`{"inputResponses":` + cmp.Or(string(in.Responses), "null") + `,"requestState":` + cmp.Or(string(in.State), "null") + `}`)
		a.input, fits = rawjson.Canonical(raw)
	}
	if !fits {
		return fault.New(fault.InvalidInput, "this call needs an approval, and its arguments cannot be shown to a person as they are: they have more than 256 KiB or 200 levels, or half a character (\\ud800)")
	}
	call.Meta = nil // nobody reads it, and it may differ when the call is made again
	return nil
}

// waiting is what a call waits for.
type waiting struct {
	approvals.Record
	decided, ruled <-chan struct{} // closed when the record, or the rules, are others
}

// errLooser ends a call that nobody has approved when nobody has to any more. It does not run: rules that were away for
// a moment, as while a file is written, must not let through what somebody looks at.
var errLooser = fault.Unsent(fault.New(fault.NotReady,
	"the rules, or the tool, have changed while the call waited for an approval, and it needs none now; it was not made: make the same call again"))

// step goes on with a call as far as that is possible now. It returns what the call has to wait for, or
// nil with how it ended. It ends without an error only when the call has used an approval.
func (a *asking) step(ctx context.Context, call *peer.Call, back supervisor.Again) (*waiting, error) {
	for {
		ruled := a.judge.gate.Changed()
		s := a.judge.gate.now()
		if s.closed {
			return nil, errClosed
		}
		if a.target = back.Target(); a.target == nil {
			return nil, fault.Unsent(fault.New(fault.UnsupportedTool, "there is no tool %q any more", call.Tool))
		}
		d := s.set.Decide(a.caller, a.target)
		if d.Verdict == manifest.Allow {
			return nil, errLooser
		}
		made := peer.Decision{Class: classOf(d, a.target), Rule: d.Rule, Verdict: string(d.Verdict)}
		call.Decided.Set(made)
		if d.Verdict != manifest.ApprovalRequired {
			return nil, refusal(a.caller.Name, call.Tool)
		}
		record, decided, err := a.store.Ask(approvals.Question{ //nolint:contextcheck // a write is not given up
			Caller: a.caller.Name, Agent: a.caller.Agent, Tool: a.target.Name(), Runs: a.target.Names(), Args: call.Args, Input: a.input, Policy: s.version,
			Task: a.task, Class: made.Class, Rule: d.Rule, Why: d.Why, Approvers: d.Approvers, Definition: a.target.Definition(),
		})
		if err != nil {
			return nil, err
		}
		made.Approval, made.Decider = record.ID, record.By
		call.Decided.Set(made)
		switch record.Phase {
		case approvals.Denied:
			return nil, denied(&record)
		case approvals.Approved:
			if a.open && call.Client.Declared().Repeats {
				break // nobody would get the answer before the client comes back
			}
			if err := back.Settle(ctx); err != nil {
				return nil, err
			}
			if !a.target.Same(back.Target()) {
				continue // it is judged, and asked about, as it is now
			}
			if err := a.proceed(s, back); err != nil {
				return nil, err
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			err := a.store.Use(record.ID) //nolint:contextcheck // the same
			if errors.Is(err, approvals.ErrUsed) {
				continue // another call like this one was faster
			}
			if err == nil {
				a.used, a.judge.approved = record.ID, a.target
			}
			return nil, err
		case approvals.Pending, approvals.Expired:
		}
		if err := a.leave(back); err != nil {
			return nil, err
		}
		return &waiting{record, decided, ruled}, nil
	}
}

// proceed takes back the place of a call. It is one of its minute since it was made.
func (a *asking) proceed(s *state, back supervisor.Again) error {
	if a.placed {
		return nil
	}
	if err := back.Place(); err != nil {
		return err
	}
	a.placed = true
	use, err := a.judge.gate.limits.enter(s, a.caller.Name, a.caller.Groups, counted)
	a.use = use
	return err
}

// leave gives up the place of a call that waits once more, since another call like it has used its approval.
func (a *asking) leave(back supervisor.Again) error {
	if !a.placed {
		return nil
	}
	if a.use != nil {
		a.judge.gate.limits.leave(a.use)
	}
	a.placed, a.use = false, nil
	return back.Leave()
}

// sleep waits until something has changed. Its error ends the call.
func (a *asking) sleep(ctx context.Context, call *peer.Call, on *waiting, timer *time.Timer, ticks *ticker) error {
	for {
		select {
		case <-ctx.Done():
			if fault.CodeOf(context.Cause(ctx)) == fault.NotReady { // Orla stops, and the record outlives it
				return pending(&on.Record, call.Tool)
			}
			return context.Cause(ctx)
		case <-timer.C:
			return pending(&on.Record, call.Tool)
		case <-ticks.C():
			ticks.tell(ctx, on.ID)
			continue
		case <-on.ruled:
			return nil
		case <-on.decided:
			return a.over(on.ID)
		case said := <-a.replies:
			a.open = false
			if !said.decided {
				if call.Client.Declared().Repeats { // the request that brought the reply waits now
					timer.Reset(waitShort)
				}
				return nil
			}
			_, err := a.store.Decide(said.id, approvals.Decision{ //nolint:contextcheck // the same
				Approve: said.approve, Reason: said.reason, By: "client of " + a.caller.Name, How: manifest.ApproverClient,
			})
			if _, late := errors.AsType[*approvals.DecidedError](err); err != nil && !late {
				return err
			}
			return a.over(said.id)
		}
	}
}

// over reports that the time of a record is over. One that was withdrawn is for step.
func (a *asking) over(id string) error {
	r, _, err := a.store.Get(id)
	if err == nil && a.store.Over(id) {
		return expired(&r)
	}
	return nil // step finds out
}

func expired(r *approvals.Record) error {
	return fault.New(fault.ApprovalTimeout, "the approval %s of this call has expired: %s; the same call asks for a new one", r.ID, r.Reason)
}

func denied(r *approvals.Record) error {
	if r.Reason == "" {
		return fault.New(fault.ApprovalDenied, "the call was denied by its approver (%s)", r.ID)
	}
	return fault.New(fault.ApprovalDenied, "the call was denied by its approver (%s): %s", r.ID, r.Reason)
}

func pending(r *approvals.Record, tool string) error {
	return fault.New(fault.ApprovalPending,
		"the call of %s waits for an approval, %s: a person has to decide, with orla approvals show %s. Make the same call again to go on; it runs when it has been approved, until %s",
		tool, r.ID, r.ID, r.Expires.UTC().Format(time.TimeOnly+" MST"))
}

// ask asks the person at the client about a record, once. It reports whether it does.
func (a *asking) ask(ctx context.Context, client peer.Client, r *approvals.Record) bool {
	if client == nil || a.asked[r.ID] || a.open || r.Phase != approvals.Pending || !r.Allows(manifest.ApproverClient) || len(r.Args)+len(r.Input) > maxAsked || !takesForms(client.Declared().Capabilities) {
		return false
	}
	a.asked[r.ID], a.open = true, true
	params := formOf(r)
	go func() {
		defer recovered.To(a.judge.gate.Log, "ask a client for an approval", nil)
		said := reply{id: r.ID}
		defer func() { a.replies <- said }()
		raw, err := client.Ask(ctx, "elicitation/create", params)
		if err == nil {
			said = readReply(r.ID, raw)
		}
	}()
	return true
}

// takesForms reports whether a client has declared that it shows forms to a person.
func takesForms(capabilities json.RawMessage) bool {
	elicitation := rawjson.Get(capabilities, "elicitation")
	return rawjson.IsObject(elicitation) && (rawjson.Empty(elicitation) || rawjson.Get(elicitation, "form") != nil)
}

// maxAsked bounds the arguments that a client shows, in bytes. It is not asked about larger ones, since nobody would
// read them there.
const maxAsked = 4000

// formOf returns the params of the question to a client.
func formOf(r *approvals.Record) json.RawMessage {
	message := "Approve this call?\n\ntool: " + terminal.Printable(r.Tool) + "\nwhat it does: " + r.Class + "\narguments: " + terminal.Printable(string(r.Args))
	if r.Input != nil {
		message += "\ninput: " + terminal.Printable(string(r.Input))
	}
	message += "\napproval: " + r.ID
	return json.RawMessage(`{"_meta":{"orla/name":` + string(rawjson.Quote(r.ID)) + `},"message":` + string(rawjson.Quote(message)) + `,"requestedSchema":{"type":"object","properties":{` +
		`"decision":{"type":"string","title":"Decision","enum":["approve","deny"]},` +
		`"reason":{"type":"string","title":"Reason, for who made the call"}},"required":["decision"]}}`)
}

// readReply reads an ElicitResult. Whoever closes the question has not decided.
func readReply(id string, raw json.RawMessage) reply {
	said := reply{id: id}
	content := rawjson.Get(raw, "content")
	switch rawjson.String(rawjson.Get(raw, "action")) {
	case "accept":
		decision := rawjson.String(rawjson.Get(content, "decision"))
		said.approve = decision == "approve"
		said.decided = said.approve || decision == "deny"
		said.reason = rawjson.String(rawjson.Get(content, "reason"))
	case "decline":
		said.decided, said.reason = true, "declined at the client"
	}
	return said
}

// ticker tells a client that its call is waited for.
type ticker struct {
	*time.Ticker
	client peer.Client
	n      int
}

// C returns the channel of ticks; nil without a ticker.
func (t *ticker) C() <-chan time.Time {
	if t == nil {
		return nil
	}
	return t.Ticker.C
}

// tell tells the client of the wait. The values stay below the first that a tool would send, but for 0.
func (t *ticker) tell(ctx context.Context, id string) {
	t.n++
	params, err := json.Marshal(map[string]any{"progress": float64(t.n) / 1e6, "message": "waits for the approval " + id})
	if err == nil { // a number and a string
		t.client.Notify(ctx, "notifications/progress", params)
	}
}
