package audit

import (
	"encoding/json"
	"time"

	"github.com/orla-project/orla/internal/call/approvals/passkey"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/observe/brief"
)

// Passkey is a passkey that somebody has registered (SPEC-TOOLS 8.7).
type Passkey struct {
	Owner  string // who decides with it
	Origin string // of the page that it is for
	Name   string // that its owner has given it
	Public []byte // its public key
}

// RecordPasskey appends a line, as Record does that of a call. A nil Log ignores it.
func (l *Log) RecordPasskey(k *Passkey) {
	if l == nil {
		return
	}
	l.append(func(out []byte, _ *rawjson.Canonicalizer) []byte {
		out = appendBegin(out, time.Now(), eventPasskey)
		for _, m := range [...]struct{ key, text string }{
			{`,"decider":`, k.Owner}, {`,"target":`, k.Origin}, {`,"reason":`, k.Name}, {`,"digest":`, passkey.Sum(k.Public)},
		} {
			out = appendText(append(out, m.key...), brief.Cut(m.text, maxText))
		}
		return append(out, '}')
	})
}

// maxPasskeys bounds the passkeys that a Verifier remembers.
const maxPasskeys = 10_000

// owned is who has a passkey, and the origin of the page that it is for.
type owned struct{ by, origin string }

// registered remembers who has a passkey.
func (v *Verifier) registered(l *Line) {
	if v.passkeys == nil {
		v.passkeys = map[string]owned{}
	}
	if len(v.passkeys) < maxPasskeys {
		v.passkeys[l.Digest] = owned{l.Decider, l.Target}
	}
}

// proved checks what a passkey has signed.
func (v *Verifier) proved(l *Line) {
	purpose := map[string]string{"decided": passkey.Approve, "extended": passkey.Extend}[l.Change]
	by := l.Decider
	if purpose == passkey.Extend {
		by = l.ExtendedBy
	}
	if l.Proof == nil {
		if l.Change == "decided" && l.Phase == "Approved" && l.How == "passkey" {
			v.find(v.line, "it says that a passkey approved %s, and has no proof", l.Approval)
		}
		return
	}
	var p passkey.Proof
	err := json.Unmarshal(l.Proof, &p)
	if err == nil {
		err = p.Check(passkey.Statement{Purpose: purpose, ID: l.Approval, TTL: p.TTL, Args: l.ArgsSHA256, Shown: p.Shown})
	}
	if err != nil {
		v.find(v.line, "the proof of the passkey is not one of this decision about %s: %v", l.Approval, err)
		return
	}
	switch key, known := v.passkeys[passkey.Sum(p.Public)]; {
	case !known && v.report.First == 1 && len(v.passkeys) < maxPasskeys:
		v.find(v.line, "a passkey of %s has decided about %s, and the log, which is here from its begin, has no line of its registration: it was written into the file of passkeys, or registered when there was no audit log; register it again", by, l.Approval)
	case !known:
		v.note("a passkey of %s has decided about %s; the line of its registration is not here", by, l.Approval)
	case key.by != by:
		v.find(v.line, "the passkey is one of %s, and the line says that %s has decided", key.by, by)
	case key.origin != p.Origin():
		v.find(v.line, "the passkey was used on %q, and registered on %q", p.Origin(), key.origin)
	}
}
