package stdio

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/mcpbridge/budget"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// batch is a JSON-RPC batch that waits for its answers.
type batch struct {
	left    int
	answers []wire.Parts
	release []func()        // give back the room of the answers so far
	account *budget.Account // of the batch, until the answers are written
}

// add collects an answer. With the last one it returns all of them; nil before, and if there are
// none.
func (in *batch) add(answer wire.Parts, release func()) (all wire.Parts, releaseAll func()) {
	if answer != nil {
		in.answers = append(in.answers, answer)
	}
	if release != nil {
		in.release = append(in.release, release)
	}
	if in.left--; in.left > 0 {
		return nil, nil
	}
	in.account.Worked()
	between := []byte("[")
	for _, one := range in.answers {
		all = append(append(all, between), one...)
		between = []byte(",")
	}
	if all != nil {
		all = append(all, []byte("]"))
	}
	return all, func() {
		in.account.End()
		for _, release := range in.release {
			release()
		}
	}
}

func (c *Conn) takeBatch(data []byte, account *budget.Account) {
	all, refusals, wrong := wire.ReadBatch(data)
	if wrong != nil {
		account.End()
		c.complain(nil, wrong.Code, wrong.Message)
		return
	}
	in := &batch{left: 1, account: account} // one more, until all members are added
	for i, m := range all {
		var refusal json.RawMessage
		switch {
		case refusals[i] != nil:
			refusal = wire.ErrorOf(m.ID, refusals[i])
		case m.Method == wire.MethodInitialize:
			refusal = wire.ErrorJSON(m.ID, jsonrpc.CodeInvalidRequest, "an initialize cannot be part of a batch")
		default:
			refusal = c.accept(m, pending{in: in})
		}
		if refusal != nil {
			c.mu.Lock()
			in.answers = append(in.answers, wire.Parts{refusal})
			c.mu.Unlock()
		}
	}
	c.mu.Lock()
	whole, release := in.add(nil, nil)
	c.mu.Unlock()
	if release != nil {
		defer release()
	}
	if whole != nil {
		c.deliverLogged(whole)
	}
}
