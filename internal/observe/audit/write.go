package audit

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strconv"
	"time"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/file/wholefile"
)

// serve writes the lines.
func (l *Log) serve() {
	defer close(l.ended)
	for {
		select {
		case <-l.soon.C:
			l.flush("")
		case <-l.heads.C:
			l.headSoon = false
			l.flush(whyInterval)
			l.lookAtPlace()
		case answer := <-l.asked:
			answer <- l.reopen()
		case <-l.quit:
			l.flush(whyStop)
			return
		}
	}
}

// flush writes the lines that wait, and a head if one is due. why says why a head is signed in any case if
// there are lines that none covers; "" signs one only after headLines lines.
func (l *Log) flush(why string) {
	if !l.makeLines() {
		return
	}
	var head []byte
	if l.unsigned > 0 && !l.gone && (why != "" || l.unsigned >= headLines) {
		if why == "" {
			why = whyLines
		}
		start := len(l.pending)
		if err := l.sign(why); err != nil { // cannot be: the text has no control characters
			l.opts.Log.Error("cannot sign a head of the audit log", "err", err)
		} else {
			head = bytes.Clone(l.pending[start:])
		}
	}
	seq, rest := l.chain.seq, l.unsigned
	if !l.writePending() {
		return
	}
	if head != nil {
		l.keepHead(head, seq, why)
	}
	if rest > 0 && !l.headSoon {
		l.headSoon = true
		l.heads.Reset(headEvery)
	}
}

// makeLine makes a line that has waited. If that panics over what strangers sent, there is none, and the call counts as one that
// could not be recorded.
func (l *Log) makeLine(line *waitingLine) {
	defer recovered.To(l.opts.Log, "make a line of the audit log", func(any) {
		l.alike = alike{} // it may be half of it
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lost++
	})
	if line.body != nil {
		l.add(line.body)
		return
	}
	l.link(l.maker.append(l.begun(), &line.call))
}

// makeLines makes the lines that wait, and writes what is more than maxWrite of them. It reports false if it cannot.
func (l *Log) makeLines() bool {
	taken := l.take()
	l.set(l.opened)
	defer func() { taken.reset(); l.used, l.unmade = taken, 0 }()
	for i := range taken.lines {
		l.makeLine(&taken.lines[i])
		if l.unmade = len(taken.lines) - i - 1; len(l.pending) >= maxWrite && !l.writePending() {
			return false
		}
	}
	return true
}

// writePending writes the lines that are made. It reports false if it cannot.
func (l *Log) writePending() bool {
	lines := l.pending
	l.pending, l.spare = l.spare[:0], nil
	if len(lines) > 0 && !l.write(lines) {
		return false
	}
	if l.spare = lines[:0]; len(l.pending) == 0 {
		l.pending, l.spare = l.spare, l.pending // it is in the cache
	}
	return true
}

// lookAtPlace says in the log, once, that the file at the path is not the one that is written.
func (l *Log) lookAtPlace() {
	f, ok := l.to.(*logFile)
	elsewhere := ok && f.moved(l.opts.Path)
	if elsewhere && !l.elsewhere {
		l.opts.Log.Error("the audit log was moved, removed or replaced, and its lines go to the file that was there; whoever rotates it has to send SIGHUP", "path", l.opts.Path)
	}
	l.elsewhere = elsewhere
}

// keepHead syncs the lines up to a head, and stores the head in the state folder.
func (l *Log) keepHead(head []byte, seq uint64, why string) {
	l.begin()
	err := l.to.sync()
	l.began.Store(0)
	if err == nil {
		err = wholefile.Write(l.state.headFile(), head)
	}
	switch {
	case err != nil:
		l.opts.Log.Error("the audit log cannot be synced, or its newest head cannot be stored", "path", l.opts.Path, "err", err)
	case why != whyLines: // those may be many
		l.opts.Log.Info("audit head", "path", l.opts.Path, "seq", seq, "sha256", hash(sha256.Sum256(bytes.TrimSuffix(head, []byte("\n")))).String())
	}
}

