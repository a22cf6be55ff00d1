package results

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// Passed is a peer's result on its way to the client, usually a CallToolResult. Its bytes are the
// peer's; only _meta may be replaced (SPEC L1).
type Passed struct {
	Raw      json.RawMessage
	meta     json.RawMessage // the _meta for the client; nil for none
	newMeta  bool            // meta differs from that in Raw
	Failed   bool            // isError
	Code     string          // tool_code, if failed; a long one is cut, since the log, the audit log and spans have it
	complete bool            // Raw has a resultType
	Requires bool            // the resultType is input_required
	State    json.RawMessage // the peer's requestState, if it requires input; nil for none
	signed   json.RawMessage // the requestState for the client; nil for none
}

// Look reads what Orla has to know of a peer's answer, without decoding it. call says that it
// answers a tools/call. Look reports false for anything but an object.
func Look(raw json.RawMessage, call bool) (Passed, bool) {
	p := Passed{Raw: raw}
	if p.lookAtMembers(call) {
		return p, true
	}
	object, _ := wire.PlainObject(raw) // a key has escapes, or raw is not an object
	p = Passed{Raw: object}
	return p, object != nil && p.lookAtMembers(call)
}

// lookAtMembers reports false for anything but an object whose keys have no escapes.
func (p *Passed) lookAtMembers(call bool) bool {
	plain := rawjson.Members(p.Raw, func(key []byte, value json.RawMessage) bool {
		switch string(key) {
		case "isError":
			p.Failed = call && string(value) == "true"
		case "_meta":
			p.meta = value
		case "resultType":
			p.complete = true
			p.Requires = rawjson.String(value) == "input_required"
		case "requestState":
			p.State = value
		}
		return true
	})
	if !p.Requires {
		p.State = nil
	}
	if plain {
		p.lookAtMeta()
	}
	return plain
}

// lookAtMeta removes from _meta the keys that the protocol reserves for the client and the
// server, since a peer is neither, and adds to that of a failure what clients act on (SPEC G5).
func (p *Passed) lookAtMeta() {
	had := p.meta
	meta, changed := wire.PlainObject(had)
	var add []wire.Member
	var coded, retry, drop bool
	if meta != nil {
		rawjson.Members(meta, func(key []byte, value json.RawMessage) bool {
			switch {
			case strings.HasPrefix(string(key), wire.ProtocolPrefix):
				drop = true
			case string(key) == MetaToolCode:
				coded, p.Code = true, wire.BriefName(rawjson.String(value))
			case string(key) == MetaRetryable:
				retry = true
			}
			return true
		})
	}
	if p.Failed && !coded {
		p.Code = string(fault.ExecutionFailed)
		add = append(add, wire.Member{Key: MetaToolCode, Value: rawjson.Quote(p.Code)})
	}
	if p.Failed && !retry {
		add = append(add, wire.Member{Key: MetaRetryable, Value: wire.Boolean(false)})
	}
	if p.newMeta = changed || drop || len(add) > 0 || (had != nil && meta == nil); !p.newMeta {
		return
	}
	if meta == nil {
		meta = json.RawMessage("{}")
	}
	p.meta, _ = rawjson.Edit(meta, func(key string) bool { return strings.HasPrefix(key, wire.ProtocolPrefix) }, add...)
	if rawjson.Empty(p.meta) {
		p.meta = nil
	}
}

// Sign replaces the peer's requestState by a signed one that only this client can give back. A
// state that is not signed, or not a string, is not passed on.
func (p *Passed) Sign(with *States, of Asking) {
	if !bytes.HasPrefix(p.State, []byte(`"`)) {
		return
	}
	var state string
	if json.Unmarshal(p.State, &state) == nil {
		p.signed = rawjson.Quote(with.sign(of, state))
	}
}

// Tell adds the number of attempts to a failure, if there was more than one.
func (p *Passed) Tell(attempts int) {
	if !p.Failed || attempts <= 1 {
		return
	}
	if p.meta == nil {
		p.meta = json.RawMessage("{}")
	}
	p.meta, p.newMeta = wire.Replaced(p.meta, wire.Member{Key: MetaAttempts, Value: strconv.AppendInt(nil, int64(attempts), 10)}), true
}

