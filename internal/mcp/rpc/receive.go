package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// Receive passes a message, or each message of a batch, to its call or to the Handler. It returns how many
// messages were not answers to calls. Of a batch, it drops what is beyond maxBatch. It waits only if there is
// no room for an answer, or for a short time for a turn to work on a large one, and only while no call of
// another caller would wait too.
func (c *Conn) Receive(text []byte) (unasked int) {
	c.heard.Store(int64(time.Since(c.made)))
	c.unasked = 0
	if len(text) >= turns.Heavy {
		c.beginWork()
		defer c.endWork()
	}
	c.take(text)
	return c.unasked
}

// maxTurn is how long the reader waits for a turn to work on a large message: not only answers come after it.
const maxTurn = 250 * time.Millisecond

// beginWork waits for a turn of the only caller that has calls in flight. It does not wait for long, nor while
// there is a call of another caller, whose answer may come next: then the reader works without a turn.
func (c *Conn) beginWork() {
	p := c.waiting()
	if p == nil {
		return
	}
	bounded, over := context.WithTimeout(p.ctx, maxTurn)
	defer over()
	ctx, cancel := context.WithCancelCause(bounded)
	defer cancel(nil)
	if !c.standStill(p.Owner.Tenant(), cancel) {
		return
	}
	defer c.goOn()
	if p.room.BeginWork(ctx) == nil {
		c.works = p.room
	}
}

// endWork gives back the turn, if there is one.
func (c *Conn) endWork() {
	if c.works != nil {
		c.works.EndWork()
		c.works = nil
	}
}

// waiting returns one of the calls that wait for an answer and count it; nil if there is none.
func (c *Conn) waiting() *Pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.calls.pending {
		if !p.own && !p.standing && p.room != nil {
			return p
		}
	}
	return nil
}

func (c *Conn) take(text []byte) {
	text = c.clean(text)
	text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")))
	c.unasked++ // unless it turns out to be an answer
	if len(text) == 0 {
		return
	}
	if text[0] != '{' && text[0] != '[' {
		c.opts.Handler.Noise(shortened(text), "not a JSON-RPC message")
		return
	}
	valid, ascii := rawjson.Check(text)
	switch {
	case !valid:
		c.opts.Handler.Noise(shortened(text), "no valid JSON")
		return
	case !ascii && !utf8.Valid(text): // clients must get valid text
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
	}
	switch text[0] {
	case '{':
		c.takeMessage(text, len(text))
	default: // a batch, which older peers may answer with
		c.takeBatch(text)
	}
}

const (
	// maxBatch is how many messages of a batch are taken that do not answer calls.
	maxBatch = 1024
	// maxSlice is how long a turn for a batch is before the next caller gets one.
	maxSlice = 5 * time.Millisecond
)

// takeBatch takes the messages of a batch, in several turns if it works for long. From the first one that is too
// many, it takes nothing more.
func (c *Conn) takeBatch(text []byte) {
	one := c.unasked // the batch itself
	began := time.Now()
	rawjson.Elements(text, func(m json.RawMessage) bool {
		if c.unasked-one == maxBatch {
			c.opts.Handler.Noise(shortened(m), fmt.Sprintf("a batch of more than %d messages that answer no call; the rest is dropped", maxBatch))
			return false
		}
		c.unasked++
		if c.works != nil && time.Since(began) >= maxSlice {
			c.endWork()
			c.beginWork()
			began = time.Now()
		}
		if m[0] == '{' {
			c.takeMessage(m, len(text))
		} else {
			c.opts.Handler.Noise(shortened(m), "not a JSON-RPC message")
		}
		return true
	})
}

// Noise tells the Handler of what is not a message, with the reason why.
func (c *Conn) Noise(text []byte, why string) {
	c.heard.Store(int64(time.Since(c.made)))
	c.opts.Handler.Noise(shortened(c.clean(text)), why)
}

func (c *Conn) clean(text []byte) []byte {
	if c.opts.Clean == nil {
		return text
	}
	return c.opts.Clean(text)
}

// maxID bounds the id of a request in bytes: the answer repeats it. maxMethod is how
// much is taken of the name of a method, which the log repeats.
const maxID, maxMethod = 256, 256

