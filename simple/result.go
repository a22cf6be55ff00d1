package simple

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/observe/brief"
	"github.com/orla-project/orla/manifest"
)

// Keys of a result's _meta (SPEC C3). Sizes are in bytes, times in milliseconds.
const (
	MetaExitCode      = "exit_code"
	MetaSignal        = "signal"
	MetaDuration      = "duration_ms"
	MetaStdoutDropped = "stdout_dropped"
	MetaStderrDropped = "stderr_dropped"
	// MetaStream marks a block that is not stdout.
	MetaStream = "stream"
)

// answer returns the result of a process that has ended.
func (c *Command) answer(ctx context.Context, r *run) (*mcp.CallToolResult, error) {
	code := r.exit.Code
	if r.ended == nil && r.exit.Err == nil && code == 0 && c.tool.Run.Output == manifest.OutputMCP {
		return c.passThrough(ctx, r)
	}
	var res *mcp.CallToolResult
	var err error
	if c.cli != nil {
		res, err = c.cliResult(ctx, r)
	} else {
		c.work(ctx, r, func() {
			if res = r.streams(); c.tool.Run.StructuredResults && c.output == nil {
				res.StructuredContent = r.structured(code)
			}
		})
	}
	switch {
	case r.ended != nil:
		return res, r.ended
	case err != nil:
		return res, err
	case r.exit.Err != nil:
		return res, r.exit.Err
	case r.exit.OutOfMemory:
		return res, fault.New(fault.ExecutionFailed, "%s was killed: it wanted more memory than it may have", c.tool.Name)
	case r.exit.Signal != 0:
		return res, fault.New(fault.ExecutionFailed, "%s was ended by a signal (%s)", c.tool.Name, r.exit.Signal)
	case code != 0:
		return res, c.exited(r)
	case c.output != nil:
		return c.withStructure(ctx, res, r)
	}
	return res, nil
}

// streams is run.streams in the turn of the call's owner.
func (c *Command) streams(ctx context.Context, r *run) (res *mcp.CallToolResult) {
	c.work(ctx, r, func() { res = r.streams() })
	return res
}

// streams returns the output of a process as content.
func (r *run) streams() *mcp.CallToolResult {
	res := &mcp.CallToolResult{Meta: r.meta()}
	res.Content = append(res.Content, r.block(&r.stdout, "stdout"))
	if len(r.stderr.kept) > 0 {
		res.Content = append(res.Content, r.block(&r.stderr, "stderr"))
	}
	res.Content = append(res.Content, r.cutNotes("stdout", "stderr")...)
	return res
}

// errNotUTF8 is the error for JSON with invalid UTF-8. The decoder would accept it, but clients
// would get the invalid bytes.
var errNotUTF8 = errors.New("it is not UTF-8")

// withStructure adds the structured content of a result: stdout, or the value that stands for it. It
// must match the tool's output schema.
func (c *Command) withStructure(ctx context.Context, res *mcp.CallToolResult, r *run) (*mcp.CallToolResult, error) {
	what, printed := "stdout", r.stdout.kept
	if c.cli != nil {
		switch c.cli.Output {
		case manifest.CLIBoth:
			what = "the output"
			printed, _ = res.StructuredContent.(json.RawMessage)
		case manifest.CLIStderr:
			what, printed = "stderr", r.stderr.kept
		case manifest.CLIStdout:
		}
	}
	err := c.output.ValidateOutput(ctx, printed)
	if !utf8.Valid(printed) {
		err = errNotUTF8
	}
	if ended := context.Cause(ctx); err != nil && ended != nil {
		return res, ended
	}
	if err != nil {
		f := fault.Wrap(fault.ExecutionFailed, err, "%s of %s does not fit its output schema: %v", what, c.tool.Name, err)
		if what == "stdout" {
			f.Reason += before(printed)
		}
		f.Logged = what + " of " + c.tool.Name + " does not fit its output schema"
		return res, f
	}
	res.StructuredContent = json.RawMessage(bytes.TrimSpace(printed))
	return res, nil
}

// before says what a tool has printed before its JSON, or in place of it; "" if it begins with JSON.
func before(printed []byte) string {
	text := bytes.TrimSpace(printed)
	if len(text) == 0 || text[0] == '{' || text[0] == '[' || json.Valid(text) {
		return ""
	}
	const most = 80
	line, _, _ := bytes.Cut(text, []byte("\n"))
	return fmt.Sprintf("; it begins with %q, and has to be JSON alone: logs belong on stderr", brief.Cut(string(line), most))
}

// passThrough returns the CallToolResult that the tool printed. Its blocks and its structured
// content are passed on byte for byte, so that numbers keep their digits. Orla's own keys in _meta
// override the tool's.
func (c *Command) passThrough(ctx context.Context, r *run) (*mcp.CallToolResult, error) {
	var res *mcp.CallToolResult
	var err error
	c.work(ctx, r, func() { res, err = readResult(ctx, r.stdout.kept) })
	if err == nil && c.output != nil && !res.IsError {
		structured, _ := res.StructuredContent.(json.RawMessage) // nil if there is none
		err = c.output.ValidateOutput(ctx, structured)
	}
	if ended := context.Cause(ctx); err != nil && ended != nil {
		return c.streams(ctx, r), ended
	}
	if err != nil {
		return c.streams(ctx, r), fault.Wrap(fault.ExecutionFailed, err, "stdout of %s is not a CallToolResult (output: mcp): %v", c.tool.Name, err).
			LoggedAs("stdout of " + c.tool.Name + " is not a CallToolResult (output: mcp)")
	}
	delete(res.Meta, MetaSignal)
	maps.Copy(res.Meta, r.meta())
	return res, nil
}

func (r *run) meta() mcp.Meta {
	meta := mcp.Meta{
		MetaExitCode:      r.exit.Code,
		MetaDuration:      r.took.Milliseconds(),
		MetaStdoutDropped: r.stdout.dropped,
		MetaStderrDropped: r.stderr.dropped,
	}
	if r.exit.Signal != 0 {
		meta[MetaSignal] = r.exit.Signal.String()
	}
	return meta
}

// block returns one stream as content: text, or a blob if it is not UTF-8.
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

// cutNotes returns blocks that say which streams are incomplete.
func (r *run) cutNotes(of ...string) []mcp.Content {
	var notes []mcp.Content
	for _, s := range []struct {
		name string
		*capture
	}{{"stdout", &r.stdout}, {"stderr", &r.stderr}} {
		if s.dropped > 0 && slices.Contains(of, s.name) {
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
