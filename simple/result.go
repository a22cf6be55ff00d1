package simple

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/manifest"
)

// Keys of a result's _meta (SPEC C3). Sizes are bytes, times milliseconds.
const (
	MetaExitCode      = "exit_code"
	MetaSignal        = "signal"
	MetaDuration      = "duration_ms"
	MetaStdoutDropped = "stdout_dropped"
	MetaStderrDropped = "stderr_dropped"
	// MetaStream marks a block that is not stdout.
	MetaStream = "stream"
)

// answer makes the result of a process that has ended.
func (c *Command) answer(r *run) (*mcp.CallToolResult, error) {
	code, signal := r.exit()
	if r.ended == nil && code == 0 && c.tool.Run.Output == manifest.OutputMCP {
		return c.passThrough(r)
	}
	res := &mcp.CallToolResult{Meta: r.meta()}
	res.Content = append(res.Content, r.block(&r.stdout, "stdout"))
	if len(r.stderr.kept) > 0 {
		res.Content = append(res.Content, r.block(&r.stderr, "stderr"))
	}
	res.Content = append(res.Content, c.cutNotes(r)...)
	if c.tool.Run.StructuredResults && c.output == nil {
		res.StructuredContent = r.structured(code)
	}
	switch {
	case r.ended != nil:
		return res, r.ended
	case signal != "":
		return res, fault.New(fault.ExecutionFailed, "%s was ended by a signal (%s)", c.tool.Name, signal)
	case code != 0:
		return res, fault.New(fault.ExecutionFailed, "%s exited with code %d", c.tool.Name, code)
	case c.output != nil:
		return c.withStructure(res, r)
	}
	return res, nil
}

// withStructure adds stdout as structured content, which must fit the tool's
// output schema.
func (c *Command) withStructure(res *mcp.CallToolResult, r *run) (*mcp.CallToolResult, error) {
	if err := c.output.ValidateOutput(r.stdout.kept); err != nil {
		return res, fault.Wrap(fault.ExecutionFailed, err, "stdout of %s does not fit its output schema: %v", c.tool.Name, err)
	}
	res.StructuredContent = json.RawMessage(bytes.TrimSpace(r.stdout.kept))
	return res, nil
}

// passThrough hands on the CallToolResult that the tool itself printed. Its
// blocks and its structured content go out byte for byte, so that numbers keep
// their digits.
func (c *Command) passThrough(r *run) (*mcp.CallToolResult, error) {
	var checked mcp.CallToolResult
	var raw struct {
		Content           []json.RawMessage `json:"content"`
		StructuredContent json.RawMessage   `json:"structuredContent"`
		IsError           bool              `json:"isError"`
		Meta              map[string]any    `json:"_meta"`
	}
	err := json.Unmarshal(r.stdout.kept, &raw)
	if err == nil {
		err = json.Unmarshal(r.stdout.kept, &checked)
	}
	if err == nil && raw.Content == nil && raw.StructuredContent == nil {
		err = fmt.Errorf("it has no content")
	}
	if err == nil && c.output != nil && !raw.IsError {
		err = c.output.ValidateOutput(raw.StructuredContent)
	}
	if err != nil {
		res := &mcp.CallToolResult{Meta: r.meta(), Content: []mcp.Content{r.block(&r.stdout, "stdout")}}
		return res, fault.Wrap(fault.ExecutionFailed, err, "stdout of %s is no CallToolResult (output: mcp): %v", c.tool.Name, err)
	}
	res := &mcp.CallToolResult{Meta: r.meta(), IsError: raw.IsError, Content: []mcp.Content{}}
	for _, block := range raw.Content {
		res.Content = append(res.Content, rawContent{json: block})
	}
	if raw.StructuredContent != nil && string(raw.StructuredContent) != "null" {
		res.StructuredContent = raw.StructuredContent
	}
	maps.Copy(res.Meta, raw.Meta)
	return res, nil
}

// rawContent is a content block that is passed on as it came.
type rawContent struct {
	mcp.Content // never set: the block is only ever marshalled
	json        json.RawMessage
}

// MarshalJSON returns the block as it came.
func (c rawContent) MarshalJSON() ([]byte, error) { return c.json, nil }

func (r *run) meta() mcp.Meta {
	code, signal := r.exit()
	meta := mcp.Meta{
		MetaExitCode:      code,
		MetaDuration:      r.took.Milliseconds(),
		MetaStdoutDropped: r.stdout.dropped,
		MetaStderrDropped: r.stderr.dropped,
	}
	if signal != "" {
		meta[MetaSignal] = signal
	}
	return meta
}

// block is one stream as content: text, or a blob when it is not UTF-8.
func (r *run) block(c *capture, stream string) mcp.Content {
	var meta mcp.Meta
	if stream != "stdout" {
		meta = mcp.Meta{MetaStream: stream}
	}
	text, ok := c.text()
	if !ok {
		return &mcp.EmbeddedResource{
			Meta: meta,
			Resource: &mcp.ResourceContents{
				URI:      fmt.Sprintf("orla://calls/%s/%s", r.callID, stream),
				MIMEType: http.DetectContentType(c.kept),
				Blob:     c.kept,
			},
		}
	}
	if stream != "stdout" {
		text = stream + ":\n" + text
	}
	return &mcp.TextContent{Text: text, Meta: meta}
}

// cutNotes tells people and models what is missing.
func (c *Command) cutNotes(r *run) []mcp.Content {
	var notes []mcp.Content
	for _, s := range []struct {
		name string
		*capture
	}{{"stdout", &r.stdout}, {"stderr", &r.stderr}} {
		if s.dropped > 0 {
			notes = append(notes, &mcp.TextContent{
				Text: fmt.Sprintf("[%s is cut: %d bytes more than max_output (%d) were dropped]", s.name, s.dropped, s.limit),
				Meta: mcp.Meta{MetaStream: "orla"},
			})
		}
	}
	return notes
}

func (r *run) structured(code int) map[string]any {
	stdout, _ := r.stdout.text()
	stderr, _ := r.stderr.text()
	return map[string]any{
		"stdout":    strings.ToValidUTF8(stdout, "\uFFFD"),
		"stderr":    strings.ToValidUTF8(stderr, "\uFFFD"),
		"exit_code": code,
	}
}
