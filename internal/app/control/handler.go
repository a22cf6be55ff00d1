package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

const (
	// bodyTimeout is how long the body of a request may take.
	bodyTimeout = time.Minute
	// stallTimeout is after how long a stream that nobody reads is given up.
	stallTimeout = 30 * time.Second
)

// route is one thing that can be asked.
type route struct {
	pattern string // as http.ServeMux takes it
	handle  handle
	of      audience
}

// handle returns the answer to a request, or why there is none. The answer is nil if it has written one.
type handle func(*Server, http.ResponseWriter, *http.Request) (any, error)

// Route is a request that another package answers.
type Route struct {
	Pattern string // as http.ServeMux takes it
	// Answer returns what is sent as JSON, or why there is none. body is that of the request, as a whole.
	Answer func(r *http.Request, body []byte) (any, error)
}

// audience is who may ask.
type audience int

const (
	socket audience = iota // only who has opened the control socket
	both                   // the page of the console too
)

// largeAtOnce is how many answers that grow with the number of tools are made at once, beside one list of all tools. Each takes some 30 MiB for 10 000 tools,
// of which 1 to 3 are left when it is written.
const largeAtOnce = 2

// inTurn makes the answers of handle in turn, and encodes them before another is made. A client that is slow to read holds nobody up.
func inTurn(turn chan struct{}, handle handle) handle {
	return func(s *Server, w http.ResponseWriter, r *http.Request) (any, error) {
		select {
		case turn <- struct{}{}:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		defer func() { <-turn }()
		v, err := handle(s, w, r)
		if err != nil {
			return nil, err
		}
		return encoded(v), nil
	}
}

// routes are all of them. docs/control-api.yaml has the same. Answers of different callers of routes take turns of their own.
func routes() []route {
	turn := make(chan struct{}, largeAtOnce)
	listing := make(chan struct{}, 1) // what is made there waits for tools that start, and status must not wait for that
	return []route{
		{"GET /v1/status", inTurn(turn, (*Server).status), both},
		{"GET /v1/status/{name}", (*Server).toolStatus, both},
		{"GET /v1/tools", inTurn(listing, (*Server).tools), both},
		{"GET /v1/manifests/{name}", (*Server).manifest, both},
		{"POST /v1/tools/{name}/call", (*Server).call, both},
		{"POST /v1/capsules/{name}/restart", operation(Restart), both},
		{"POST /v1/capsules/{name}/stop", operation(Stop), both},
		{"POST /v1/capsules/{name}/start", operation(Start), both},
		{"POST /v1/reload", (*Server).reload, socket},
		{"POST /v1/upgrade", (*Server).upgrade, socket},
		{"GET /v1/pins", inTurn(turn, (*Server).pins), both},
		{"GET /v1/pins/{name}", (*Server).pinned, both},
		{"POST /v1/pins/{name}/approve", (*Server).approvePins, socket},
		{"GET /v1/logs", (*Server).logs, both},
		{"GET /v1/events", (*Server).events, socket},
		{"GET /v1/watch", (*Server).watch, both},
		{"POST /v1/questions/{id}", (*Server).answer, both},
		{"GET /v1/numbers", inTurn(turn, (*Server).numbers), both},
		{"GET /v1/audit", (*Server).auditLog, both},
		{"POST /v1/audit/verify", (*Server).verifyAudit, both},
		{"GET /v1/packages", (*Server).packages, both},
		{"POST /v1/console", (*Server).consoleLink, socket},
		{"GET /v1/approvals", (*Server).approvals, both},
		{"GET /v1/approvals/{id}", (*Server).approval, both},
		{"POST /v1/approvals/{id}/approve", (*Server).approve, socket},
		{"POST /v1/approvals/{id}/deny", (*Server).deny, socket},
		{"POST /v1/approvals/{id}/extend", (*Server).extend, socket},
	}
}

// handler answers the requests of an audience. Every error has the one shape, those of the mux too.
func (s *Server) handler(of audience) http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes() {
		if r.of < of {
			continue
		}
		mux.HandleFunc(r.pattern, func(w http.ResponseWriter, req *http.Request) {
			if v, err := r.handle(s, w, req); v != nil || err != nil {
				Send(w, v, err)
			}
		})
	}
	for _, other := range s.opts.Others {
		mux.HandleFunc(other.Pattern, func(w http.ResponseWriter, req *http.Request) {
			body, err := s.body(w, req)
			if err != nil {
				Send(w, nil, err)
				return
			}
			v, err := other.Answer(req, body)
			Send(w, v, err)
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r) // not h: it would not know the pattern's names
			return
		}
		var said verdict
		h.ServeHTTP(&said, r)
		if allow := said.Header().Get("Allow"); allow != "" {
			w.Header().Set("Allow", allow)
			refuse(w, &Error{Code: CodeMethod, Message: fmt.Sprintf("%s takes %s, not %s", r.URL.Path, allow, r.Method)})
			return
		}
		refuse(w, &Error{Code: CodeNotFound, Message: "there is no " + r.URL.Path, Hint: "docs/control-api.yaml lists what there is"})
	})
}

