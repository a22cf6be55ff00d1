package turns

import (
	"context"
	"io"
	"time"
)

// pieceBytes is how much is read in a turn: what is done with it takes about a moment.
const pieceBytes = 64 << 10

// ownKey is the key of an own in a context.
type ownKey struct{}

// own is whose work is done in a context, the Queue in which that waits, and the context that In was given.
type own struct {
	queue *Queue
	owner Owner
	whole context.Context
}

// In returns a context in which work of an owner waits in a Queue that NewAging returned: see Begin and Pieces.
func (q *Queue) In(ctx context.Context, owner Owner) context.Context {
	return context.WithValue(ctx, ownKey{}, own{q, owner, ctx})
}

// OwnerIn returns whose work is done in a context of Queue.In; the zero Owner in any other.
func OwnerIn(ctx context.Context) Owner {
	o, _ := ctx.Value(ownKey{}).(own)
	return o.owner
}

// AfterIn calls f when the context ends that Queue.In was given for this one, which may end earlier. ctx is one of Queue.In.
func AfterIn(ctx context.Context, f func()) {
	context.AfterFunc(ctx.Value(ownKey{}).(own).whole, f) //nolint:contextcheck // that is what is wanted
}

// Begin waits for the turn of work that takes about so many moments, until ctx ends; its error is ctx's cause. end has to be called. The
// turn lasts for as long again, so that such work takes a processor for half of the time: others wait long behind a thread that never
// rests. When the moments are over, the place is given back even before end: who only waits, as a stream does, is not active for others.
// Nor is who has asked for something and got it within a moment, as a page does that asks again every few seconds.
// Begin does nothing if ctx is not one of Queue.In.
func Begin(ctx context.Context, moments int) (end func(), err error) {
	o, ok := ctx.Value(ownKey{}).(own)
	if !ok {
		return func() {}, nil
	}
	place, err := o.queue.TakeLonger(ctx, o.owner, moments)
	if err != nil {
		return nil, err
	}
	began, most := time.Now(), time.Duration(moments)*o.queue.moment
	give := time.AfterFunc(most, place.Give)
	return func() {
		worked := time.Since(began)
		if !give.Stop() {
			return
		}
		rests := max(0, min(worked, most-worked))
		if moments > 1 && worked < o.queue.moment { // not one of many pieces, and nothing that others have felt
			place.unfelt()
		}
		give.Reset(rests)
	}, nil
}

// Pieces returns a reader of r for work of unknown length. Each piece is read in a turn as of Begin, which lasts until the next one is
// read, or end is called.
func Pieces(ctx context.Context, r io.Reader) (in io.Reader, end func()) {
	p := &pieces{ctx: ctx, r: r, end: func() {}}
	return p, func() { p.end() }
}

type pieces struct {
	ctx context.Context // for Read, which takes none
	r   io.Reader
	end func() // of the turn of the last piece
}

// Read implements io.Reader.
func (p *pieces) Read(to []byte) (int, error) {
	p.end()
	p.end = func() {}
	end, err := Begin(p.ctx, 1)
	if err != nil {
		return 0, err
	}
	p.end = end
	return p.r.Read(to[:min(len(to), pieceBytes)])
}