// takeMessage takes a message that came in a text of so many bytes.
func (c *Conn) takeMessage(raw []byte, whole int) {
	m, plain := rawjson.ReadMessage(raw)
	m.ID, m.Params, m.Result = ofItsOwn(m.ID, whole), ofItsOwn(m.Params, whole), ofItsOwn(m.Result, whole)
	method := rawjson.String(m.Method)
	method = method[:min(len(method), maxMethod)] // no method that Orla knows is as long
	switch {
	case !plain || m.Method != nil && method == "":
		c.opts.Handler.Noise(shortened(raw), "not a JSON-RPC message")
	case rawjson.String(m.Version) != "2.0": // a log line that looks like one must not answer a call
		c.opts.Handler.Noise(shortened(raw), `not a JSON-RPC message: it has no "jsonrpc":"2.0"`)
	case method != "" && m.ID == nil:
		c.opts.Handler.Notified(method, m.Params)
	case method != "" && len(m.ID) > maxID:
		c.opts.Handler.Noise(shortened(raw), fmt.Sprintf("a request whose id is over %d bytes", maxID))
	case method != "":
		c.opts.Handler.Asked(m.ID, method, m.Params)
	case m.ID != nil && (m.Result != nil || m.Error != nil):
		c.takeAnswer(m)
	default:
		c.opts.Handler.Noise(shortened(raw), "not a JSON-RPC message: it has neither a method nor a result")
	}
}

// ofItsOwn returns a part of a text, copied if the text is much larger: whoever gets the part counts only its
// bytes, and must not keep the whole text in memory.
func ofItsOwn(part json.RawMessage, whole int) json.RawMessage {
	const little = 16 << 10
	if part == nil || whole < little || len(part) > whole/2 {
		return part
	}
	return bytes.Clone(part)
}

func (c *Conn) takeAnswer(m rawjson.Message) {
	e := event{result: m.Result}
	if m.Error != nil && (m.Result == nil || !bytes.Equal(m.Error, []byte("null"))) {
		e = event{err: errorOf(m.Error)}
	}
	id, err := strconv.ParseInt(string(m.ID), 10, 64)
	if size := len(m.Result) + len(m.Error); err == nil && size > turns.Little {
		inHand, full := c.makeRoom(id, int64(size))
		if e.inHand = inHand; full != nil {
			e = event{err: full}
		}
	}
	if err != nil || !c.answer(id, e) {
		c.opts.Handler.Unclaimed(m.ID)
		return
	}
	c.unasked--
}

// makeRoom takes room for an answer. Without room it takes the bytes in hand and returns their number: the call
// waits for room then, and answers of other calls go on. If too much is in hand already, it waits, and
// nothing is read in the meantime. It waits only while no call of another caller would wait too, and returns
// ErrNoRoom after that.
func (c *Conn) makeRoom(id, size int64) (inHand int64, err error) {
	c.mu.Lock()
	p := c.calls.pending[id]
	c.mu.Unlock()
	if p == nil || p.room == nil {
		return 0, nil
	}
	if p.room.Later(size) {
		return size, nil
	}
	c.endWork() // it waits
	ctx, cancel := context.WithCancelCause(p.ctx)
	defer cancel(nil)
	if !c.standStill(p.Owner.Tenant(), cancel) {
		return 0, ErrNoRoom
	}
	defer c.goOn()
	if p.room.Need(ctx, size) != nil && p.ctx.Err() == nil { // a call that is over takes no answer
		return 0, ErrNoRoom
	}
	return 0, nil
}

// still is the wait of the reader for room for an answer of a caller, or for its turn.
type still struct {
	tenant turns.Owner
	end    context.CancelCauseFunc // nil while it does not
}

// standStill begins a wait of the reader. The next call of another caller ends it. It reports false if there is
// such a call already.
func (c *Conn) standStill(tenant turns.Owner, end context.CancelCauseFunc) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.calls.pending {
		if !p.own && !p.standing && p.Owner.Tenant() != tenant {
			return false
		}
	}
	c.still = still{tenant, end}
	return true
}

// goOn ends a wait of the reader.
func (c *Conn) goOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.still = still{}
}

// errorOf reads the error of an answer. An error that does not have the form of JSON-RPC is one too.
func errorOf(raw json.RawMessage) error {
	var wire jsonrpc.Error
	if err := json.Unmarshal(raw, &wire); err != nil || wire.Message == "" && wire.Code == 0 {
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: string(shortened(raw))}
	}
	return &wire
}

// shortened cuts a text that is quoted in the log or an error.
func shortened(text []byte) []byte {
	const enough = 4 << 10
	if len(text) <= enough {
		return text
	}
	return append(bytes.Clone(text[:enough]), "…"...)
}
