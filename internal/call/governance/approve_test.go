package governance_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/governance"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// wants returns rules under which calls of the tool a need an approval.
func wants(approvers ...manifest.Approver) manifest.Rules {
	return manifest.Rules{Permissions: []manifest.Permission{{
		Reference: manifest.Reference{Name: "p", At: "a.yaml:3:1"}, Tool: manifest.Reference{Name: "a", At: "a.yaml:4:1"},
		Operations: []manifest.OperationRule{{Class: "*", Verdict: manifest.ApprovalRequired, Approvers: approvers}},
	}}}
}

// desk is a gate with a store, and rules for the tool a.
type desk struct {
	*governance.Gate
	t       *testing.T
	cfg     *config.Loaded
	becomes atomic.Pointer[rules.Target] // what calls run from now on; nil for no change
	later   atomic.Pointer[rules.Target] // the same, once the tool's server has said what it offers now

	unsettled error // why that server does not say it
}

func newDesk(t *testing.T, r manifest.Rules, callers ...config.CallerConfig) *desk {
	t.Helper()
	dir := t.TempDir()
	g := &governance.Gate{Log: slog.New(slog.DiscardHandler), Open: func() (*approvals.Store, error) {
		return approvals.Open(approvals.Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	}}
	d := &desk{Gate: g, t: t, cfg: configured(t, callers...)}
	d.rule(r)
	t.Cleanup(func() { g.Approvals().Close() })
	return d
}

func (d *desk) rule(r manifest.Rules) { d.Set(found(r, "a", "b"), d.cfg) }

// outcome is how a call ended at the gate.
type outcome struct {
	err    error
	args   string
	meta   string
	client peer.Client // that the tool gets
	took   time.Duration
}

// calls makes a call of a tool that reads, or of another class, and returns how it ends at the gate.
func (d *desk) calls(ctx context.Context, call peer.Call, classes ...manifest.OperationClass) <-chan outcome {
	if call.Tool == "" {
		call.Tool = "a"
	}
	if call.Caller == "" {
		call.Caller = "ann"
	}
	target := rules.NewTarget([]string{call.Tool}, nil, append(classes, manifest.ClassRead), nil)
	ended := make(chan outcome, 1)
	began := time.Now()
	go func() {
		admitted, err := d.Admit(ctx, call, target)
		if err == nil && admitted.Approve != nil {
			err = admitted.Approve(ctx, &call, d.again(target))
		}
		if admitted.Done != nil {
			admitted.Done(err == nil)
		}
		ended <- outcome{err, string(call.Args), string(call.Meta), call.Client, time.Since(began)}
	}()
	return ended
}

// again is how a call goes on: with the target that becomes set, or later is when its server has said what it offers, or else with its own.
func (d *desk) again(own *rules.Target) supervisor.Again {
	nothing := func() error { return nil }
	settle := func(context.Context) error {
		if later := d.later.Swap(nil); later != nil {
			d.becomes.Store(later)
		}
		return d.unsettled
	}
	return supervisor.Again{Place: nothing, Leave: nothing, Settle: settle, Target: func() *rules.Target {
		if becomes := d.becomes.Load(); becomes != nil {
			return becomes
		}
		return own
	}}
}

// record returns the only record that waits.
func (d *desk) record() approvals.Record {
	d.t.Helper()
	synctest.Wait()
	var waiting []approvals.Record
	for _, r := range d.Approvals().List() {
		if r.Phase == approvals.Pending {
			waiting = append(waiting, r)
		}
	}
	if len(waiting) != 1 {
		d.t.Fatalf("these records wait: %+v", waiting)
	}
	return waiting[0]
}

func (d *desk) decide(approve bool, reason string) {
	d.t.Helper()
	if _, err := d.Approvals().Decide(d.record().ID, approvals.Decision{Approve: approve, By: "root", How: manifest.ApproverOperator, Reason: reason}); err != nil {
		d.t.Error(err)
	}
}

// client is a client whose person answers questions.
type client struct {
	peer.Client
	progress, repeats, waits bool
	capabilities             string
	replies                  chan string // results; an empty one is an error

	mu    sync.Mutex
	asked []string
	told  []string
	given int // questions that were withdrawn
}

func (c *client) WantsProgress() bool { return c.progress }

func (c *client) Declared() peer.Declared {
	return peer.Declared{Capabilities: json.RawMessage(c.capabilities), Repeats: c.repeats, Waits: c.waits}
}

func (c *client) Notify(_ context.Context, method string, params json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, method+" "+string(params))
}

