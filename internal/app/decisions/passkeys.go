package decisions

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/call/approvals/passkey"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// The bounds of passkeys that wait for somebody to agree.
const (
	maxWishes = 16
	wishLife  = 10 * time.Minute
)

// wishes are the passkeys to which somebody else is to agree: one of each session. The zero value has none.
type wishes struct {
	mu  sync.Mutex // guards all
	all []wish     // oldest first
}

// wish is a passkey that is not good yet.
type wish struct {
	key     passkey.Key
	session string
	until   time.Time
}

// add keeps a wish, in place of the one that its session had. Its error says why it does not: of two that ask for the same
// passkey one would wait longer than what somebody has signed about it, and there may be too many.
func (w *wishes) add(one wish, now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = slices.DeleteFunc(w.all, func(old wish) bool { return now.After(old.until) || old.session == one.session })
	if slices.ContainsFunc(w.all, func(old wish) bool { return bytes.Equal(old.key.Public, one.key.Public) }) {
		return errors.New("it waits already, for another page")
	}
	if len(w.all) >= maxWishes && !w.makePlaceLocked(one.key.Owner) {
		return errors.New("too many passkeys wait for somebody to agree; try again in ten minutes")
	}
	w.all = append(w.all, one)
	return nil
}

// makePlaceLocked drops the oldest wish of the owner who has the most, if an owner who asks has at least two fewer. So
// nobody keeps all places (SPEC N2).
func (w *wishes) makePlaceLocked(owner string) bool {
	counts := map[string]int{}
	for _, old := range w.all {
		counts[old.key.Owner]++
	}
	most := slices.MaxFunc(w.all, func(a, b wish) int { return cmp.Compare(counts[a.key.Owner], counts[b.key.Owner]) })
	if counts[most.key.Owner] < counts[owner]+2 {
		return false
	}
	w.all = slices.DeleteFunc(w.all, func(old wish) bool { return old.session == most.session })
	return true
}

// list returns the wishes that wait.
func (w *wishes) list(now time.Time) (all []wish) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.all {
		if !now.After(one.until) {
			all = append(all, one)
		}
	}
	return all
}

// take removes a wish, if it is the same as before.
func (w *wishes) take(one *wish) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := len(w.all)
	w.all = slices.DeleteFunc(w.all, func(old wish) bool {
		return old.session == one.session && bytes.Equal(old.key.Public, one.key.Public)
	})
	return len(w.all) < before
}

// KnownPasskeys are the passkeys of all, and those that wait for somebody to agree.
type KnownPasskeys struct {
	Passkeys []KnownPasskey `json:"passkeys" jsonschema:"Those that are good."`
	Asked    []KnownPasskey `json:"asked" jsonschema:"Those to which somebody with a passkey is to agree, for ten minutes."`
}

// KnownPasskey is a passkey of somebody.
type KnownPasskey struct {
	Key      string `json:"key" jsonschema:"The SHA-256 of its public key."`
	Code     string `json:"code" jsonschema:"Eight characters for people, in two groups: the page of its owner shows the same while it waits. Orla has chosen them after the key."`
	Document string `json:"document" jsonschema:"A PasskeyDocument as JSON. Who agrees or removes signs the hash of this text."`
}

// PasskeyDocument is what is shown of a passkey to who agrees to it or removes it.
type PasskeyDocument struct {
	Owner  string    `json:"owner" jsonschema:"Who decides with it."`
	Name   string    `json:"name" jsonschema:"The name that its owner has given it."`
	Origin string    `json:"origin" jsonschema:"The page that it is for: scheme, host and port."`
	Key    string    `json:"key" jsonschema:"The SHA-256 of its public key."`
	Code   string    `json:"code" jsonschema:"Eight characters that Orla has chosen after the key. They distinguish this from an earlier time when the same was asked for."`
	Since  time.Time `json:"registered_at" jsonschema:"When it was registered, or asked for."`
}

// AskedPasskey is a passkey of a visitor that waits for somebody to agree.
type AskedPasskey struct {
	Name  string    `json:"name" jsonschema:"The name that the visitor has given it."`
	Code  string    `json:"code" jsonschema:"Eight characters, in two groups: who agrees types them."`
	Until time.Time `json:"until" jsonschema:"Until when somebody may agree."`
}

