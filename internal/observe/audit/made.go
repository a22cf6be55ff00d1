package audit

import (
	"time"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// appendTo appends what follows seq and prev in the line of a call, with the time when it ended.
func (c *Call) appendTo(out []byte, ended time.Time, full bool, in *rawjson.Canonicalizer) []byte {
	out = c.appendWho(appendBegin(out, ended, eventCall))
	for i, text := range c.what() {
		out = appendMember(out, whatKeys[i], text)
	}
	return c.appendEnd(out, full, in)
}

// appendWho appends for whom the call was made.
func (c *Call) appendWho(out []byte) []byte {
	out = appendMember(out, `,"caller":`, c.Caller)
	out = appendMember(out, `,"agent":`, c.Agent)
	return appendMember(out, `,"task":`, c.Task)
}

// whats is how many texts say what was called, and what came of it.
const whats = 8

// what returns the texts that say what was called, and what came of it. Many calls have the same ones.
func (c *Call) what() [whats]string {
	return [whats]string{c.Tool, c.Target, c.Class, c.Rule, c.Verdict, c.Approval, c.Decider, c.Outcome}
}

var whatKeys = [whats]string{`,"tool":`, `,"target":`, `,"class":`, `,"rule":`, `,"verdict":`, `,"approval":`, `,"decider":`, `,"outcome":`}

// appendEnd appends the rest: what is of this call alone.
func (c *Call) appendEnd(out []byte, full bool, in *rawjson.Canonicalizer) []byte {
	out = appendMember(out, `,"call_id":`, c.ID)
	out = appendMember(out, `,"trace_id":`, c.Trace)
	out = append(out, `,"duration_ms":`...)
	out = appendMillis(out, c.Took.Microseconds())
	if c.Input != nil {
		out = appendInput(out, c.Input, in)
	}
	return append(appendArguments(out, c.Args, full, in), '}')
}

// maker makes the lines of calls that have waited. What it has made for the line before, it does not make again.
type maker struct {
	rawjson.Canonicalizer
	clock
	alike
}

// append appends what appendTo does.
func (m *maker) append(out []byte, c *Call) []byte {
	out = append(out, `,"time":"`...)
	out = m.clock.append(out, int64(c.Ended))
	out = c.appendWho(append(out, `","event":"`+eventCall+`"`...))
	out = m.alike.append(out, c)
	return c.appendEnd(out, false, &m.Canonicalizer)
}

// alike is what a line has in common with the one before.
type alike struct {
	texts [whats]string
	made  []byte // their members
}

// append appends the members of Call.what.
func (a *alike) append(out []byte, c *Call) []byte {
	texts := c.what()
	if texts == a.texts { // most are the same strings, whose bytes are not compared
		return append(out, a.made...)
	}
	start := len(out)
	for i, text := range texts {
		out = appendMember(out, whatKeys[i], text)
	}
	a.texts, a.made = texts, append(a.made[:0], out[start:]...)
	return out
}

// clock writes times.
type clock struct {
	began  int64  // when the clock of the calls began, in nanoseconds since 1970
	second int64  // that was written last, since 1970
	text   []byte // of that; empty before the first time
}

// set sets the clock by that of the machine, which may jump. Calls have the time since opened.
func (c *clock) set(opened time.Time) {
	now := time.Now()
	c.began = now.UnixNano() - int64(now.Sub(opened))
}

// append appends a time of a call as time.RFC3339Nano.
func (c *clock) append(out []byte, ended int64) []byte {
	at := c.began + ended
	second, rest := at/1e9, at%1e9
	if rest < 0 {
		second, rest = second-1, rest+1e9
	}
	if second != c.second || len(c.text) == 0 {
		c.second, c.text = second, time.Unix(second, 0).UTC().AppendFormat(c.text[:0], "2006-01-02T15:04:05")
	}
	out = append(out, c.text...)
	if rest == 0 {
		return append(out, 'Z')
	}
	digits := [...]byte{'.', 0, 0, 0, 0, 0, 0, 0, 0, 0}
	for i := len(digits) - 1; i > 0; i-- {
		digits[i] = byte('0' + rest%10)
		rest /= 10
	}
	end := len(digits)
	for digits[end-1] == '0' {
		end--
	}
	return append(append(out, digits[:end]...), 'Z')
}
