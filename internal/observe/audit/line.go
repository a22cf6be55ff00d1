package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/observe/brief"
)

// The events of lines.
const (
	eventCall      = "call"
	eventRequest   = "request"   // somebody has read, completed or followed something
	eventApproval  = "approval"  // somebody has decided about a call that needs an approval
	eventPin       = "pin"       // an operator has accepted the definition of a tool or a prompt
	eventPasskey   = "passkey"   // somebody has registered a passkey
	eventRules     = "rules"     // an operator has accepted that rules are gone
	eventArguments = "arguments" // an operator has arguments of calls kept
	eventStart     = "start"     // Orla begins to write: after its start, or to a new file
	eventHead      = "head"      // a signature over the chain so far
	eventTorn      = "torn"      // the line before was cut in the middle of a write
	eventGap       = "gap"       // at its start, Orla found that lines which it had signed were missing or changed
	eventLost      = "lost"      // calls that could not be recorded
)

// Why a start is written, and a head signed.
const (
	whyStart    = "start"    // Orla continues a file
	whyNew      = "new file" // Orla begins a file at its start
	whyRotated  = "rotated"  // Orla continues in a new file, or ends the old one
	whyStop     = "stop"
	whyLines    = "lines" // there are many lines since the last head
	whyInterval = "interval"
)

// Line is a line of an audit log, as it is read.
type Line struct {
	Seq   uint64    `json:"seq"`
	Prev  string    `json:"prev"` // SHA-256 of the line before, without its line end
	Time  time.Time `json:"time"`
	Event string    `json:"event"`

	Caller     string  `json:"caller"`
	Agent      string  `json:"agent"` // whom the caller has said that it acts for
	Task       string  `json:"task"`  // what the call is a part of
	Tool       string  `json:"tool"`
	Method     string  `json:"method"` // of a request: what it was, and of what
	URI        string  `json:"uri"`
	Prompt     string  `json:"prompt"`
	Target     string  `json:"target"`
	Class      string  `json:"class"`
	Rule       string  `json:"rule"`
	Verdict    string  `json:"verdict"`
	Approval   string  `json:"approval"`
	Decider    string  `json:"decider"`
	Outcome    string  `json:"outcome"`
	DurationMS float64 `json:"duration_ms"`

	Phase      string `json:"phase"`       // of an approval
	Change     string `json:"change"`      // what became of it
	How        string `json:"how"`         // with what somebody has decided
	ExtendedBy string `json:"extended_by"` // who has changed for how long it waits or is good
	Until      string `json:"until"`       // for how long
	Reason     string `json:"reason"`      // of a denial or an end

	ArgsSHA256 string          `json:"args_sha256"` // of the arguments
	Proof      json.RawMessage `json:"proof"`       // of a decision by a passkey
	By         string          `json:"by"`          // of a passkey: who has agreed to it, or removed it
	Document   string          `json:"document"`    // of a passkey: what was shown to them

	Kind   string `json:"kind"`   // of a pin: tool or prompt
	Digest string `json:"digest"` // of a pin: of the definition; of a passkey: of its public key

	Why  string `json:"why"`  // of a start, a head or a gap
	Note string `json:"note"` // of a head: what is signed, and the signature

	Bytes   int    `json:"bytes"`   // of the fragment before a torn line
	SHA256  string `json:"sha256"`  // its hash
	Lost    int    `json:"lost"`    // calls that were made, and have no line
	Refused int    `json:"refused"` // calls that were refused meanwhile
}

const (
	// maxText bounds a text of a client or a rule, in bytes. The name of a caller with an access token is shorter.
	maxText = 320
	// maxArgs bounds the arguments in a line, in bytes, with audit_arguments: full.
	maxArgs = 16 << 10
	// maxProof is more than the proof of a passkey can have, in bytes.
	maxProof = 16 << 10
	// maxLine is more than a line can have, in bytes.
	maxLine = 64 << 10
)

// hash is the SHA-256 of a line without its line end.
type hash [sha256.Size]byte

func (h hash) String() string { return hex.EncodeToString(h[:]) }

// cut returns a text, cut to maxText. What it was shows in a part of its hash, so that two long texts are not one.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return brief.Cut(text, maxText) + hex.EncodeToString(sum[:8])
}

// appendMember appends a member whose value is a text, cut to maxText. It appends nothing for "".
func appendMember[T string | []byte](out []byte, key string, text T) []byte {
	switch size := len(text); {
	case size == 0:
		return out
	case size > maxText:
		return appendText(append(out, key...), cut(string(text)))
	}
	return appendText(append(out, key...), text)
}