func (c *client) Ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	c.mu.Lock()
	c.asked = append(c.asked, method+" "+string(params))
	c.mu.Unlock()
	select {
	case text := <-c.replies:
		if text == "" {
			return nil, errors.New("no")
		}
		return json.RawMessage(text), nil
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		c.given++
		return nil, ctx.Err()
	}
}

func (c *client) questions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.asked)
}

const forms = `{"elicitation":{}}`

func check(t *testing.T, got outcome, code fault.Code, text string) {
	t.Helper()
	if fault.CodeOf(got.err) != code || got.err != nil && !strings.Contains(got.err.Error(), text) {
		t.Errorf("got %v, want %q with %q", got.err, code, text)
	}
}

// SPEC-TOOLS 8.7: a call waits as long as its client can, and goes on when it is made again.
func TestT87ACallWaitsAsLongAsItsClientCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, wants())
		args := json.RawMessage(`{ "b" : 1, "a":2 }`)
		got := <-d.calls(t.Context(), peer.Call{Args: args})
		check(t, got, fault.ApprovalPending, d.record().ID)
		if got.took != 45*time.Second {
			t.Errorf("it waited for %v", got.took)
		}
		told := &client{progress: true}
		got = <-d.calls(t.Context(), peer.Call{Args: args, Client: told})
		check(t, got, fault.ApprovalPending, d.record().ID)
		if got.took != 45*time.Second || len(told.told) < 8 || !strings.HasPrefix(told.told[0], "notifications/progress ") {
			t.Errorf("with progress it waited for %v, and was told %d times", got.took, len(told.told))
		}
		told.waits = true
		got = <-d.calls(t.Context(), peer.Call{Args: args, Client: told})
		check(t, got, fault.ApprovalPending, d.record().ID)
		if got.took != 270*time.Second || len(told.told) < 58 {
			t.Errorf("with a client that waits it waited for %v, and was told %d times", got.took, len(told.told))
		}
		waits := d.calls(t.Context(), peer.Call{Args: args, Client: told})
		time.Sleep(time.Minute)
		d.decide(true, "")
		got = <-waits
		n := len(told.told)
		for _, value := range []string{"0", "1"} {
			got.client.Notify(t.Context(), "notifications/progress", json.RawMessage(`{"progress":`+value+`}`))
		}
		if got.err != nil || len(told.told) != n+1 {
			t.Errorf("%v; of a tool's progress it was told %q", got.err, told.told[n:])
		}
		waits = d.calls(t.Context(), peer.Call{Args: args})
		d.decide(true, "")
		<-waits
		check(t, <-d.calls(t.Context(), peer.Call{Args: args}), fault.ApprovalPending, "ap-")
		d.decide(true, "")
		got = <-d.calls(t.Context(), peer.Call{Args: args})
		check(t, got, "", "")
		if got.took != 0 || got.args != `{"a":2,"b":1}` {
			t.Errorf("after the approval it waited for %v and has the arguments %s", got.took, got.args)
		}
		check(t, <-d.calls(t.Context(), peer.Call{Args: args}), fault.ApprovalPending, "")
		check(t, <-d.calls(t.Context(), peer.Call{Tool: "b"}), "", "")
	})
}

