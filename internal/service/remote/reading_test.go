package remote

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rpc"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// stalling is a body that has so many bytes, and no end before it is closed.
type stalling struct {
	io.Reader
	over <-chan struct{}
}

func (s stalling) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil {
		<-s.over
	}
	return n, err
}

func (stalling) Close() error { return nil }

// SPEC S2, N2: of answers that do not end, few have more than a little of Orla's memory at
// one time, of each caller and of all.
func TestS2StalledAnswersTakeLittle(t *testing.T) {
	for name, how := range map[string]struct {
		before string
		read   func(s *session, ctx context.Context, whose turns.Owner, resp *http.Response)
	}{
		"JSON": {"", func(s *session, ctx context.Context, whose turns.Owner, resp *http.Response) {
			r := s.reading(ctx, whose)
			defer r.release()
			_, _ = s.body(resp, r.grow)
		}},
		"a stream": {"data: ", func(s *session, ctx context.Context, whose turns.Owner, resp *http.Response) {
			_ = s.stream(ctx, resp, message{whose: whose})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const each, calls, little, most = 255 << 10, 300, 128 << 10, 128
				s := &session{shares: newShares(16 << 20), max: 16 << 20}
				over := make(chan struct{})
				ctx, stop := context.WithCancel(t.Context())
				var read [calls]atomic.Int64
				var reading sync.WaitGroup
				for i := range calls {
					caller := "ada"
					if i%3 == 0 {
						caller = "bob"
					}
					text := io.TeeReader(strings.NewReader(how.before+strings.Repeat("x", each)), counter{&read[i]})
					resp := &http.Response{Body: stalling{text, over}}
					reading.Go(func() { how.read(s, ctx, turns.Owner{Caller: caller, Session: caller}, resp) })
				}
				synctest.Wait()
				much, all := 0, int64(0)
				for i := range read {
					all += read[i].Load()
					if read[i].Load() > little {
						much++
					}
				}
				if much > most || much == 0 {
					t.Errorf("%d of %d answers have more than a little, %d bytes in all; want at most %d", much, calls, all, most)
				}
				stop()
				close(over)
				reading.Wait()
			})
		})
	}
}

// SPEC S2, N2: the messages of all sessions that are being read take a bounded number of bytes together, and one
// caller's, or one host's, leave room for another caller's. What finds no room fails after a while.
func TestS2StalledAnswersOfAllServersAreBoundedTogether(t *testing.T) {
	needs.Time(t, "sends hundreds of megabytes")
	const servers, each, room = 24, 4, 16 << 20
	const size = 2<<20 - 100
	for name, of := range map[string]turns.Owner{
		"one caller": {Caller: "ada", Session: "1"}, "a caller without a session": {Session: "1"}, "no caller": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reads := turns.NewRoom(room)
				session := func() *session {
					s := &session{shares: newShares(2 << 20), max: 2 << 20, owner: ownerOf("https://a.test/mcp")}
					s.reads = reads
					return s
				}
				over := make(chan struct{})
				ctx, stop := context.WithCancel(t.Context())
				var read atomic.Int64
				var failed atomic.Int64
				var reading sync.WaitGroup
				for range servers {
					s := session()
					for range each {
						text := io.TeeReader(strings.NewReader(strings.Repeat("x", size)), counter{&read})
						reading.Go(func() {
							r := s.reading(ctx, of)
							defer r.release()
							if _, err := s.body(&http.Response{Body: stalling{text, over}}, r.grow); errors.Is(err, errNoRoom) {
								failed.Add(1)
							}
						})
					}
				}
				synctest.Wait()
				little := int64(servers * each * small)
				if all := read.Load() - little; all > room || all < room/8 {
					t.Errorf("%d KiB are read of %d answers; want at most %d", all>>10, servers*each, room>>10)
				}
				if n := failed.Load(); n > 0 {
					t.Errorf("%d answers failed at once", n)
				}

				// Another caller's answer, which comes slowly, is read.
				bob := turns.Owner{Caller: "bob", Session: "2"}
				slow := make(chan struct{})
				s := session()
				done := make(chan error, 1)
				go func() {
					r := s.reading(ctx, bob)
					defer r.release()
					first := strings.NewReader(strings.Repeat("x", size/2))
					text := io.MultiReader(first, waiting(slow), strings.NewReader(strings.Repeat("x", size/2)))
					_, err := s.body(&http.Response{Body: io.NopCloser(text)}, r.grow)
					done <- err
				}()
				time.Sleep(2 * maxReadWait)
				close(slow)
				if err := <-done; err != nil {
					t.Errorf("another caller's answer: %v", err)
				}
				if n := failed.Load(); n == 0 || n >= servers*each {
					t.Errorf("%d of %d answers failed; want those without room", n, servers*each)
				}
				stop()
				close(over)
				reading.Wait()
				synctest.Wait() // who is done gives back after that
				if free := reads.Free(); free != room {
					t.Errorf("%d bytes are free at the end, want all", free)
				}
			})
		})
	}
}