// PasskeyDecision says what becomes of a passkey.
type PasskeyDecision struct {
	Key   string            `json:"key" jsonschema:"The SHA-256 of its public key."`
	Proof passkey.Assertion `json:"proof,omitzero" jsonschema:"What a passkey of this visitor has signed, made as for a statement: purpose is agree or remove, id is key, ttl and arguments_sha256 are empty, and the document is that of the list. To refuse needs none."`
}

// PasskeyChange is what has become of a passkey.
type PasskeyChange struct {
	Key      *passkey.Key
	What     string         // Added, Agreed or Removed
	By       string         // who has agreed, or removed it; "" for Added by a link
	Proof    *passkey.Proof // of a passkey of By; nil for Added by a link
	Document string         // that was shown, and signed; "" for Added
}

// What becomes of a passkey.
const (
	Added   = "added" // its owner had a link, or another passkey
	Agreed  = "agreed"
	Removed = "removed"
)

// known returns what is shown of a passkey.
func known(k *passkey.Key) KnownPasskey {
	sum := passkey.Sum(k.Public)
	text, _ := rawjson.Line(PasskeyDocument{k.Owner, k.Name, k.Origin, sum, codeOf(k), k.Registered}) // texts and a time
	return KnownPasskey{sum, codeOf(k), string(text)}
}

// codeOf is what two people compare of a passkey: 40 bits, as two groups of four characters. They depend on its salt, which
// is chosen after the key. So nobody can look for a key that has the code of another one.
func codeOf(k *passkey.Key) string {
	sum := sha256.Sum256(slices.Concat(k.Salt, k.Public))
	text := base32.StdEncoding.EncodeToString(sum[:5])
	return text[:4] + "-" + text[4:]
}

// listPasskeys tells who may approve of all passkeys.
func (d *Decisions) listPasskeys(_ *Visitor, _ *http.Request) (any, error) {
	list := KnownPasskeys{Passkeys: []KnownPasskey{}, Asked: []KnownPasskey{}}
	keys, err := d.Passkeys.Keys()
	if err != nil && !errors.Is(err, passkey.ErrNoPlace) {
		return nil, err
	}
	for i := range keys {
		list.Passkeys = append(list.Passkeys, known(&keys[i]))
	}
	for _, one := range d.wishes.list(time.Now()) {
		list.Asked = append(list.Asked, known(&one.key))
	}
	return list, nil
}

// wish keeps a new passkey until somebody agrees to it.
func (d *Decisions) wish(v *Visitor, k *passkey.Key) error {
	if err := d.Passkeys.Fits(k); err != nil {
		return err
	}
	now := time.Now()
	if err := d.wishes.add(wish{*k, v.Session, now.Add(wishLife)}, now); err != nil {
		return err
	}
	d.Log.Info("a passkey was asked for", "by", k.Owner, "name", k.Name, "host", k.RP)
	return nil
}

// asked returns the passkey of a visitor that waits; the zero value for none.
func (d *Decisions) asked(v *Visitor) AskedPasskey {
	for _, one := range d.wishes.list(time.Now()) {
		if one.session == v.Session {
			return AskedPasskey{one.key.Name, codeOf(&one.key), one.until}
		}
	}
	return AskedPasskey{}
}

// aboutPasskey answers the requests about a passkey of somebody. act does it, and says so by its change.
func aboutPasskey(act func(*Decisions, *Visitor, *PasskeyDecision) (*PasskeyChange, error)) func(*Decisions, *Visitor, *http.Request) (any, error) {
	return func(d *Decisions, v *Visitor, r *http.Request) (any, error) {
		var asked PasskeyDecision
		if err := read(r, &asked); err != nil {
			return nil, err
		}
		err := d.change(func() (*PasskeyChange, error) { return act(d, v, &asked) })
		if err != nil {
			d.Log.Warn("a decision about a passkey was refused", "by", v.Name, "err", err)
			return nil, &control.Error{Code: control.CodeForbidden, Message: "the passkey: " + err.Error(), Hint: "look at the list again"}
		}
		return d.listPasskeys(v, r)
	}
}