// SPEC-TOOLS 8.7, Q1: a call that waits when Orla stops ends as pending, with its record; one whose caller has gone does
// not.
func TestT87ACallThatWaitsWhenOrlaStops(t *testing.T) {
	for name, c := range map[string]struct {
		cause error
		code  fault.Code
	}{
		"Orla stops":   {fault.New(fault.NotReady, "Orla is stopping"), fault.ApprovalPending},
		"it is halted": {fault.New(fault.Timeout, "it has had its time"), fault.Timeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, wants())
				ctx, end := context.WithCancelCause(t.Context())
				ended := d.calls(ctx, peer.Call{})
				synctest.Wait()
				end(c.cause)
				text := ""
				if c.code == fault.ApprovalPending {
					text = d.record().ID
				}
				check(t, <-ended, c.code, text)
			})
		})
	}
}

// SPEC-TOOLS 8.7: a decision ends the wait at once.
func TestT87ADecisionEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, wants())
		yes := d.calls(t.Context(), peer.Call{Args: json.RawMessage(`null`)})
		d.decide(true, "")
		if got := <-yes; got.err != nil || got.took != 0 || got.args != "{}" {
			t.Errorf("approved: %+v", got)
		}
		no := d.calls(t.Context(), peer.Call{})
		d.decide(false, "not today")
		check(t, <-no, fault.ApprovalDenied, "not today")
		check(t, <-d.calls(t.Context(), peer.Call{}), fault.ApprovalDenied, "not today")
		time.Sleep(approvals.DefaultTTL)
		d.Approvals().SetTTL(10 * time.Second)
		got := <-d.calls(t.Context(), peer.Call{})
		check(t, got, fault.ApprovalTimeout, "nobody decided")
		if got.took != 10*time.Second {
			t.Errorf("it ended after %v", got.took)
		}
	})
}

// SPEC-TOOLS 8.7: one approval is for one of two calls that are the same.
func TestT87OneApprovalIsForOneOfTwoCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, wants())
		one, two := d.calls(t.Context(), peer.Call{}), d.calls(t.Context(), peer.Call{})
		d.decide(true, "")
		var first outcome
		select {
		case first = <-one:
			one = two
		case first = <-two:
		}
		check(t, first, "", "")
		d.decide(true, "") // of the record that the other one has asked for
		check(t, <-one, "", "")
	})
}

// SPEC-TOOLS 8.7: the one of two equal calls that comes too late for their approval waits without its place. It is one call of its
// minute all the same (SPEC N1).
func TestT87WhoWaitsOnceMoreHasNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, wants(), config.CallerConfig{Name: "ann", Limits: config.LimitsConfig{CallsPerMinute: 2}})
		target := rules.NewTarget([]string{"a"}, nil, []manifest.OperationClass{manifest.ClassRead}, nil)
		var places, taken, ended atomic.Int32
		both := make(chan struct{})
		again := supervisor.Again{Place: func() error {
			places.Add(1)
			if taken.Add(1) == 2 {
				close(both)
			}
			<-both
			return nil
		}, Leave: func() error {
			places.Add(-1)
			return nil
		}, Target: func() *rules.Target { return target }, Settle: func(context.Context) error { return nil }}
		for range 2 {
			go func() {
				call := peer.Call{Tool: "a", Caller: "ann"}
				admitted, err := d.Admit(t.Context(), call, target)
				if err == nil {
					err = admitted.Approve(t.Context(), &call, again)
				}
				if err != nil {
					t.Error(err)
				}
				admitted.Done(err == nil)
				ended.Add(1)
			}()
		}
		synctest.Wait()
		d.decide(true, "")
		synctest.Wait()
		if ended.Load() != 1 || places.Load() != 1 {
			t.Errorf("%d calls have ended, and there are %d places; want 1 and 1", ended.Load(), places.Load())
		}
		d.decide(true, "")
		synctest.Wait()
		if ended.Load() != 2 || places.Load() != 2 {
			t.Errorf("at last %d calls have ended, and there are %d places", ended.Load(), places.Load())
		}
	})
}