// waiting is an empty text that ends when the channel is closed.
type waiting <-chan struct{}

func (w waiting) Read([]byte) (int, error) {
	<-w
	return 0, io.EOF
}

// SPEC S2: a message of a stream for which there is no room ends its stream, with the reason, and its call is told.
func TestS2AStreamWithoutRoomEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{shares: newShares(2 << 20), max: 2 << 20}
		s.reads = turns.NewRoom(1 << 20)
		for range 2 { // one has all of it, and one is beyond it
			ctx, release := s.reads.Open(t.Context(), turns.Owner{Session: "other"})
			defer release()
			if err := turns.AccountOf(ctx).Need(ctx, 2<<20); err != nil {
				t.Fatal(err)
			}
		}
		resp := &http.Response{Body: io.NopCloser(strings.NewReader("id: 1\ndata: " + strings.Repeat("x", 2*large) + "\n\n"))}
		err := s.follow(t.Context(), resp, message{whose: turns.Owner{Session: "one"}})
		if !errors.Is(err, errNoRoom) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// unanswering answers no question.
type unanswering struct{ quiet }

func (unanswering) Asked(json.RawMessage, string, json.RawMessage) {}

// SPEC S2, N2: the questions of all servers are read at a bounded rate together, also in batches.
func TestS2QuestionsOfAllServersAreReadSlowlyTogether(t *testing.T) {
	const ping = `{"jsonrpc":"2.0","id":"p","method":"ping"}`
	for name, of := range map[string]struct {
		data string
		asks int
	}{"one by one": {ping, 1}, "in batches": {"[" + strings.Repeat(ping+",", 99) + ping + "]", 100}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const servers, seconds = 4, 5
				var asks pace.Shared
				began := time.Now()
				var all sync.WaitGroup
				for range servers {
					s := &session{shares: newShares(1 << 20), max: 1 << 20, listener: listener{conn: rpc.New(nil, rpc.Options{Handler: unanswering{}}), logged: func([]byte, int) {}}}
					s.asks = &asks
					text := strings.Repeat("data: "+of.data+"\n\n", seconds*maxAsks/of.asks)
					all.Go(func() {
						_ = s.stream(t.Context(), &http.Response{Body: io.NopCloser(strings.NewReader(text))}, message{})
					})
				}
				all.Wait()
				if took := time.Since(began); took < (servers*seconds-2)*time.Second {
					t.Errorf("the questions of %d servers, for %d s each, were read in %v", servers, seconds, took)
				}
			})
		})
	}
}

// SPEC S2, N2: few answers to servers' questions are sent at once to all servers, and one host leaves places.
func TestS2FewAnswersAreSentToAllServersAtOnce(t *testing.T) {
	const servers = 10
	var arrived atomic.Int64
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived.Add(1)
		<-over
	}))
	defer server.Close()
	client := outbound.New(outbound.Options{})
	defer client.Close()
	ctx, stop := context.WithCancel(t.Context())
	all := turns.NewShares(maxAllTells)
	var sessions []*session
	for range servers {
		s := &session{
			shares: newShares(1 << 20), owner: ownerOf(server.URL), endpoint: server.URL, opts: Options{Client: client},
			listener: listener{logged: func([]byte, int) {}}, life: newLife(),
		}
		s.allTells = all
		sessions = append(sessions, s)
		for range maxTells {
			s.later(ctx, ctx, message{text: []byte(`{}`)}, nil)
		}
	}
	testkit.Eventually(t, "all have their places of their sessions", func() bool {
		n := int64(0)
		for _, s := range sessions {
			n += s.tells.Taken()
		}
		return n == servers*maxTells
	})
	testkit.Eventually(t, "answers are sent", func() bool { return arrived.Load() >= maxAllTells/2 })
	if n, sent := all.Taken(), arrived.Load(); n != maxAllTells/2 || sent != n {
		t.Errorf("%d answers have places, and %d are sent; want %d", n, sent, maxAllTells/2)
	}
	if !all.Try(ownerOf("https://b.test/"), 1) {
		t.Error("there is no place for another host")
	}
	stop()
	close(over)
	for _, s := range sessions {
		s.work.Wait()
	}
}

