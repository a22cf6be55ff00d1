package arguments

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/decisions"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/secret"
)

// KeepRequest asks for the arguments of calls of a tool.
type KeepRequest struct {
	Keep *bool `json:"keep" jsonschema:"true keeps them from now on, for ten minutes, and false forgets them."`
}

// KeptCalls are the arguments that are kept.
type KeptCalls struct {
	Tools []control.KeptArguments `json:"tools" jsonschema:"The tools of which arguments are kept, sorted by name."`
	Calls []KeptCall              `json:"calls" jsonschema:"Their calls, oldest first; those in flight too."`
}

// KeptCall is a call whose arguments are kept.
type KeptCall struct {
	N         uint64    `json:"n" jsonschema:"Its number: later calls have higher ones."`
	ID        string    `json:"call_id" jsonschema:"As in the log."`
	Tool      string    `json:"tool" jsonschema:"The tool, as clients name it."`
	Caller    string    `json:"caller" jsonschema:"Who called, as in the log."`
	Began     time.Time `json:"began" jsonschema:"When the call began."`
	Bytes     int       `json:"bytes" jsonschema:"The size of the arguments."`
	Arguments string    `json:"arguments,omitempty" jsonschema:"The arguments as JSON text, as the caller wrote them, with [redacted] in place of values that are secrets of the configuration. Absent if they have more than 64 KiB."`
}

// renewAfter is the age from which the secrets are read again before arguments are shown.
const renewAfter = 2 * time.Second

// Routes are the requests that a Keeper answers.
func (k *Keeper) Routes() []control.Route {
	return []control.Route{
		{Pattern: "POST /v1/tools/{name}/arguments", Answer: k.change},
		{Pattern: "GET /v1/arguments", Answer: k.list},
	}
}

// change starts or stops.
func (k *Keeper) change(r *http.Request, body []byte) (any, error) {
	var asked KeepRequest
	if err := control.Decode(body, &asked); err != nil {
		return nil, err
	}
	by, err := decisions.AskedBy(r)
	switch {
	case err != nil:
		return nil, err
	case asked.Keep == nil:
		return nil, &control.Error{Code: control.CodeBadRequest, Message: "keep is required: true or false"}
	case *asked.Keep:
		return k.Start(r.PathValue("name"), by)
	}
	return k.Stop(r.PathValue("name"), by)
}

// list answers with the arguments of one call, or of all after one.
func (k *Keeper) list(r *http.Request, _ []byte) (any, error) {
	var id string
	var after uint64
	for key, values := range r.URL.Query() {
		value := values[len(values)-1]
		switch key {
		case "call_id":
			id = value
		case "after":
			var err error
			if after, err = strconv.ParseUint(value, 10, 64); err != nil {
				return nil, &control.Error{Code: control.CodeBadRequest, Message: "after=" + value + ": wants the number of a call"}
			}
		default:
			return nil, &control.Error{Code: control.CodeBadRequest, Message: fmt.Sprintf("there is no parameter %q", key), Hint: "there are call_id and after"}
		}
	}
	kept := KeptCalls{Tools: append([]control.KeptArguments{}, k.Tools()...), Calls: []KeptCall{}}
	if len(kept.Tools) > 0 {
		hides, err := k.renew(renewAfter)
		if err != nil {
			return nil, err
		}
		for _, c := range k.after(after) {
			if id == "" || c.id == id {
				kept.Calls = append(kept.Calls, c.shown(hides))
			}
		}
	}
	if id != "" && len(kept.Calls) == 0 {
		return nil, &control.Error{Code: control.CodeNotFound, Message: "no arguments are kept of a call " + strconv.Quote(id), Hint: "they are kept of calls that begin after an operator has asked for those of the tool, for ten minutes"}
	}
	return kept, nil
}

// after returns the calls after one.
func (k *Keeper) after(n uint64) []call {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(k.calls), func(c call) bool { return c.n <= n })
}

// shown returns a call for people.
func (c *call) shown(hides *secret.Redactor) KeptCall {
	shown := KeptCall{N: c.n, ID: c.id, Tool: c.tool, Caller: c.caller, Began: c.began, Bytes: c.bytes}
	if c.args == nil {
		return shown
	}
	args := bytes.TrimSpace(c.args)
	if len(args) == 0 || string(args) == "null" {
		args = []byte("{}")
	}
	args = c.hides.RedactBody(args)
	if hides != c.hides {
		args = hides.RedactBody(args)
	}
	shown.Arguments = strings.ToValidUTF8(string(args), "\ufffd")
	return shown
}

func unknown(tool string) error {
	return &control.Error{Code: string(fault.UnsupportedTool), Message: fmt.Sprintf("there is no tool %q", tool), Hint: "orla tools lists the names that clients use"}
}

func refused(format string, args ...any) error {
	return &control.Error{Code: control.CodeRefused, Message: fmt.Sprintf(format, args...)}
}