// verdict takes what the mux says of a request that it has no pattern for.
type verdict struct{ header http.Header }

func (v *verdict) Header() http.Header {
	if v.header == nil {
		v.header = http.Header{}
	}
	return v.header
}
func (v *verdict) Write(p []byte) (int, error) { return len(p), nil }
func (v *verdict) WriteHeader(int)             {}

func refuse(w http.ResponseWriter, e *Error) { send(w, e.status(), e) }

// Send answers a request with v, or with err if it is not nil.
func Send(w http.ResponseWriter, v any, err error) {
	if err != nil {
		refuse(w, asError(err))
		return
	}
	send(w, http.StatusOK, v)
}

// send writes one JSON value. A client that is gone needs no answer.
func send(w http.ResponseWriter, status int, v any) {
	body, is := v.(encodedJSON)
	if !is {
		body = encoded(v)
	}
	if body == nil { // a schema or a result that is not JSON
		status, body = http.StatusInternalServerError, []byte(`{"code":"internal","message":"the answer is not JSON"}`+"\n")
	}
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(stallTimeout))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// encodedJSON is a line of JSON.
type encodedJSON []byte

// encoded returns the JSON of a value, in a line; nil if it has none.
func encoded(v any) encodedJSON {
	body, err := rawjson.Line(v) // arguments stay what they are: with escapes they may be larger than arguments can be
	if err != nil {
		return nil
	}
	return body
}

func (s *Server) status(http.ResponseWriter, *http.Request) (any, error) {
	return s.opts.Backend.Status(), nil
}

func (s *Server) toolStatus(_ http.ResponseWriter, r *http.Request) (any, error) {
	return s.opts.Backend.Tool(r.PathValue("name"))
}

func (s *Server) tools(_ http.ResponseWriter, r *http.Request) (any, error) {
	return ListedTools{Tools: append([]ListedTool{}, s.opts.Backend.Tools(r.Context())...)}, nil
}

func (s *Server) manifest(_ http.ResponseWriter, r *http.Request) (any, error) {
	return s.opts.Backend.Manifest(r.PathValue("name"))
}

func (s *Server) call(w http.ResponseWriter, r *http.Request) (any, error) {
	var asked CallRequest
	if err := s.read(w, r, &asked); err != nil {
		return nil, err
	}
	by, ok := r.Context().Value(callerKey{}).(Caller)
	if !ok {
		by = Caller{Name: CLI}
	}
	if asked.Timeout > 0 {
		most := time.Duration(min(asked.Timeout, maxTimeout.Milliseconds())) * time.Millisecond
		late := fault.New(fault.Timeout, "%s gave no answer within %s", r.PathValue("name"), most)
		ctx, cancel := context.WithTimeoutCause(r.Context(), most, late)
		defer cancel()
		r = r.WithContext(ctx)
	}
	if asked.Stream {
		s.callStreaming(w, r, by, asked)
		return nil, nil
	}
	return s.opts.Backend.Call(r.Context(), by, r.PathValue("name"), asked.Arguments, nil)
}

// maxTimeout is the longest CallRequest.Timeout; a longer one is this.
const maxTimeout = 24 * time.Hour

// read decodes the body of a request into v. An empty one is an empty object.
func (s *Server) read(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := s.body(w, r)
	if err != nil {
		return err
	}
	if len(strings.TrimSpace(string(body))) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, v); err != nil {
		return &Error{Code: CodeBadRequest, Message: "the request's body: " + err.Error()}
	}
	return nil
}

// body reads the body of a request.
func (s *Server) body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) // what net/http gives us can
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.opts.MaxRequest))
	_ = control.SetReadDeadline(time.Time{}) // it would end a call that takes long
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &Error{Code: CodeTooLarge, Message: fmt.Sprintf("the request is larger than max_request, which is %d bytes", tooLarge.Limit)}
	}
	if err != nil {
		return nil, &Error{Code: CodeBadRequest, Message: "the request's body is cut off: " + err.Error()}
	}
	return body, nil
}

