package conversation

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// SPEC S2: however a conversation ends, nothing of it stays, and nothing counts any more.
func TestS2NothingStaysOfAConversation(t *testing.T) {
	holds := func(ctx context.Context, c peer.Client) (wire.Parts, *jsonrpc.Error) {
		if err := turns.AccountOf(ctx).Need(ctx, 1<<20); err != nil {
			return nil, &jsonrpc.Error{Message: err.Error()}
		}
		text := ask(ctx, c, "").Join()
		if ctx.Err() != nil {
			return nil, &jsonrpc.Error{Message: context.Cause(ctx).Error()}
		}
		return wire.Parts{text}, nil
	}
	for name, end := range map[string]func(t *testing.T, tb *table, r *request){
		"the answer": func(t *testing.T, tb *table, r *request) {
			got := tb.answer(t.Context(), r, tb.answer(t.Context(), r, "", "", holds).State, `{"question-1":{"n":1}}`, nil)
			if got.text != `{"n":1}` || tb.opts.Room.Free() == room {
				t.Errorf("answered %s, %v; %d bytes are free until it is written", got.text, got.err, tb.opts.Room.Free())
			}
			got.release()
		},
		"an answer that does not come": func(t *testing.T, tb *table, r *request) {
			state := tb.answer(t.Context(), r, "", "", holds).State
			time.Sleep(AnswerTime - 1)
			if tb.shares.Taken() != 1 || tb.bytes.Taken() != 7 || tb.opts.Room.Free() == room {
				t.Errorf("it does not wait: %d, with %d bytes", tb.shares.Taken(), tb.bytes.Taken())
			}
			time.Sleep(time.Nanosecond)
			tb.empty(t, "the time for it")
			if got := tb.answer(t.Context(), r, state, `{"question-1":{}}`, nil); got.err != results.ErrUnknownState {
				t.Errorf("too late: %s, %v", got.text, got.err)
			}
		},
		"a second question, after half of the time": func(t *testing.T, tb *table, r *request) {
			twice := func(ctx context.Context, c peer.Client) (wire.Parts, *jsonrpc.Error) {
				_ = ask(ctx, c, "")
				if tb.bytes.Taken() != 7 || tb.shares.Taken() != 0 {
					t.Errorf("while the peer works again, %d wait, with %d bytes", tb.shares.Taken(), tb.bytes.Taken())
				}
				return ask(ctx, c, ""), nil
			}
			state := tb.answer(t.Context(), r, "", "", twice).State
			time.Sleep(AnswerTime - time.Second)
			state = tb.answer(t.Context(), r, state, `{"question-1":{}}`, nil).State
			time.Sleep(AnswerTime - time.Second)
			if tb.shares.Taken() != 1 || tb.bytes.Taken() != 7 {
				t.Errorf("it does not wait: %d, with %d bytes", tb.shares.Taken(), tb.bytes.Taken())
			}
			tb.answer(t.Context(), r, state, `{"question-2":{}}`, nil).release()
		},
		"a client that leaves while the peer works": func(t *testing.T, tb *table, r *request) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			got := tb.answer(ctx, r, "", "", func(ctx context.Context, _ peer.Client) (wire.Parts, *jsonrpc.Error) {
				_ = turns.AccountOf(ctx).Need(ctx, 1<<20)
				<-ctx.Done()
				return nil, &jsonrpc.Error{Message: context.Cause(ctx).Error()}
			})
			if got.err == nil || got.err.Message != "context canceled" || got.release != nil {
				t.Errorf("answered %s, %v", got.text, got.err)
			}
		},
		"a client that leaves while questions are collected": func(t *testing.T, tb *table, r *request) {
			ctx, cancel := context.WithTimeout(t.Context(), together/2)
			defer cancel()
			if got := tb.answer(ctx, r, "", "", holds); got.err == nil || got.State != "" {
				t.Errorf("answered %s, %v", got.text, got.err)
			}
		},
		"the first request, which does not end the work": func(t *testing.T, tb *table, r *request) {
			ctx, cancel := context.WithCancel(t.Context())
			state := tb.answer(ctx, r, "", "", holds).State
			cancel()
			synctest.Wait()
			got := tb.answer(t.Context(), r, state, `{"question-1":{"n":1}}`, nil)
			if got.text != `{"n":1}` {
				t.Errorf("answered %s, %v", got.text, got.err)
			}
			got.release()
		},
		"a peer that gives up its question": func(t *testing.T, tb *table, r *request) {
			state := tb.answer(t.Context(), r, "", "", func(ctx context.Context, c peer.Client) (wire.Parts, *jsonrpc.Error) {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				return ask(ctx, c, ""), nil
			}).State
			time.Sleep(time.Minute)
			if tb.bytes.Taken() != 7 {
				t.Errorf("%d bytes count", tb.bytes.Taken())
			}
			got := tb.answer(t.Context(), r, state, `{"question-1":{}}`, nil)
			if !strings.Contains(got.text, "elicitation/create was given up before the client answered") {
				t.Errorf("answered %s, %v", got.text, got.err)
			}
			got.release()
		},
		"a panic": func(t *testing.T, tb *table, r *request) {
			got := tb.answer(t.Context(), r, "", "", func(context.Context, peer.Client) (wire.Parts, *jsonrpc.Error) { panic("odd") })
			if got.err == nil || got.err.Error() != wire.InternalError().Error() || got.text != "" || strings.Count(tb.log.String(), "panic in a request") != 1 || !strings.Contains(tb.log.String(), "method=tools/call panic=odd stack=") {
				t.Errorf("answered %s, %v; the log has %s", got.text, got.err, &tb.log)
			}
			got.release()
		},
		"the end of the caller's access": func(t *testing.T, tb *table, r *request) {
			_ = tb.answer(t.Context(), r, "", "", holds)
			tb.EndOf(func(caller string) bool { return caller == "ann" })
		},
		"the end of the server": func(t *testing.T, tb *table, r *request) {
			var ended error
			state := tb.answer(t.Context(), r, "", "", func(ctx context.Context, c peer.Client) (wire.Parts, *jsonrpc.Error) {
				_ = turns.AccountOf(ctx).Need(ctx, 1<<20)
				_ = ask(ctx, c, "")
				ended = context.Cause(ctx)
				return nil, nil
			}).State
			var works round
			var all sync.WaitGroup
			all.Go(func() {
				works = tb.answer(t.Context(), by("bob"), "", "", func(ctx context.Context, _ peer.Client) (wire.Parts, *jsonrpc.Error) {
					<-ctx.Done()
					time.Sleep(time.Second) // Close waits for it
					return nil, &jsonrpc.Error{Message: context.Cause(ctx).Error()}
				})
			})
			synctest.Wait()
			tb.Close(errors.New("orla stops"))
			if tb.running.Open() != 0 || ended == nil || ended.Error() != "orla stops" {
				t.Errorf("%d work, and one ended with %v", tb.running.Open(), ended)
			}
			if all.Wait(); works.err == nil || works.err.Message != "orla stops" {
				t.Errorf("the other one ended with %v", works.err)
			}
			works.release()
			if got := tb.answer(t.Context(), r, state, `{"question-1":{}}`, nil); got.err != results.ErrUnknownState {
				t.Errorf("too late: %s, %v", got.text, got.err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := tabled()
				end(t, tb, by("ann"))
				tb.empty(t, name)
			})
		})
	}
}