// SPEC-TOOLS 8.6: rules that change judge the calls that wait again.
func TestT86RulesJudgeCallsThatWaitForApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, wants())
		waits := d.calls(t.Context(), peer.Call{})
		old := d.record().ID
		other := wants()
		other.Permissions[0].Name = "other"
		d.rule(other)
		if d.record().ID == old {
			t.Error("the record of the old rules is good under the new ones")
		}
		d.rule(blocks("a"))
		check(t, <-waits, fault.PermissionDenied, "ann may not call a")
		d.rule(wants())
		waits = d.calls(t.Context(), peer.Call{})
		synctest.Wait()
		d.rule(blocks("b"))
		got := <-waits
		check(t, got, fault.NotReady, "make the same call again")
		if !fault.IsUnsent(got.err) || !fault.From(got.err).Retryable() {
			t.Errorf("%v is not told to come back", got.err)
		}
		check(t, <-d.calls(t.Context(), peer.Call{}), "", "")
		d.rule(wants())
		waits = d.calls(t.Context(), peer.Call{})
		synctest.Wait()
		faulty := found(manifest.Rules{}, "a", "b")
		faulty.Problems = []manifest.Problem{{Path: "a.yaml", Severity: manifest.Fault, Denies: true, Err: errors.New("x")}}
		d.Set(faulty, d.cfg)
		check(t, <-waits, fault.PermissionDenied, "cannot be read")
	})
}

// SPEC-TOOLS 8.7: the person at the client is asked where the rule or the default lets it decide, and nowhere else.
func TestT87ThePersonAtTheClientMayDecide(t *testing.T) {
	const accepts = `{"action":"accept","content":{"decision":"approve"}}`
	for name, c := range map[string]struct {
		approvers    []manifest.Approver
		caller       string
		class        manifest.OperationClass
		capabilities string
		reply        string
		asked        bool
		code         fault.Code
		text         string
	}{
		"the client of stdio":         {nil, "stdio", manifest.ClassWrite, forms, accepts, true, "", ""},
		"it wants to delete":          {nil, "stdio", manifest.ClassDelete, forms, accepts, false, fault.ApprovalPending, ""},
		"it wants to administer":      {nil, "stdio", manifest.ClassAdmin, forms, accepts, false, fault.ApprovalPending, ""},
		"a token":                     {nil, "ann", manifest.ClassRead, forms, accepts, false, fault.ApprovalPending, ""},
		"everybody":                   {nil, "anonymous", manifest.ClassRead, forms, accepts, false, fault.ApprovalPending, ""},
		"the command line":            {nil, "cli", manifest.ClassRead, forms, accepts, false, fault.ApprovalPending, ""},
		"a rule lets the client":      {[]manifest.Approver{manifest.ApproverClient}, "ann", manifest.ClassDelete, forms, accepts, true, "", ""},
		"a rule wants the operator":   {[]manifest.Approver{manifest.ApproverOperator}, "stdio", manifest.ClassRead, forms, accepts, false, fault.ApprovalPending, ""},
		"it shows no forms":           {nil, "stdio", manifest.ClassRead, `{}`, accepts, false, fault.ApprovalPending, ""},
		"it shows URLs only":          {nil, "stdio", manifest.ClassRead, `{"elicitation":{"url":{}}}`, accepts, false, fault.ApprovalPending, ""},
		"it shows both":               {nil, "stdio", manifest.ClassRead, `{"elicitation":{"url":{},"form":{}}}`, accepts, true, "", ""},
		"the person denies":           {nil, "stdio", manifest.ClassRead, forms, `{"action":"accept","content":{"decision":"deny","reason":"too much"}}`, true, fault.ApprovalDenied, "too much"},
		"the person declines":         {nil, "stdio", manifest.ClassRead, forms, `{"action":"decline"}`, true, fault.ApprovalDenied, "declined"},
		"the person closes it":        {nil, "stdio", manifest.ClassRead, forms, `{"action":"cancel"}`, true, fault.ApprovalPending, ""},
		"the client fails":            {nil, "stdio", manifest.ClassRead, forms, ``, true, fault.ApprovalPending, ""},
		"an answer without a content": {nil, "stdio", manifest.ClassRead, forms, `{"action":"accept"}`, true, fault.ApprovalPending, ""},
		"an answer of another shape":  {nil, "stdio", manifest.ClassRead, forms, `{"action":"accept","content":{"decision":true}}`, true, fault.ApprovalPending, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, wants(c.approvers...))
				person := &client{capabilities: c.capabilities, replies: make(chan string, 1)}
				person.replies <- c.reply
				got := <-d.calls(t.Context(), peer.Call{Caller: c.caller, Client: person}, c.class)
				check(t, got, c.code, c.text)
				if asked := person.questions() == 1; asked != c.asked {
					t.Errorf("asked %d times", person.questions())
				}
				for _, r := range d.Approvals().List() {
					if c.code == "" && (r.By != "client of "+c.caller || r.How != manifest.ApproverClient) {
						t.Errorf("it was decided by %q with %q", r.By, r.How)
					}
				}
			})
		})
	}
}