// change has act change which passkeys there are, and notes it. No passkey decides meanwhile: so what a passkey has
// decided is recorded before that it was removed.
func (d *Decisions) change(act func() (*PasskeyChange, error)) error {
	d.changing.Lock()
	defer d.changing.Unlock()
	change, err := act()
	if err == nil && change != nil {
		d.record(change)
	}
	return err
}

// record notes what has become of a passkey.
func (d *Decisions) record(change *PasskeyChange) {
	k := change.Key
	switch change.What {
	case Removed:
		d.Log.Info("a passkey was removed", "by", change.By, "owner", k.Owner, "name", k.Name, "host", k.RP)
	case Agreed:
		d.Log.Info("a passkey was registered", "by", k.Owner, "name", k.Name, "host", k.RP, "agreed_by", change.By)
	default:
		d.Log.Info("a passkey was registered", "by", k.Owner, "name", k.Name, "host", k.RP)
	}
	d.Changed(change)
}

// signedAbout checks that a passkey of a visitor has signed what is shown of another one, and returns what is then to be
// noted.
func (d *Decisions) signedAbout(v *Visitor, purpose string, k *passkey.Key, asked *PasskeyDecision) (*PasskeyChange, error) {
	if err := d.Unrecorded(); err != nil {
		return nil, err
	}
	shown := known(k)
	proof, err := d.use(v, &asked.Proof, passkey.Statement{Purpose: purpose, ID: shown.Key, Shown: passkey.Sum([]byte(shown.Document))})
	if err != nil {
		return nil, err
	}
	what := map[string]string{passkey.Agree: Agreed, passkey.Remove: Removed}[purpose]
	return &PasskeyChange{Key: k, What: what, By: v.Name, Proof: proof, Document: shown.Document}, nil
}

// agree makes the passkey of somebody good, to which a passkey of the visitor agrees.
func (d *Decisions) agree(v *Visitor, asked *PasskeyDecision) (*PasskeyChange, error) {
	one, err := d.waiting(asked.Key)
	if err != nil {
		return nil, err
	}
	change, err := d.signedAbout(v, passkey.Agree, &one.key, asked)
	if err != nil {
		return nil, err
	}
	if !d.wishes.take(one) {
		return nil, errGone
	}
	if err := d.Passkeys.Add(&one.key, func([]passkey.Key) error { return nil }); err != nil {
		return nil, err
	}
	return change, nil
}

// refuse drops a passkey that waits. That needs no passkey, since it allows nothing.
func (d *Decisions) refuse(v *Visitor, asked *PasskeyDecision) (*PasskeyChange, error) {
	one, err := d.waiting(asked.Key)
	if err != nil {
		return nil, err
	}
	d.wishes.take(one)
	d.Log.Info("a passkey was not agreed to", "by", v.Name, "owner", one.key.Owner, "name", one.key.Name)
	return nil, nil //nolint:nilnil // nothing has changed
}

// remove takes a passkey away from its owner. The last one stays: after it, a link alone would register another.
func (d *Decisions) remove(v *Visitor, asked *PasskeyDecision) (*PasskeyChange, error) {
	keys, err := d.Passkeys.Keys()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(keys, func(k passkey.Key) bool { return passkey.Sum(k.Public) == asked.Key })
	if i < 0 {
		return nil, errGone
	}
	k := keys[i]
	if len(keys) == 1 {
		return nil, errors.New("it is the last one, which only the owner of the file of passkeys can remove")
	}
	change, err := d.signedAbout(v, passkey.Remove, &k, asked)
	if err != nil {
		return nil, err
	}
	if err := d.Passkeys.Remove(k.ID); err != nil {
		return nil, err
	}
	return change, nil
}

var errGone = errors.New("it is not there any more")

// waiting returns the passkey with a key that waits for somebody to agree.
func (d *Decisions) waiting(key string) (*wish, error) {
	for _, one := range d.wishes.list(time.Now()) {
		if passkey.Sum(one.key.Public) == key {
			return &one, nil
		}
	}
	return nil, errGone
}