// Parts returns the answer as the client gets it. self is the server's Implementation as JSON in
// the stateless era; nil in the others.
func (p *Passed) Parts(self json.RawMessage) wire.Parts {
	if self == nil && !p.newMeta && p.State == nil {
		return wire.Parts{p.Raw}
	}
	change := []wire.Member{{Key: "_meta", Value: p.meta}}
	if p.State != nil {
		change = append(change, wire.Member{Key: "requestState", Value: p.signed})
	}
	if self != nil {
		if meta := p.meta; meta == nil {
			change[0].Value = wire.Parts{[]byte(`{"` + mcp.MetaKeyServerInfo + `":`), self, []byte("}")}.Join()
		} else {
			change[0].Value, _ = rawjson.Edit(meta, nil, wire.Member{Key: mcp.MetaKeyServerInfo, Value: self})
		}
		if !p.complete {
			change = append(change, wire.Member{Key: "resultType", Value: json.RawMessage(`"complete"`)})
		}
	}
	out, _ := wire.Rewritten(p.Raw, change...)
	return out
}

// errManyValues says that an answer has too many values to be decoded.
var errManyValues = errors.New("it has too many values")

// decoded returns the answer decoded. Its structuredContent and the members of _meta stay JSON.
func (p *Passed) decoded() (*mcp.CallToolResult, error) {
	res := &mcp.CallToolResult{}
	rest, _ := rawjson.Edit(p.Raw, func(key string) bool { return key == "structuredContent" || key == "_meta" })
	err := errManyValues
	if rawjson.Values(rest) <= wire.MaxLookedInto {
		err = res.UnmarshalJSON(rest)
	}
	if err != nil {
		res = &mcp.CallToolResult{}
	}
	res.IsError = p.Failed
	if p.meta != nil {
		rawjson.Members(p.meta, func(key []byte, value json.RawMessage) bool {
			if res.Meta == nil {
				res.Meta = mcp.Meta{}
			}
			res.Meta[string(key)] = value
			return true
		})
	}
	rawjson.Members(p.Raw, func(key []byte, value json.RawMessage) bool {
		if string(key) == "structuredContent" && string(value) != "null" {
			res.StructuredContent = value
		}
		return true
	})
	return res, err
}

// Passed turns a peer's answer that is too large into a result that fits, and keeps the large
// parts as resources (SPEC G5a).
func (c *Cutter) Passed(p *Passed, structured bool) *mcp.CallToolResult {
	whole := p.Raw
	meta := c.takeMeta(p)
	res, err := p.decoded()
	if err != nil {
		// Unknown content, or too much of it: the whole answer becomes one resource.
		res.StructuredContent = nil
		link := c.link(Large{text: rawjson.View(whole), mime: "application/json"}, "the answer as JSON")
		res.Content = link.behind(&mcp.TextContent{Text: fmt.Sprintf("[the answer of %d bytes is too large to be inline; as JSON it is %s]", len(whole), link.where())})
	}
	if res.Content == nil {
		res.Content = []mcp.Content{}
	}
	if meta != nil {
		res.Content = append(res.Content, meta)
	}
	if err == nil {
		return c.Bound(res, structured)
	}
	c.cutMeta(res)
	if structured && !res.IsError {
		res.IsError = true
		setDefault(res, MetaToolCode, string(fault.ExecutionFailed))
		setDefault(res, MetaRetryable, false)
	}
	return res
}

// takeMeta removes a large _meta from an answer before it is decoded, except for the keys of
// Orla. It returns the link to it; nil if it is not large.
func (c *Cutter) takeMeta(p *Passed) mcp.Content {
	if p.meta == nil || int64(len(p.meta)) <= c.budget/16 && rawjson.Count(p.meta) <= wire.MaxLookedInto {
		return nil
	}
	link := c.part(Large{text: rawjson.View(p.meta), mime: "application/json"}, "_meta")
	p.meta, _ = rawjson.Edit(p.meta, func(key string) bool { return !slices.Contains(metaOfOrla, key) })
	return link
}

// Relayed returns a peer's result of another request than a call as the client gets it; nil if it is not a result.
// requires is Passed.Requires. cached says that it must say whether it may be cached, as the stateless era requires. self is as for Parts.
func Relayed(raw json.RawMessage, with *States, of Asking, cached bool, self json.RawMessage) (result wire.Parts, requires bool) {
	p, ok := Look(rawjson.Compact(raw), false)
	if !ok {
		return nil, false
	}
	p.Sign(with, of)
	if cached && !p.Requires {
		p.Raw = Cacheable(p.Raw)
	}
	return p.Parts(self), p.Requires
}

// Cacheable adds ttlMs and cacheScope to a result without them: it must not be cached.
func Cacheable(raw json.RawMessage) json.RawMessage {
	change := []wire.Member{{Key: "ttlMs", Value: json.RawMessage("0")}, {Key: "cacheScope", Value: json.RawMessage(`"private"`)}}
	rawjson.Members(raw, func(key []byte, _ json.RawMessage) bool {
		change = slices.DeleteFunc(change, func(m wire.Member) bool { return m.Key == string(key) })
		return true
	})
	if len(change) == 0 {
		return raw
	}
	return wire.Replaced(raw, change...)
}
