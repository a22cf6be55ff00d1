package capsuletest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"syscall"
)

// A handler answers one request. It runs in a goroutine of its own.
type handler func(s *server, m *Message)

// handlers are answers by method. A method without one is refused with -32601.
type handlers map[string]handler

// server is a well-behaved capsule, of which a script replaces what it wants.
// Its parameters:
//
//	START_MS  time between the start and the hello
//	CAPS      the capabilities of the hello; none by default
//	TOOLS     the names of the tools of tools/list; "echo" by default
//	PINGS     how many pings are answered; all by default
//	STOP_MS   time between the end of stdin and the exit
//	STOP_CODE the exit code then
//	LOCK      a file to hold locked for life; see Alone
//	PROTOCOL  the protocol version of initialize; by default the one asked for
type server struct {
	*Peer
	code    string // of the package, as it was when the process started
	answers handlers
	forked  []int

	mu        sync.Mutex // guards the fields that follow
	tools     []any      // of tools/list
	calls     int
	pings     int
	inFlight  int // calls
	cancelled int
	running   map[string]*Message        // requests in flight, by id
	held      map[string]chan struct{}   // closed when released; see Args.Hold
	asked     map[string]chan *Message   // requests of our own, by id
	late      map[string]json.RawMessage // answers to what was asked Later, by its name
	probes    int                        // server/discover, of noDiscover
	states    []string                   // that callStateless has given
	asks      int
}

// newServer returns a server whose answers differ from the usual ones by instead.
// A nil handler leaves requests of its method without an answer.
func newServer(p *Peer, instead handlers) *server {
	code, err := os.ReadFile(codeFile)
	if err != nil {
		complain("%v", err)
	}
	if text := strings.TrimSpace(string(code)); text == Broken {
		complain("SyntaxError: the code is broken")
		exit(1)
	}
	s := &server{
		Peer:    p,
		code:    strings.TrimSpace(string(code)),
		answers: handlers{},
		running: map[string]*Message{},
		held:    map[string]chan struct{}{},
		asked:   map[string]chan *Message{},
		late:    map[string]json.RawMessage{},
	}
	for _, name := range list("TOOLS", "echo") {
		s.tools = append(s.tools, toolNamed(name))
	}
	for _, some := range []handlers{usual, instead} {
		maps.Copy(s.answers, some)
	}
	return s
}

// serve says hello and answers until stdin ends.
func (s *server) serve() {
	s.hello()
	s.loop()
	s.end()
}

// hello is a good start.
func (s *server) hello() {
	alone(Param("LOCK"))
	pause(number("START_MS", 0))
	s.Hello(s.Name, s.Version, list("CAPS", "")...)
}

// loop answers until stdin ends. Requests are answered side by side.
func (s *server) loop() {
	for m := s.Read(); m != nil; m = s.Read() {
		s.take(m)
	}
}

// end is a good end, if the parameters do not say otherwise.
func (s *server) end() {
	pause(number("STOP_MS", 0))
	exit(number("STOP_CODE", 0))
}

func (s *server) take(m *Message) {
	switch {
	case m.Method == "":
		s.answered(m)
	case m.ID == nil:
		s.note(m)
	default:
		answer, known := s.answers[m.Method]
		switch {
		case !known:
			s.Error(m.ID, -32601, "no such method: "+m.Method)
		case answer != nil:
			s.begin(m) // here, since the next message may cancel it
			go func() {
				defer s.done(m)
				answer(s, m)
			}()
		}
	}
}

// begin gives a request a context.
func (s *server) begin(m *Message) {
	m.ctx, m.cancel = context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[string(m.ID)] = m
}

func (s *server) done(m *Message) {
	m.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[string(m.ID)] == m { // it is answered, and its id may be another's
		delete(s.running, string(m.ID))
	}
}

// note takes in a notification.
func (s *server) note(m *Message) {
	if m.Method != "notifications/cancelled" {
		return
	}
	var params struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	if err := json.Unmarshal(m.Params, &params); err != nil {
		complain("notifications/cancelled: %v", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancelled++
	if m := s.running[string(params.RequestID)]; m != nil {
		m.cancel()
	}
}

// answered takes in an answer to a request of our own.
func (s *server) answered(m *Message) {
	s.mu.Lock()
	reply := s.asked[string(m.ID)]
	delete(s.asked, string(m.ID))
	s.mu.Unlock()
	if reply == nil {
		complain("an answer to nothing: %s", m.ID)
		return
	}
	reply <- m
}

// ask makes a request of the client and waits for its answer, or for ctx to end.
func (s *server) ask(ctx context.Context, method string, params any) *Message {
	reply := make(chan *Message, 1)
	s.mu.Lock()
	s.asks++
	id := fmt.Sprintf("ask-%d", s.asks)
	s.asked[string(encode(id))] = reply
	s.mu.Unlock()
	s.Request(id, method, params)
	select {
	case m := <-reply:
		return m
	case <-ctx.Done():
		return &Message{Error: json.RawMessage(`"never answered"`)}
	}
}

// alone locks a file until the process dies. When another process holds it,
// alone leaves a trace beside it, which Overlapped finds: two processes of one
// capsule were alive at once.
func alone(path string) {
	if path == "" {
		return
	}
	// Not an os.File, which would be closed when it is not used any more.
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err == nil {
		err = syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err == nil {
		return
	}
	if err := os.WriteFile(path+overlapSuffix, []byte(err.Error()), 0o600); err != nil {
		complain("%v", err)
	}
}

const overlapSuffix = ".overlapped"
