package cli

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/simple"
)

const (
	obeyed = "\x1b[2J\u009b31m\u202e\x07" // what a terminal would do, not show
	hidden = "\u2066\U000e0041"           // what it would not show
)

// What a tool printed cannot command the terminal that `orla call` shows it on. A
// file or a pipe gets what the tool answered.
func TestS2AnswersDoNotCommandATerminal(t *testing.T) {
	text := "one\n\ttwo" + obeyed + hidden
	answer := func() *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{
			&mcp.TextContent{Text: text},
			&mcp.TextContent{Text: "stderr:\n" + text, Meta: mcp.Meta{simple.MetaStream: "stderr"}},
			&mcp.ResourceLink{URI: "a:b", Name: text},
		}}
	}
	const odd = "\x1b\u009b\u202e\x07\u2066\U000e0041"
	var out, errs bytes.Buffer
	if err := printAnswer(answer(), terminal.Streams{Out: &out, Err: &errs}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), text) {
		t.Errorf("a pipe gets %q", &out)
	}
	if strings.ContainsAny(errs.String(), odd) || !strings.Contains(errs.String(), "one\n\ttwo"+`\x1b[2J`) {
		t.Errorf("stderr gets %q", &errs)
	}
	tty, shown := testkit.OpenTerminal(t)
	if err := printAnswer(answer(), terminal.Streams{Out: tty, Err: tty}); err != nil {
		t.Fatal(err)
	}
	if err := terminal.WriteJSON(tty, map[string]string{"text": text}); err != nil {
		t.Fatal(err)
	}
	if got := shown(); strings.ContainsAny(got, odd) || !strings.Contains(got, `\u202e`) {
		t.Errorf("the terminal gets %q", got)
	}
	tty, shown = testkit.OpenTerminal(t)
	v := view{client: statusOf(t, control.Status{Problems: []control.Problem{{Path: text, Messages: []string{text}}}}), asJSON: true, out: tty}
	if err := v.show(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := shown(); strings.ContainsAny(got, odd) || !strings.Contains(got, `\u202e`) {
		t.Errorf("the terminal gets as a status %q", got)
	}
}

// statusOf is a client of an Orla that answers with a status.
func statusOf(t *testing.T, status control.Status) *control.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(status)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return control.NewClient(socket)
}
