package audit

import (
	"encoding/json"
	"time"

	"github.com/orla-project/orla/internal/call/approvals/passkey"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// Passkey is a passkey that somebody has registered or removed (SPEC-TOOLS 8.7).
type Passkey struct {
	Owner  string // who decides with it
	Origin string // of the page that it is for
	Name   string // that its owner has given it
	Public []byte // its public key
	Change string // added, agreed or removed
	// By is who has agreed or removed it, and Proof what the passkey of By has signed; "" and nil for none.
	By    string
	Proof *passkey.Proof
	// Document is what was shown to By; "" for a passkey that was added.
	Document string
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
			out = appendText(append(out, m.key...), cut(m.text))
		}
		if k.By != "" {
			out = appendText(append(out, `,"change":`...), k.Change)
			out = appendText(append(out, `,"by":`...), cut(k.By))
		}
		if k.Document != "" && len(k.Document) <= maxProof {
			out = appendText(append(out, `,"document":`...), k.Document)
		}
		if proof, err := json.Marshal(k.Proof); err == nil && k.Proof != nil {
			out = append(append(out, `,"proof":`...), proof...)
		}
		return append(out, '}')
	})
}

// maxPasskeys bounds the passkeys that a Verifier remembers.
const maxPasskeys = 10_000

// owned is who has a passkey, the origin of the page that it is for, and whether it was removed.
type owned struct {
	by, origin string
	removed    bool
}

// The purposes of what passkeys have signed, by what has become of a passkey.
var purposes = map[string]string{"added": passkey.Register, "agreed": passkey.Agree, "removed": passkey.Remove}

// registered remembers who has a passkey, and checks that a passkey has agreed if the line says so.
func (v *Verifier) registered(l *Line) {
	if l.Change != "" {
		what := "the passkey of " + l.Decider
		if purpose := purposes[l.Change]; l.Proof == nil || purpose == "" {
			v.find(v.line, "it says that a passkey of %s was %s, and has no proof", l.Decider, l.Change)
		} else if p := v.checked(l, passkey.Statement{Purpose: purpose, ID: l.Digest}, what); p != nil {
			v.known(p, l.By, what)
			if purpose != passkey.Register && !l.tells(p) {
				v.find(v.line, "it says something else about %s than what a passkey of %s has signed", what, l.By)
			}
		}
	}
	if v.passkeys == nil {
		v.passkeys = map[string]owned{}
	}
	if _, is := v.passkeys[l.Digest]; is || len(v.passkeys) < maxPasskeys {
		v.passkeys[l.Digest] = owned{l.Decider, l.Target, l.Change == "removed"}
	}
}

// tells reports whether a line about a passkey says what was shown to who has signed.
func (l *Line) tells(p *passkey.Proof) bool {
	var of struct{ Owner, Name, Origin, Key string }
	err := json.Unmarshal([]byte(l.Document), &of)
	return err == nil && passkey.Sum([]byte(l.Document)) == p.Shown && of.Key == l.Digest &&
		cut(of.Owner) == l.Decider && cut(of.Name) == l.Reason && cut(of.Origin) == l.Target
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
	if p := v.checked(l, passkey.Statement{Purpose: purpose, ID: l.Approval, Args: l.ArgsSHA256}, l.Approval); p != nil {
		v.known(p, by, l.Approval)
	}
}

// checked returns the proof of a line, if it is one for a statement; otherwise it has found something.
func (v *Verifier) checked(l *Line, of passkey.Statement, what string) *passkey.Proof {
	var p passkey.Proof
	err := json.Unmarshal(l.Proof, &p)
	if err == nil {
		of.TTL, of.Shown = p.TTL, p.Shown
		err = p.Check(of)
	}
	if err != nil {
		v.find(v.line, "the proof of the passkey is not one of this decision about %s: %v", what, err)
		return nil
	}
	return &p
}

// known checks that the passkey of a proof is one of who has decided about something.
func (v *Verifier) known(p *passkey.Proof, by, what string) {
	switch key, known := v.passkeys[passkey.Sum(p.Public)]; {
	case !known && v.report.First == 1 && len(v.passkeys) < maxPasskeys:
		v.find(v.line, "a passkey of %s has decided about %s, and the log, which is here from its begin, has no line of its registration: it was written into the file of passkeys, or registered when there was no audit log; register it again", by, what)
	case !known:
		v.note("a passkey of %s has decided about %s; the line of its registration is not here", by, what)
	case key.removed:
		v.find(v.line, "a passkey of %s has decided about %s, and was removed before", by, what)
	case key.by != by:
		v.find(v.line, "the passkey is one of %s, and the line says that %s has decided", key.by, by)
	case key.origin != p.Origin():
		v.find(v.line, "the passkey was used on %q, and registered on %q", p.Origin(), key.origin)
	}
}