// SPEC-TOOLS 8.7: when somebody else has decided, the question to the client is withdrawn.
func TestT87TheOtherQuestionsAreWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, wants())
		person := &client{capabilities: forms, replies: make(chan string)}
		waits := d.calls(t.Context(), peer.Call{Caller: "stdio", Client: person})
		d.decide(true, "")
		check(t, <-waits, "", "")
		synctest.Wait()
		if person.questions() != 1 || person.given != 1 {
			t.Errorf("asked %d times, withdrawn %d times", person.questions(), person.given)
		}
	})
}

// SPEC-TOOLS 8.7: where the question is an answer, the call waits for its client before it uses the approval.
func TestT87AnApprovalIsNotUsedBeforeTheClientIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, wants())
		person := &client{capabilities: forms, repeats: true, replies: make(chan string)}
		waits := d.calls(t.Context(), peer.Call{Caller: "stdio", Client: person})
		d.decide(true, "")
		time.Sleep(time.Minute)
		select {
		case got := <-waits:
			t.Fatalf("it went on without its client: %+v", got)
		default:
		}
		person.replies <- `{"action":"cancel"}`
		check(t, <-waits, "", "")

		waits = d.calls(t.Context(), peer.Call{Caller: "stdio", Client: person})
		d.decide(true, "")
		got := <-waits
		check(t, got, fault.ApprovalPending, "")
		if got.took != 270*time.Second {
			t.Errorf("it waited for %v", got.took)
		}
		check(t, <-d.calls(t.Context(), peer.Call{Caller: "stdio"}), "", "")
	})
}

// SPEC-TOOLS 8.7: where the question is an answer, and the person closes it, the request that says so waits, and for no longer than
// any other.
func TestT87WhoClosesTheQuestionDoesNotWaitForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, wants())
		person := &client{capabilities: forms, repeats: true, replies: make(chan string)}
		waits := d.calls(t.Context(), peer.Call{Caller: "stdio", Client: person})
		time.Sleep(100 * time.Second)
		person.replies <- `{"action":"cancel"}`
		got := <-waits
		check(t, got, fault.ApprovalPending, "")
		if got.took != 145*time.Second {
			t.Errorf("it waited for %v, want 45 s after the reply", got.took)
		}
	})
}

// SPEC-TOOLS 8.7: a call that waits takes nothing of its caller's calls in flight, and ends with its client.
func TestT87ACallThatWaitsIsNotInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, wants(), config.CallerConfig{Name: "ann", Limits: config.LimitsConfig{CallsInFlight: 1, CallsPerMinute: 3}})
		ctx, cancel := context.WithCancelCause(t.Context())
		waits := d.calls(ctx, peer.Call{})
		synctest.Wait()
		check(t, <-d.calls(t.Context(), peer.Call{Tool: "b"}), "", "")
		gone := errors.New("gone")
		cancel(gone)
		if got := <-waits; !errors.Is(got.err, gone) {
			t.Errorf("after its end: %v", got.err)
		}
		d.decide(true, "")
		check(t, <-d.calls(t.Context(), peer.Call{}), "", "") // the third in a minute; its approval does not count twice
		check(t, <-d.calls(t.Context(), peer.Call{Tool: "b"}), fault.RateLimited, "3 in a minute")
	})
}