// begin notes that a write begins.
func (l *Log) begin() { l.began.Store(int64(max(time.Since(l.opened), 1))) }

// write writes lines. While that fails, it tries again, and no call is made. It reports false if the Log is closed before it could.
// Nothing is written from then on, since it would not follow what is in the file.
func (l *Log) write(lines []byte) bool {
	for last := false; !l.gone; {
		l.begin()
		n, err := l.to.write(lines)
		l.began.Store(0)
		lines = lines[n:]
		if err == nil {
			l.recovered()
			return true
		}
		if l.trouble.Load() == nil {
			l.opts.Log.Error("the audit log cannot be written; no call is made until it can", "path", l.opts.Path, "err", err)
		}
		l.trouble.Store(&err)
		if last {
			l.gone = true
			break
		}
		pause := time.NewTimer(retryAfter)
		select {
		case <-pause.C:
		case answer := <-l.asked:
			answer <- err
		case <-l.quit:
			last = true // there may be room by now
		}
		pause.Stop()
	}
	l.opts.Log.Error("lines of the audit log are lost", "path", l.opts.Path, "lines", bytes.Count(lines, []byte("\n"))+l.unmade, "err", *l.trouble.Load())
	return false
}

// recovered notes, after a write, that calls were lost or refused before it.
func (l *Log) recovered() {
	if l.trouble.Swap(nil) != nil {
		l.opts.Log.Warn("the audit log can be written again", "path", l.opts.Path)
	}
	refused := l.refused.Swap(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == 0 && refused == 0 {
		return
	}
	body := strconv.AppendInt(append(appendBegin(nil, time.Now(), eventLost), `,"lost":`...), int64(l.lost), 10)
	body = strconv.AppendInt(append(body, `,"refused":`...), refused, 10)
	l.lost = 0
	l.add(append(body, '}'))
	l.soon.Reset(linger)
}

// writeNow writes the lines of the start, before serve runs.
func (l *Log) writeNow() error {
	for len(l.pending) > 0 {
		n, err := l.to.write(l.pending)
		l.pending = l.pending[n:]
		if err != nil {
			return err
		}
	}
	l.headSoon = true
	l.heads.Reset(headEvery)
	return nil
}

// Reopen continues in a new file if the one at the path is not the one that is written any more, as after
// logrotate has renamed it. On an error, the old file is written further. A nil Log does nothing.
func (l *Log) Reopen() error {
	if l == nil {
		return nil
	}
	answer := make(chan error, 1)
	select {
	case l.asked <- answer:
		return <-answer
	case <-l.ended:
		return nil
	}
}

func (l *Log) reopen() error {
	old, ok := l.to.(*logFile)
	if !ok || !old.moved(l.opts.Path) {
		return nil
	}
	next, end, err := openFile(l.opts.Path, 0)
	if err == nil && end.size > 0 {
		_ = next.close() // unused
		err = fmt.Errorf("%s is not empty", l.opts.Path)
	}
	if err != nil {
		return err
	}
	if !l.makeLines() {
		return next.close()
	}
	start := len(l.pending)
	if err := l.sign(whyRotated); err != nil {
		_ = next.close() // unused
		return err
	}
	head, seq := bytes.Clone(l.pending[start:]), l.chain.seq
	for len(l.pending) > 0 { // the first write may have to tell of lost calls, which belongs into this file
		if !l.writePending() {
			return next.close()
		}
	}
	l.keepHead(head, seq, whyRotated)
	l.to = next
	l.file.Store(next)
	_ = old.close() // it is synced
	l.start(whyRotated)
	l.writePending()
	return nil
}

// Close writes what is left, with a head, and closes the log. A nil Log is closed.
func (l *Log) Close() {
	if l == nil {
		return
	}
	close(l.quit)
	<-l.ended
	l.trouble.Store(&errClosed)
	_ = l.to.close()
	l.unlock()
}
