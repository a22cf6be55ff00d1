package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// Answer makes the call's answer from a body that must be an envelope. The bytes of the body are those of
// the answer from then on.
func (x *Exchange) Answer(body []byte) (peer.Answer, error) {
	r, err := x.Decode(body)
	if err != nil {
		return peer.Answer{}, err
	}
	if !r.Terminal() {
		return peer.Answer{}, x.violation(body, errText("its status is neither success nor error"))
	}
	return x.Result(r)
}

// Result makes the call's answer from a terminal response (SPEC-TOOLS 2.3).
func (x *Exchange) Result(r Response) (answer peer.Answer, err error) {
	if ended := x.work(len(r.Result), func() { answer, err = x.result(r) }); ended != nil {
		return peer.Answer{}, ended
	}
	return x.checked(answer, err)
}

// work does work on n bytes of an answer in the turn of the call's owner. The error is the cause of
// the attempt's end.
func (x *Exchange) work(n int, work func()) error {
	if err := turns.AccountOf(x.ctx).Work(x.ctx, n, work); err != nil {
		return fault.From(err)
	}
	return nil
}

func (x *Exchange) result(r Response) (peer.Answer, error) {
	if r.Err != nil {
		return peer.Answer{}, r.Err
	}
	return x.ofJSON(bytes.TrimSpace(r.Result))
}

// Failure returns the failure in the body of an answer that the transport marks as an error; nil if
// the body has none. strict requires an envelope with the call's id.
func (x *Exchange) Failure(body []byte, strict bool) *fault.Error {
	if strict {
		if r, err := x.Decode(body); err == nil {
			return r.Err
		}
		return nil
	}
	if m, err := members(x.credentials.RedactBody(body)); err == nil {
		if r, is, err := x.sniff(m); is && err == nil {
			return r.Err
		}
	}
	return nil
}

// Raw makes the call's answer, as Answer does, from a body that may be an envelope. Any other body is the result
// itself (SPEC-TOOLS 3.1).
func (x *Exchange) Raw(body []byte, contentType string) (answer peer.Answer, err error) {
	if ended := x.work(len(body), func() { answer, err = x.raw(body, contentType) }); ended != nil {
		return peer.Answer{}, ended
	}
	return x.checked(answer, err)
}

func (x *Exchange) raw(body []byte, contentType string) (peer.Answer, error) {
	body = x.credentials.RedactBody(body)
	media, _, err := mime.ParseMediaType(x.credentials.Redact(contentType))
	if err != nil {
		media = "" // an invalid header is ignored
	}
	if picture := content(media, body); picture != nil {
		return x.unstructured(&mcp.CallToolResult{Content: []mcp.Content{picture}}, errNotJSON)
	}
	m, err := members(body)
	if err == nil {
		if r, is, err := x.sniff(m); is {
			if err != nil {
				return peer.Answer{}, x.violation(body, err)
			}
			return x.result(r)
		}
		return x.ofJSON(bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\xEF\xBB\xBF"))))
	}
	if text := bytes.TrimSpace(body); isJSON(media) && len(text) > 0 && text[0] == '"' && utf8.Valid(text) && rawjson.Valid(text) {
		return x.ofJSON(text)
	}
	if !utf8.Valid(body) || bytes.IndexByte(body, 0) >= 0 {
		return x.unstructured(&mcp.CallToolResult{Content: []mcp.Content{x.blob(media, body)}}, err)
	}
	return x.unstructured(textResult(rawjson.View(body)), err)
}

func isJSON(media string) bool {
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

// content returns a block for an image or audio; nil for other types.
func content(media string, body []byte) mcp.Content {
	switch kind, _, _ := strings.Cut(media, "/"); {
	case len(body) == 0:
		return nil
	case kind == "image":
		return &mcp.ImageContent{Data: body, MIMEType: media}
	case kind == "audio":
		return &mcp.AudioContent{Data: body, MIMEType: media}
	}
	return nil
}

// blob returns a block for bytes that are not text.
func (x *Exchange) blob(media string, body []byte) mcp.Content {
	if media == "" {
		media = http.DetectContentType(body)
	}
	return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{
		URI:      fmt.Sprintf("orla://calls/%s/body", x.requestID),
		MIMEType: media,
		Blob:     body,
	}}
}

func textResult(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// ofJSON returns a result from JSON: an object becomes structured content and its text, a string a
// text, anything else the text of its JSON. Without JSON the result is empty. An object is not
// checked yet.
func (x *Exchange) ofJSON(raw json.RawMessage) (peer.Answer, error) {
	if len(raw) == 0 {
		return x.unstructured(textResult(""), errEmpty)
	}
	if raw[0] == '{' {
		res := textResult(rawjson.View(raw))
		res.StructuredContent = raw
		return peer.Answer{Result: res}, nil
	}
	text := rawjson.View(raw)
	if raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 {
		text = text[1 : len(text)-1]
	} else if raw[0] == '"' {
		if err := json.Unmarshal(raw, &text); err != nil {
			panic(err) // it was checked to be valid
		}
	}
	return x.unstructured(textResult(text), errNotObject)
}

// checked checks structured content against the output schema. Checks of large values wait for each
// other; so that is not done in a turn of work.
func (x *Exchange) checked(answer peer.Answer, err error) (peer.Answer, error) {
	if err != nil || x.tool.output == nil {
		return answer, err
	}
	raw, ok := answer.Result.StructuredContent.(json.RawMessage)
	if !ok {
		return answer, nil
	}
	if err := x.tool.output.ValidateOutput(x.ctx, raw); err != nil {
		if ended := context.Cause(x.ctx); ended != nil {
			return peer.Answer{}, ended
		}
		answer.Result.StructuredContent = nil
		return answer, x.misfit(err)
	}
	return answer, nil
}

// unstructured returns a result without structured content. With an output schema that is an error:
// why explains it.
func (x *Exchange) unstructured(res *mcp.CallToolResult, why error) (peer.Answer, error) {
	if x.tool.output != nil {
		return peer.Answer{Result: res}, x.misfit(why)
	}
	return peer.Answer{Result: res}, nil
}

// misfit is the error for a result that does not match the tool's output schema.
func (x *Exchange) misfit(err error) *fault.Error {
	return fault.New(fault.ExecutionFailed, "the result of %s does not fit its output schema: %s", x.tool.name, x.shown(err.Error(), maxReason)).
		LoggedAs("the result of " + x.tool.name + " does not fit its output schema")
}
