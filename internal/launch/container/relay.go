package container

import (
	"io"
	"os"
	"time"
)

// relay copies the stderr of the engine's command line, which is mostly the tool's, to a pipe. It
// keeps the last part, in which the engine says why it has not started anything.
type relay struct {
	out  *os.File // the reading end, for the caller
	last kept
	from *os.File
	to   *os.File
	done chan struct{} // closed when everything is copied
}

func newRelay() (*relay, error) {
	out, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &relay{out: out, to: to, last: kept{most: 4096, last: true}, done: make(chan struct{})}, nil
}

// start copies a pipe, and closes it at the end.
func (r *relay) start(from *os.File) {
	r.from = from
	go func() { // drain waits for it
		defer close(r.done)
		_, _ = io.Copy(io.MultiWriter(&r.last, r.to), from) // a broken pipe ends it, too
		_, _ = io.Copy(&r.last, from)                       // the command line can go on writing if the reader is gone
		_, _ = r.to.Close(), from.Close()
	}()
}

// close closes a relay that was not started.
func (r *relay) close() { _, _ = r.out.Close(), r.to.Close() }

// relayPatience is how long copying may go on after the command line has ended: a descendant may
// hold the pipe, or the reader may not read.
const relayPatience = time.Second

// drain returns when everything that the ended command line wrote is copied, or after relayPatience.
func (r *relay) drain() {
	soon := time.Now().Add(relayPatience)
	_ = r.from.SetReadDeadline(soon) // a closed one has been read
	_ = r.to.SetWriteDeadline(soon)
	<-r.done
}