// SPEC-TOOLS 8.7: a call that does not reach its tool leaves its approval for the next one.
func TestT87ACallThatIsNotSentLeavesItsApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, wants())
		goes := func(sent bool) {
			t.Helper()
			call := peer.Call{Caller: "ann", Tool: "a"}
			target := rules.NewTarget([]string{"a"}, nil, []manifest.OperationClass{manifest.ClassRead}, nil)
			admitted, err := d.Admit(t.Context(), call, target)
			if err == nil {
				err = admitted.Approve(t.Context(), &call, d.again(target))
			}
			if err != nil {
				t.Fatal(err)
			}
			admitted.Done(sent)
		}
		go func() {
			synctest.Wait()
			d.decide(true, "")
		}()
		goes(false)
		goes(false)
		call := peer.Call{Caller: "ann", Tool: "a"}
		target := rules.NewTarget([]string{"a"}, nil, []manifest.OperationClass{manifest.ClassRead}, nil)
		admitted, err := d.Admit(t.Context(), call, target)
		if err == nil {
			err = admitted.Approve(t.Context(), &call, d.again(target))
		}
		waits := d.calls(t.Context(), peer.Call{}) // while that one has the approval
		synctest.Wait()
		admitted.Done(false)
		if check(t, <-waits, "", ""); err != nil {
			t.Error(err)
		}
		check(t, <-d.calls(t.Context(), peer.Call{}), fault.ApprovalPending, "")
	})
}

// SPEC-TOOLS 8.7: what was approved is what runs: a tool that became another one meanwhile asks again.
func TestT87ATargetThatChangesAsksAgain(t *testing.T) {
	read, remove := []manifest.OperationClass{manifest.ClassRead}, []manifest.OperationClass{manifest.ClassDelete}
	for name, becomes := range map[string]*rules.Target{
		"another class":      rules.NewTarget([]string{"a"}, nil, remove, nil),
		"another provider":   rules.NewTarget([]string{"a", "other"}, nil, read, nil),
		"another definition": defined(rules.NewTarget([]string{"a"}, nil, read, nil)),
		"its server, started again, says another class":      rules.NewTarget([]string{"a"}, nil, remove, nil),
		"its server, started again, says another definition": defined(rules.NewTarget([]string{"a"}, nil, read, nil)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, wants())
				waits := d.calls(t.Context(), peer.Call{})
				old := d.record()
				if strings.HasPrefix(name, "its server") {
					d.later.Store(becomes)
				} else {
					d.becomes.Store(becomes)
				}
				d.decide(true, "")
				if now := d.record(); now.ID == old.ID || now.Digest() == old.Digest() {
					t.Errorf("it waits for %+v", now)
				}
				d.decide(true, "")
				check(t, <-waits, "", "")
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, wants())
		gone := supervisor.Again{Place: func() error { return nil }, Target: func() *rules.Target { return nil }}
		call := peer.Call{Tool: "a", Caller: "ann"}
		admitted, err := d.Admit(t.Context(), call, rules.NewTarget([]string{"a"}, nil, read, nil))
		if err != nil {
			t.Fatal(err)
		}
		if err := admitted.Approve(t.Context(), &call, gone); fault.CodeOf(err) != fault.UnsupportedTool {
			t.Errorf("the tool is gone: %v", err)
		}
	})
}

// defined gives a target another definition.
func defined(target *rules.Target) *rules.Target {
	target.Define = func() string { return "sha256:1" }
	return target
}

// SPEC-TOOLS 8.7: an approval is not used while nobody knows what the tool's server says now.
func TestT87AnApprovalIsKeptWhileAServerHasNotSaidWhatItOffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, wants())
		d.unsettled = fault.New(fault.NotReady, "it has not said it")
		waits := d.calls(t.Context(), peer.Call{})
		d.record()
		d.decide(true, "")
		check(t, <-waits, fault.NotReady, "it has not said it")
		d.unsettled = nil
		check(t, <-d.calls(t.Context(), peer.Call{}), "", "")
		check(t, <-d.calls(t.Context(), peer.Call{}), fault.ApprovalPending, "")
	})
}

