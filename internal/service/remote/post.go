package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/outbound"
)

// The headers of the transport.
const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
	headerLastID  = "Last-Event-Id"
)

const (
	typeJSON = "application/json"
	typeSSE  = "text/event-stream"
)

// request makes a request of the transport.
func (s *session) request(ctx context.Context, method string, body []byte, c auth.Credentials) (*http.Request, error) {
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.endpoint, content)
	if err != nil { // the URL was checked with the manifest
		return nil, fault.Wrap(fault.RuntimePolicyInvalid, err, "the endpoint is not a URL")
	}
	s.mu.Lock()
	id, speaks := s.id, s.speaks
	s.show(c)
	s.mu.Unlock()
	if id != "" {
		req.Header.Set(headerSession, id)
	}
	if speaks != "" {
		req.Header.Set(headerVersion, speaks)
	}
	if s.opts.UserAgent != "" {
		req.Header.Set("User-Agent", s.opts.UserAgent)
	}
	c.Apply(req.Header)
	return req, nil
}

// post sends one message, and passes on the server's answer.
func (s *session) post(ctx context.Context, m message, c auth.Credentials) error {
	req, err := s.request(ctx, http.MethodPost, m.text, c)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", typeJSON)
	req.Header.Set("Accept", typeJSON+", "+typeSSE)
	if m.stateless() {
		s.headers(req.Header, m)
	}
	m.at.Headers(req.Header.Set)
	if s.opts.Sign != nil {
		s.opts.Sign(req.Header, m.whose)
	}
	resp, err := s.opts.Client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // everything needed was read
	if resp.Request != nil && resp.Request.Method != http.MethodPost {
		return final("the server redirects to %s%s, where a POST cannot follow; name that as the endpoint",
			outbound.Origin(resp.Request.URL), resp.Request.URL.Path)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return s.refused(ctx, resp, m, c)
	}
	if !m.isRequest() {
		_, _ = io.CopyN(io.Discard, resp.Body, maxRefusal) // so that the connection can be reused
		return nil
	}
	return s.take(ctx, resp, m)
}

// take passes on the server's answer to a request.
func (s *session) take(ctx context.Context, resp *http.Response, m message) error {
	if m.method == "initialize" {
		if err := s.attach(resp.Header.Get(headerSession)); err != nil {
			return err
		}
	}
	kind := contentType(resp.Header)
	switch {
	case kind == typeSSE:
		return s.follow(ctx, resp, m)
	case resp.StatusCode == http.StatusAccepted || resp.StatusCode == http.StatusNoContent:
		return final("the server took %s without an answer (%s)", m.method, resp.Status)
	case kind != typeJSON:
		return final("the server answered with %q, which MCP does not know; is there an MCP server at this endpoint?", kind)
	}
	r := s.reading(ctx, m.whose)
	defer r.release()
	body, err := s.body(resp, r.grow)
	if err != nil {
		return err
	}
	switch isJSON, answered, err := s.hand(ctx, body, m); {
	case err != nil:
		return err
	case !isJSON:
		return final("the server answered %s with something that is not JSON", m.method)
	case !answered:
		return final("the server answered %s with something that is not an answer to it", m.method)
	}
	return nil
}

// final returns an error that a retry does not help against.
func final(format string, args ...any) *fault.Error {
	return fault.New(fault.ExecutionFailed, format, args...).Again(false)
}

// broken returns an error that a retry may help against.
func broken(format string, args ...any) *fault.Error {
	return fault.New(fault.ExecutionFailed, format, args...).Again(true)
}

// contentType returns the media type of an answer, for a message.
func contentType(h http.Header) string {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		kind, _, _ = strings.Cut(h.Get("Content-Type"), ";")
	}
	const enough = 100
	return kind[:min(len(kind), enough)]
}

func (s *session) tooLarge() *fault.Error {
	return final("the server gave an answer of over max_message (%d bytes)", s.max)
}

// hand passes on a message of the server, and reports whether it is JSON, and whether it was the answer to m and
// was still valid JSON after secrets were removed. A large one waits for a turn of m's caller; the error is the
// cause of ctx's end. The caller must not use text afterwards.
func (s *session) hand(ctx context.Context, text []byte, m message) (isJSON, answered bool, err error) {
	var line []byte
	whole, questions := false, 0
	if err := m.room.Work(ctx, len(text), func() {
		if line = oneLine(text); line != nil {
			if line, answered = s.sort(line, m); !answered {
				questions = questionsIn(line)
			}
			line, whole = s.cleaned(line)
		}
	}); err != nil {
		return false, false, err
	}
	if line == nil {
		return false, false, nil
	}
	if unasked := s.receive(line); unasked > 0 { //nolint:contextcheck // an answer waits in the context of its call
		s.pauses(m.whose, unasked, len(line))
	}
	s.slow(ctx.Done(), questions)
	return true, whole && answered, nil
}

// sort finds out whether a message of the server is the answer to m, and adds to any other one that it belongs
// to m.
func (s *session) sort(line []byte, m message) (_ []byte, answered bool) {
	if m.isRequest() {
		var result []byte
		if result, answered = answers(line, m.id); answered && m.method == "initialize" {
			s.agree(result)
		}
		if !answered {
			var question json.RawMessage
			if line, question = about(line, m.id); question != nil {
				s.asked.add(question, m.whose)
			}
		} else if m.stateless() && m.method == "tools/list" {
			s.learn(m, line)
		}
	}
	return line, answered
}
