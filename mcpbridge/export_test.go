package mcpbridge

import (
	"context"
	"encoding/json"
	"iter"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/turns"
)

// SetLimits makes the front's patience that of a test.
func (h *HTTP) SetLimits(body, write, keepAlive time.Duration) {
	h.limits = limits{body: body, room: body, write: write, keepAlive: keepAlive, answers: defaultLimits.answers}
}

// SetBodyLimit is how long a client may take to send a body.
func (h *HTTP) SetBodyLimit(body time.Duration) { h.limits.body = body }

// SetAnswersLimit is how long sessions that close wait for calls.
func (h *HTTP) SetAnswersLimit(answers time.Duration) { h.limits.answers = answers }

// HoldForRequests takes of that room, and returns what gives it back.
func (b *Bridge) HoldForRequests(line string, n int64) func() {
	b.requests.Add(turns.Line{Session: line}, n)
	return func() { b.requests.Give(turns.Line{Session: line}, n) }
}

// FreeForAnswers is how many bytes of answers there is room for.
func (b *Bridge) FreeForAnswers() int64 { return b.room.Free() }

// HoldForAnswers takes of that room for one who is allowed more than there is, and
// returns what gives it back.
func (b *Bridge) HoldForAnswers(n int64) func() {
	ctx, letGo := b.room.Hold(context.Background(), turns.Line{Session: "another"})
	_ = turns.HeldBy(ctx).Need(ctx, n) // it is free, or the one beyond
	further, letGoFurther := b.room.Hold(context.Background(), turns.Line{Session: "a third"})
	_ = turns.HeldBy(further).Need(further, n) // the one beyond
	return func() { letGo(); letGoFurther() }
}

// HoldMeasuring is another that looks through a kept answer, until what it returns is
// called.
func (b *Bridge) HoldMeasuring() func() {
	_ = b.encoding.Take(context.Background(), turns.Line{Session: "another"}) // it ends with its turn
	return func() { b.encoding.Give(turns.Line{Session: "another"}) }
}

// SetReadPatience is how long a read of a kept answer waits for room.
func (b *Bridge) SetReadPatience(d time.Duration) { b.readPatience = d }

// StandIns is how many strings stand for results that have not been written.
func (b *Bridge) StandIns() int {
	b.standIns.mu.Lock()
	defer b.standIns.mu.Unlock()
	return len(b.standIns.of)
}

// FreeForRequests is how many bytes of requests there is room for.
func (b *Bridge) FreeForRequests() int64 { return b.requests.Free() }

// Pages is how many pages of the list of tools are ready to be sent.
func (b *Bridge) Pages() int {
	p := b.pages.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.known)
}

// Expire ends the sessions that were idle for longer than timeout.
func (h *HTTP) Expire(timeout time.Duration) { h.sessions.expire(timeout) }

// Methods are the requests that are not refused as unknown.
func Methods() []string { return methods }

// IsPlain reports whether a message has the shape of a plain call.
func IsPlain(raw []byte) bool {
	_, ok := parsePlain(raw)
	return ok
}

// Passed is a peer's result as a client of an era gets it, or false for what is
// no result.
func Passed(raw []byte, newest bool) ([]byte, bool) {
	p, ok := look(raw, true)
	if !ok {
		return nil, false
	}
	if newest {
		return p.parts([]byte(`{"name":"orla"}`)).join(), true
	}
	return p.parts(nil).join(), true
}

// Carried is a message with what the SDK is not to decode.
func Carried(raw []byte) []byte { return newCarrier().load(raw) }

// Held is how many bytes of the room of all answers are held.
func (b *Bridge) Held() int64 { return answersBudget - b.room.Free() }

// HoldOpenings takes the places of all sessions that may begin at once.
func (h *HTTP) HoldOpenings() (release func()) {
	for h.openings.Try(turns.Line{}) {
		continue
	}
	return func() {
		for range maxOpenings {
			h.openings.Give(turns.Line{})
		}
	}
}

// Openings is how many sessions wait to begin.
func (h *HTTP) Openings() int { return h.openings.Waiting() }

// OnLiving has then called whenever it has been looked at which sessions live,
// and before anything is made of it. It is told whether levels can be set, and
// resources be followed, at that moment.
func (b *Bridge) OnLiving(then func(levels, subscriptions bool)) {
	living := func() iter.Seq[*mcp.ServerSession] {
		live := b.server.Sessions()
		then(free(&b.verbosity.mu), free(&b.subscriptions.mu))
		return live
	}
	b.verbosity.living, b.subscriptions.living = living, living
}

func free(lock *sync.Mutex) bool {
	if !lock.TryLock() {
		return false
	}
	lock.Unlock()
	return true
}

// DropSubscriptions ends what sessions have left behind, as is done at times.
func (b *Bridge) DropSubscriptions(ctx context.Context) { b.dropSubscriptions(ctx) }

// WantsMessages reports whether a session has set a level.
func (b *Bridge) WantsMessages(session string) bool { return b.verbosity.wanted(session) }

// Subscriptions is of how many resources something is kept.
func (b *Bridge) Subscriptions() int {
	b.subscriptions.mu.Lock()
	defer b.subscriptions.mu.Unlock()
	return len(b.subscriptions.of)
}

// Metas is what is remembered of clients of the stateless era.
type Metas struct{ m metas }

// NewMetas remembers nothing.
func NewMetas() *Metas { return &Metas{} }

// Learn notes a _meta of a caller's.
func (m *Metas) Learn(caller, meta string) { m.m.learn(caller, json.RawMessage(meta)) }

// Knows reports whether it is remembered.
func (m *Metas) Knows(caller, meta string) bool {
	_, ok := m.m.find(caller, json.RawMessage(meta))
	return ok
}
