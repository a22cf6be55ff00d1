package container

import (
	"io"
	"os"
	"time"
)

// relay passes on what the engine's command line writes to its stderr: mostly
// the tool's words. It keeps the last of it, since the engine says there why it
// did not start anything.
type relay struct {
	out  *os.File // the reading end, the caller's
	last kept
	from *os.File
	to   *os.File
	done chan struct{} // closed when all is passed on
}

func newRelay() (*relay, error) {
	out, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &relay{out: out, to: to, last: kept{most: 4096, last: true}, done: make(chan struct{})}, nil
}

// start passes on what comes from a pipe, which it closes at the end.
func (r *relay) start(from *os.File) {
	r.from = from
	go func() { // drain waits for it
		defer close(r.done)
		_, _ = io.Copy(io.MultiWriter(&r.last, r.to), from) // a torn pipe is an end too
		_, _ = io.Copy(&r.last, from)                       // who does not listen keeps nobody from writing
		_, _ = r.to.Close(), from.Close()
	}()
}

// close closes what is not to be started.
func (r *relay) close() { _, _ = r.out.Close(), r.to.Close() }

// relayPatience is how long what was written before the end may take to be
// passed on: a descendant may hold the pipe, or nobody read it.
const relayPatience = time.Second

// drain returns when all that the ended command line wrote is passed on.
func (r *relay) drain() {
	soon := time.Now().Add(relayPatience)
	_ = r.from.SetReadDeadline(soon) // a closed one has been read
	_ = r.to.SetWriteDeadline(soon)
	<-r.done
}