// SPEC N2: the end of a caller's access ends its conversations, and those of nobody else.
func TestN2OnlyConversationsOfThoseCallersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := tabled()
		states := map[string]string{}
		for _, caller := range []string{"ann", "bob", ""} {
			states[caller] = tb.answer(t.Context(), by(caller), "", "", asks("")).State
		}
		tb.EndOf(func(caller string) bool { return caller != "bob" })
		for caller, state := range states {
			got := tb.answer(t.Context(), by(caller), state, `{"question-1":{"n":1}}`, nil)
			if ended := got.err == results.ErrUnknownState; ended != (caller == "ann") {
				t.Errorf("%q got %s, %v", caller, got.text, got.err)
			}
			if got.release != nil {
				got.release()
			}
		}
		tb.empty(t, "the answers")
	})
}

// SPEC S2, N2: the calls that wait for their clients are bounded, and so are the bytes of their requests. One caller has half of
// what is free, so that there is room for others. A call with a question too many fails, and says why.
func TestS2CallsThatWaitAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		owner turns.Owner
		size  int // of the first request
		more  int // of the others
		most  int // how many wait
	}{
		"calls":          {turns.Owner{Session: "ann"}, 0, 0, maxParked},
		"of one session": {turns.Owner{Caller: "ann", Session: "1"}, 0, 0, maxParked / 2},
		"bytes":          {turns.Owner{Session: "ann"}, 1, maxParkedBytes/2 - 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := tabled()
				waits := func(owner turns.Owner, size int) (why string, ok bool) {
					got := tb.answerTo(t.Context(), &request{owner: owner}, wire.Params{Raw: make([]byte, size)}, call, asks(""))
					if got.release != nil {
						got.release()
					}
					return got.text, got.State != ""
				}
				n, size := 0, c.size
				for ; n <= 2*maxParked; n++ {
					if why, ok := waits(c.owner, size); !ok {
						if !strings.Contains(why, tooMany) {
							t.Errorf("the last one got %s", why)
						}
						break
					}
					size = c.more
				}
				if n != c.most {
					t.Errorf("%d wait, want %d", n, c.most)
				}
				if _, ok := waits(turns.Owner{Caller: "bob"}, c.more/4); !ok {
					t.Error("another caller has no room")
				}
				tb.Close(nil)
				tb.empty(t, "the end")
			})
		})
	}
}
