package remote

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/service/outbound"
)

const (
	// A message over small counts towards maxMedium and maxReads, and one over large towards maxLarge too.
	small = 64 << 10
	large = small << stepLarge

	stepLarge = 2 // the step at which a message is over large; see reading.grow
)

// maxMedium and maxLarge bound the answers for one caller that are being read at once from one server:
// those over small, and those over large. All callers together have twice as many.
const (
	maxMedium = 64
	maxLarge  = 4
)

const (
	// maxReads bounds the bytes of the messages over small that are being read from all servers.
	maxReads = 256 << 20
	// maxReadWait is how long the rest of a message waits for room for it.
	maxReadWait = 10 * time.Second
)

// allReads has the bytes of the messages over small that are being read from all servers, by caller: one server may
// have many sessions. What was read of a message counts until the message is passed on.
var allReads = turns.NewRoom(maxReads)

// errNoRoom is why a message is not read to its end.
var errNoRoom = fault.New(fault.RateLimited, "the messages that are being read from remote MCP servers use all the memory for them; try again later")

// reading is what one message of the server has of the session's shares, and of allReads, while it is read.
type reading struct {
	of    *session
	ctx   context.Context // ends the waiting
	whose turns.Owner

	medium, large bool           // it has a place of that share
	account       *turns.Account // of allReads; nil while it has nothing
	giveBack      func()         // what the account has
	counted       int64          // bytes
}

// reading begins to read messages for an owner, one after the other. release must be called after each.
func (s *session) reading(ctx context.Context, whose turns.Owner) *reading {
	return &reading{of: s, ctx: ctx, whose: whose}
}

// grow waits until more of the message may be read. It must be called when the message is larger than
// small << step, for each step from 0.
func (r *reading) grow(step int) error {
	switch step {
	case 0:
		if err := r.of.medium.Take(r.ctx, r.whose, 1); err != nil {
			return err
		}
		r.medium = true
	case stepLarge:
		if err := r.of.large.Take(r.ctx, r.whose, 1); err != nil {
			return err
		}
		r.large = true
	}
	return r.count(min(int64(small)<<(step+1), int64(r.of.max)))
}

// count counts a message of up to so many bytes. The first small bytes of it are not counted.
func (r *reading) count(size int64) error {
	if r.account == nil {
		owner := r.whose
		if owner == (turns.Owner{}) { // for no caller: the server's own stream, or a request of Orla
			owner = r.of.owner
		}
		var ctx context.Context
		ctx, r.giveBack = r.of.reads.Open(r.ctx, owner)
		r.account = turns.AccountOf(ctx)
	}
	more := size - r.counted
	if more <= 0 {
		return nil
	}
	r.counted = size
	if r.account.Covers(more) {
		return r.account.Need(r.ctx, more)
	}
	ctx, cancel := context.WithTimeoutCause(r.ctx, maxReadWait, errNoRoom)
	defer cancel()
	return r.account.Need(ctx, more)
}

// release gives back everything: the message is passed on, or not read any more.
func (r *reading) release() {
	if r.medium {
		r.of.medium.Give(r.whose, 1)
	}
	if r.large {
		r.of.large.Give(r.whose, 1)
	}
	if r.giveBack != nil {
		r.giveBack()
	}
	r.medium, r.large, r.account, r.giveBack, r.counted = false, false, nil, nil, 0
}

// ownerOf returns whose share of allReads the messages of a server for no caller count towards: one host may have
// several servers.
func ownerOf(endpoint string) turns.Owner {
	at, err := url.Parse(endpoint)
	if err != nil { // the URL was checked with the manifest
		return turns.Owner{}
	}
	return turns.Owner{Session: "the host " + at.Hostname()}
}

// body reads a whole answer. It calls grow when the answer becomes larger than a step.
func (s *session) body(resp *http.Response, grow func(step int) error) ([]byte, error) {
	r := &stepwise{r: resp.Body, grow: grow, most: s.max + 1}
	body, err := outbound.Body(r, int64(s.max)+1)
	switch {
	case r.err != nil:
		return nil, r.err
	case err != nil:
		return nil, err
	case len(body) > s.max:
		return nil, s.tooLarge()
	}
	return body, nil
}

// stepwise reads most bytes at most, and calls grow as reading.grow demands.
type stepwise struct {
	r             io.Reader
	grow          func(step int) error
	n, most, step int
	err           error // of grow
}

// Read implements io.Reader.
func (s *stepwise) Read(p []byte) (int, error) {
	if s.n >= s.most {
		return 0, io.EOF
	}
	for ; s.n > small<<s.step; s.step++ {
		if s.err = s.grow(s.step); s.err != nil {
			return 0, s.err
		}
	}
	n, err := s.r.Read(p[:min(len(p), s.most-s.n, small<<s.step+1-s.n)])
	s.n += n
	return n, err
}