// counter counts what is written to it.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// SPEC S2, N2: all streams of a server share the rate of what is not a message, however many there are.
func TestS2StreamsOfAServerAreReadSlowlyTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams = 8
		s := &session{shares: newShares(16 << 20), max: 16 << 20, listener: listener{logged: func([]byte, int) {}}}
		ev := "event: other\ndata: " + strings.Repeat("x", 60<<10) + "\n\n"
		n := pace.MaxBytes / len(ev)
		began := time.Now()
		var all sync.WaitGroup
		for range streams {
			all.Go(func() {
				flood := strings.NewReader(strings.Repeat(ev, n))
				if st := s.stream(t.Context(), &http.Response{Body: io.NopCloser(flood)}, message{}); st.events != n {
					t.Errorf("%d of %d events were read, and then %v", st.events, n, st.err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took < (streams-2)*time.Second {
			t.Errorf("%d streams, each for a second, were read in %v", streams, took)
		}
	})
}

// SPEC N2: what a server sends for one caller, unasked or no message at all, does not hold up the messages for another one.
func TestN2AFloodForOneCallerHoldsUpNobodyElse(t *testing.T) {
	for name, ev := range map[string]string{
		"notifications": "data: " + `{"jsonrpc":"2.0","method":"x"}` + "\n\n",
		"other events":  "event: other\ndata: x\n\n",
		"no messages":   ": x\n: x\n: x\n: x\n: x\n: x\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const seconds = 8 // and the other one's take 5
				s := &session{shares: newShares(1 << 20), max: 1 << 20, listener: listener{
					conn: rpc.New(nil, rpc.Options{Handler: quiet{}}), all: pace.Times(allFaster), logged: func([]byte, int) {},
				}}
				var flood sync.WaitGroup
				for range 60 {
					flood.Go(func() {
						flood := strings.NewReader(strings.Repeat(ev, seconds*pace.MaxLines/60))
						s.stream(t.Context(), &http.Response{Body: io.NopCloser(flood)}, message{whose: turns.Owner{Caller: "ann"}})
					})
				}
				began := time.Now()
				for range 100 {
					time.Sleep(50 * time.Millisecond)
					text := strings.NewReader(strings.Repeat("data: "+`{"jsonrpc":"2.0","method":"y"}`+"\n: y\n: y\n: y\n: y\n: y\n\n", 20))
					s.stream(t.Context(), &http.Response{Body: io.NopCloser(text)}, message{whose: turns.Owner{Caller: "bob"}})
				}
				if took := time.Since(began); took > 5500*time.Millisecond {
					t.Errorf("2000 messages for another caller, which come in 5 s, took %v", took)
				}
				flood.Wait()
				if took := time.Since(began); took < (seconds-2)*time.Second {
					t.Errorf("a flood for %d s was read in %v", seconds, took)
				}
				if n := len(s.paces.of); n > 2 {
					t.Errorf("%d callers are remembered", n)
				}
			})
		})
	}
}

// SPEC N2: a large message of a server is made ready for its caller in a turn of that caller, until its request
// ends. A small one does not wait.
func TestN2ALargeMessageIsReadInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{shares: newShares(1 << 20), max: 1 << 20, listener: listener{conn: rpc.New(nil, rpc.Options{Handler: quiet{}})}}
		ctx, release := turns.NewRoom(1<<20).Open(t.Context(), turns.Owner{Caller: "one"})
		defer release()
		account := turns.AccountOf(ctx)
		for range turns.Workers() {
			if err := account.BeginWork(ctx); err != nil {
				t.Fatal(err)
			}
		}
		hand := func(ctx context.Context, size int) <-chan error {
			handed := make(chan error, 1)
			go func() {
				text := `{"jsonrpc":"2.0","method":"x","params":{"x":"` + strings.Repeat("x", size) + `"}}`
				isJSON, _, err := s.hand(ctx, []byte(text), message{room: account})
				if err == nil && !isJSON {
					t.Error("it is not JSON")
				}
				handed <- err
			}()
			synctest.Wait()
			return handed
		}
		if err := <-hand(ctx, 1); err != nil {
			t.Error(err)
		}
		over := errors.New("over")
		ending, end := context.WithCancelCause(ctx)
		large, left := hand(ctx, turns.Heavy), hand(ending, turns.Heavy)
		if len(large)+len(left) > 0 {
			t.Error("a large message does not wait")
		}
		end(over)
		if err := <-left; !errors.Is(err, over) {
			t.Errorf("after its request, it ends with %v", err)
		}
		for range turns.Workers() {
			account.EndWork()
		}
		if err := <-large; err != nil {
			t.Error(err)
		}
	})
}