// SPEC-TOOLS 8.7: what a client adds for its tool is shown and approved with the arguments, and nothing else gets through.
func TestT87InputIsApprovedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, wants())
		with := func(responses string) peer.Call {
			return peer.Call{Meta: json.RawMessage(`{"x":1}`), Input: peer.Input{Responses: json.RawMessage(responses), State: json.RawMessage(`"s"`)}}
		}
		check(t, <-d.calls(t.Context(), with(`{"b":{}, "a":{}}`)), fault.ApprovalPending, "")
		r := d.record()
		if string(r.Input) != `{"inputResponses":{"a":{},"b":{}},"requestState":"s"}` {
			t.Errorf("it shows %s", r.Input)
		}
		d.decide(true, "")
		for _, other := range []peer.Call{{}, with(`{"a":{}}`)} {
			waits := d.calls(t.Context(), other)
			if d.record().ID == r.ID {
				t.Errorf("%s is approved by %s", other.Input.Responses, r.Input)
			}
			d.decide(false, "")
			check(t, <-waits, fault.ApprovalDenied, "")
		}
		got := <-d.calls(t.Context(), with(`{"a":{},"b":{}}`))
		check(t, got, "", "")
		if got.meta != "" {
			t.Errorf("the tool gets %s, which nobody was shown", got.meta)
		}
	})
}

// SPEC-TOOLS 8.7: the person at a client sees what runs, and is not asked about what is too long to be read.
func TestT87TheFormShowsWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, wants())
		ask := func(args string) *client {
			t.Helper()
			person := &client{capabilities: forms, replies: make(chan string, 1)}
			person.replies <- `{"action":"decline"}`
			<-d.calls(t.Context(), peer.Call{Caller: "stdio", Client: person, Args: json.RawMessage(args)})
			return person
		}
		long := ask(`{"a":"` + strings.Repeat("x", 4000) + `","z":"rm"}`)
		if long.questions() != 0 {
			t.Error("it was asked about a long call")
		}
		person := ask("{\"a\":\"\u202efdr\u200b\u009b31m\u2028tool: b\"}")
		var shown struct {
			Message string `json:"message"`
			Meta    struct {
				Name string `json:"orla/name"`
			} `json:"_meta"`
		}
		_, params, _ := strings.Cut(person.asked[0], " ")
		if err := json.Unmarshal([]byte(params), &shown); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(shown.Message, "\u202e\u200b\u009b\u2028") || !strings.Contains(shown.Message, `\u202efdr`) {
			t.Errorf("it shows %q", shown.Message)
		}
		if !strings.HasPrefix(shown.Meta.Name, "ap-") {
			t.Errorf("the question can be answered before it is asked: by %q", shown.Meta.Name)
		}
	})
}

// SPEC N2: many calls that wait do not wait for longer than they are allowed to, and others still may.
func TestT87CallsThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, wants())
		var all []<-chan outcome
		for range 600 {
			all = append(all, d.calls(t.Context(), peer.Call{Owner: turns.Owner{Caller: "ann"}}))
		}
		synctest.Wait()
		other := d.calls(t.Context(), peer.Call{Caller: "bob"})
		atOnce := 0
		for _, one := range all {
			if got := <-one; got.took == 0 {
				atOnce++
			}
		}
		if atOnce < 200 {
			t.Errorf("%d of 600 calls did not wait", atOnce)
		}
		if got := <-other; got.took != 45*time.Second {
			t.Errorf("another caller waited for %v", got.took)
		}
	})
}

// SPEC-TOOLS 8.7: what nobody can read, nobody is asked about.
func TestT87ArgumentsThatNobodyCanRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, wants())
		check(t, <-d.calls(t.Context(), peer.Call{Args: json.RawMessage(`{"a":"` + strings.Repeat("x", 300<<10) + `"}`)}), fault.InvalidInput, "256 KiB")
		var nobody governance.Gate
		nobody.Set(found(wants(), "a"), d.cfg)
		d.Gate = &nobody
		check(t, <-d.calls(t.Context(), peer.Call{}), fault.PermissionDenied, "nobody can be asked")
	})
}
