package retry

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// failureOf returns the failure of an attempt that may be repeated: its fault, or a result that says that
// the tool failed and that trying again can help. It returns nil for a success and for every other
// failure.
func failureOf(answer peer.Answer, err error) *fault.Error {
	if err == nil {
		return saidSo(answer)
	}
	return faultOf(err)
}

// faultOf returns err as a fault; nil for a JSON-RPC error of the tool.
func faultOf(err error) *fault.Error {
	_, ours := errors.AsType[*fault.Error](err)
	if _, refused := errors.AsType[*jsonrpc.Error](err); refused && !ours {
		return nil
	}
	return fault.From(err)
}

// saidSo returns the failure of a result with isError whose _meta says that it is retryable
// (SPEC-TOOLS 4.1); else nil.
func saidSo(answer peer.Answer) *fault.Error {
	failed, meta := answer.Result != nil && answer.Result.IsError, said{}
	if failed {
		meta.code, _ = answer.Result.Meta["tool_code"].(string)
		meta.retryable, _ = answer.Result.Meta["retryable"].(bool)
	} else if rawjson.IsObject(answer.Raw) {
		failed, meta = inRaw(answer.Raw)
	}
	if !failed || !meta.retryable {
		return nil
	}
	f := fault.New(fault.ExecutionFailed, "the tool says that it failed, and that to try again can help")
	if own, ok := fault.Parse(meta.code); ok {
		f.Code = own
	}
	f.Retry = &meta.retryable
	return f
}

// said is what the _meta of a result says about its failure.
type said struct {
	code      string
	retryable bool
}

// inRaw looks for a failure in a result as it came.
func inRaw(raw json.RawMessage) (failed bool, of said) {
	var meta json.RawMessage
	rawjson.Members(raw, func(key []byte, value json.RawMessage) bool {
		switch string(key) {
		case "isError":
			failed = string(value) == "true"
		case "_meta":
			meta = value
		}
		return true
	})
	if !failed || !rawjson.IsObject(meta) {
		return failed, said{}
	}
	rawjson.Members(meta, func(key []byte, value json.RawMessage) bool {
		switch string(key) {
		case "tool_code":
			of.code = rawjson.String(value)
		case "retryable":
			of.retryable = string(value) == "true"
		}
		return true
	})
	return true, of
}

// told returns the error that ends a call, with the number of attempts if there was more than one, and why
// there was not another one.
func told(err error, attempts int, why string) error {
	f := faultOf(err)
	if f == nil {
		return err
	}
	told := *f
	switch {
	case attempts == 1 && why == "":
		return err
	case attempts == 1:
		told.Reason += " (not tried again: " + why + ")"
	case why == "":
		told.Reason += fmt.Sprintf(" (after %d attempts)", attempts)
	default:
		told.Reason += fmt.Sprintf(" (after %d attempts; not tried again: %s)", attempts, why)
	}
	return &told
}