// operation does something to a capsule, and answers with what it is then.
func operation(action Action) handle {
	return func(s *Server, w http.ResponseWriter, r *http.Request) (any, error) {
		if err := s.opts.Backend.Operate(r.Context(), r.PathValue("name"), action); err != nil {
			return nil, err
		}
		return s.toolStatus(w, r)
	}
}

func (s *Server) reload(w http.ResponseWriter, r *http.Request) (any, error) {
	var asked ReloadRequest
	if err := s.read(w, r, &asked); err != nil {
		return nil, err
	}
	by, err := PeerOf(r)
	if err != nil {
		return nil, err
	}
	return s.opts.Backend.Reload(r.Context(), by, asked)
}

// logs streams lines of the log: by default all that are kept, and then it ends.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) (any, error) {
	return s.stream(w, r, Query{})
}

// events streams what happens: by default from now on, without an end.
func (s *Server) events(w http.ResponseWriter, r *http.Request) (any, error) {
	q := Query{Events: Events(), Follow: true, Last: -1}
	if r.URL.Query().Has("since") {
		q.Last = 0
	}
	return s.stream(w, r, q)
}

// parseQuery reads the parameters of a stream. What is not given is as in q.
func parseQuery(given url.Values, q Query) (Query, error) {
	for key, values := range given {
		value := values[len(values)-1]
		var err error
		switch key {
		case "tool":
			if q.Tools = values; len(values) > maxLogTools {
				err = fmt.Errorf("at most %d tools", maxLogTools)
			}
		case "n":
			q.Last, err = parseLast(value)
		case "since":
			q.Since, err = time.Parse(time.RFC3339Nano, value)
		case "follow":
			q.Follow, err = strconv.ParseBool(value)
		case "event":
			q.Events = values
		case "level":
			q.Level, err = oneOf(value, Levels())
		case "grep":
			q.Grep = value
		case "stream":
			q.Stream, err = oneOf(value, []string{"stdout", "stderr"})
		default:
			return q, &Error{Code: CodeBadRequest, Message: fmt.Sprintf("there is no parameter %q", key), Hint: "there are tool, n, since, follow, event, level, stream and grep"}
		}
		if err != nil {
			return q, &Error{Code: CodeBadRequest, Message: fmt.Sprintf("%s=%s: %v", key, value, err)}
		}
	}
	return q, nil
}

// oneOf refuses what is not one of some words.
func oneOf(value string, words []string) (string, error) {
	if !slices.Contains(words, value) {
		return "", fmt.Errorf("wants one of %s", strings.Join(words, ", "))
	}
	return value, nil
}

// parseLast reads how many lines of the past are wanted. 0 is none of them.
func parseLast(text string) (int, error) {
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || n < 0 || n > 10_000: // they are held until all are known
		return 0, errors.New("wants a number of lines, up to 10000; since without n returns all from then on")
	case n == 0:
		return -1, nil
	}
	return n, nil
}

// stream writes lines of the log as they come. What the request does not say is as in q.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, q Query) (any, error) {
	q, err := parseQuery(r.URL.Query(), q)
	if err != nil {
		return nil, err
	}
	lines, err := s.opts.Backend.Lines(r.Context(), q)
	if err != nil {
		return nil, err
	}
	pour(w, q.Follow, lines)
	return nil, nil
}

// pour writes lines, each with the number of lines that were dropped before it, until there are no more, the
// client is gone or does not read, or Orla stops. With follow, each is written at once.
func pour(w http.ResponseWriter, follow bool, lines iter.Seq2[json.RawMessage, int]) {
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	write := func(line []byte) bool {
		_ = control.SetWriteDeadline(time.Now().Add(stallTimeout)) // what net/http gives us can
		if _, err := w.Write(append(slices.Clip(line), '\n')); err != nil {
			return false
		}
		return !follow || control.Flush() == nil
	}
	if follow && control.Flush() != nil {
		return // the client is gone
	}
	for line, dropped := range lines {
		if dropped > 0 && !write(gap(dropped)) || !write(line) {
			return
		}
	}
}

// gap is a line that tells of lines that are missing, as the log itself does.
func gap(lines int) []byte {
	return fmt.Appendf(nil, `{"time":%q,"level":"warn","msg":"log lines were dropped: nobody read them","lines":%d}`,
		time.Now().Format(time.RFC3339Nano), lines)
}