// appendBegin appends the members that each line has after seq and prev.
func appendBegin(out []byte, now time.Time, event string) []byte {
	out = append(out, `,"time":"`...)
	out = now.UTC().AppendFormat(out, time.RFC3339Nano)
	out = append(out, `","event":"`...)
	out = append(out, event...)
	return append(out, '"')
}

// plain are the bytes that are the same in a JSON string.
var plain = func() (all [256]bool) {
	for b := byte(' '); b < 0x7f; b++ {
		all[b] = !strings.ContainsRune(`"\<>&`, rune(b))
	}
	return all
}()

// appendMillis appends a number of microseconds as milliseconds.
func appendMillis(out []byte, us int64) []byte {
	if us < 0 {
		out, us = append(out, '-'), -us
	}
	out = strconv.AppendInt(out, us/1000, 10)
	rest := us % 1000
	if rest == 0 {
		return out
	}
	out = append(out, '.', byte('0'+rest/100))
	if rest %= 100; rest > 0 {
		out = append(out, byte('0'+rest/10))
		if rest %= 10; rest > 0 {
			out = append(out, byte('0'+rest))
		}
	}
	return out
}

// appendText appends a JSON string.
func appendText[T string | []byte](out []byte, text T) []byte {
	for i := range len(text) {
		if !plain[text[i]] {
			size := len(out)
			out = rawjson.AppendQuote(out, string(text))
			return append(out[:size], terminal.EscapedJSON(out[size:])...)
		}
	}
	out = append(out, '"')
	out = append(out, text...)
	return append(out, '"')
}

// appendArguments appends the hash of arguments, and themselves if full is set and they are not too large.
func appendArguments(out, args []byte, full bool, in *rawjson.Canonicalizer) []byte {
	if len(args) == 0 || string(args) == "null" {
		args = []byte("{}")
	}
	size := len(out)
	out, sum, isCanonical := sumOf(out, args, in)
	var kept []byte
	if form := out[size:]; full && isCanonical && len(form) <= maxArgs {
		if form = terminal.EscapedJSON(form); len(form) <= maxArgs {
			kept = append(kept, form...)
		}
	}
	out = append(out[:size], `,"args_sha256":"`...)
	out = append(appendHex(out, sum), '"')
	if !isCanonical {
		out = append(out, `,"args_form":"as_sent"`...)
	}
	if !full {
		return out
	}
	if kept == nil {
		return strconv.AppendInt(append(out, `,"args_omitted_bytes":`...), int64(len(args)), 10)
	}
	return append(append(out, `,"args":`...), kept...)
}

// appendInput appends the hash of what a client has answered to the questions of a tool.
func appendInput(out, input []byte, in *rawjson.Canonicalizer) []byte {
	size := len(out)
	out, sum, isCanonical := sumOf(out, input, in)
	out = append(out[:size], `,"input_sha256":"`...)
	out = append(appendHex(out, sum), '"')
	if !isCanonical {
		out = append(out, `,"input_form":"as_sent"`...)
	}
	return out
}

// sumOf returns the hash of a JSON value in its canonical form, which it makes behind the line, else as it was sent.
func sumOf(out, value []byte, in *rawjson.Canonicalizer) (line []byte, sum hash, isCanonical bool) {
	size := len(out)
	if out, isCanonical = in.Append(out, value); isCanonical {
		return out, sha256.Sum256(out[size:]), true
	}
	return out[:size], sha256.Sum256(value), false
}

// appendHex appends the hexadecimal form of a hash, which it makes of eight digits at once.
func appendHex(out []byte, h hash) []byte {
	var text [2 * len(h)]byte
	for i := 0; i < len(h); i += 4 {
		x := uint64(binary.BigEndian.Uint32(h[i:]))
		x = (x | x<<16) & 0x0000ffff0000ffff
		x = (x | x<<8) & 0x00ff00ff00ff00ff
		x = (x | x<<4) & 0x0f0f0f0f0f0f0f0f // a digit in each byte
		letters := (x + 0x0606060606060606) >> 4 & 0x0101010101010101
		binary.BigEndian.PutUint64(text[2*i:], x+0x3030303030303030+letters*('a'-'9'-1))
	}
	return append(out, text[:]...)
}

// decodeHex reports whether text is the hexadecimal form of what it writes to out, in lower case.
func decodeHex(out []byte, text string) bool {
	_, err := hex.Decode(out, []byte(text))
	return err == nil && hex.EncodeToString(out) == text
}
