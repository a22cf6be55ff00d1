package results

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// Asking identifies a request of a client. Each requestState belongs to one.
type Asking struct {
	Client string // see peer.Client.Session
	Method string
	Name   string // of the tool or the prompt, or the URI
	Args   json.RawMessage
}

// Sum returns a hash of the request.
func (a Asking) Sum() (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, part := range []string{a.Client, a.Method, a.Name} {
		_, _ = h.Write(binary.AppendUvarint(nil, uint64(len(part)))) // a hash has no errors
		_, _ = h.Write([]byte(part))
	}
	_, _ = h.Write(a.Args)
	return [sha256.Size]byte(h.Sum(nil))
}

// States signs the requestState of peers. A peer does not see which of Orla's clients a request
// comes from, so Orla checks that a state comes back from the client that got it, with the same
// request (SPEC N2). The key is new at each start, but not after an upgrade: older states are refused, and the
// client begins again.
type States struct{ key [sha256.Size]byte }

// NewStates returns States with a key that Key has returned, or with a new one.
func NewStates(key []byte) *States {
	s := &States{}
	if len(key) == len(s.key) {
		copy(s.key[:], key)
		return s
	}
	_, _ = rand.Read(s.key[:]) // it has no errors
	return s
}

// Key returns the key. It is a secret.
func (s *States) Key() []byte { return bytes.Clone(s.key[:]) }

// Each requestState of a client begins with one of these: HeldPrefix for a conversation that
// Orla keeps, signedPrefix for a peer's own state.
const (
	HeldPrefix   = "orla:"
	signedPrefix = "peer:"
)

// NewStatesOf returns States with a key that other replicas have too.
func NewStatesOf(key [sha256.Size]byte) *States { return &States{key} }

// sign returns the requestState that a client gets for a state of a peer.
func (s *States) sign(of Asking, state string) string {
	return signedPrefix + s.signature(of, state) + ":" + state
}

// Check returns the peer's state in a requestState of a client. It reports false if this client
// was not given it for this request.
func (s *States) Check(of Asking, given string) (state string, ok bool) {
	rest, ok := strings.CutPrefix(given, signedPrefix)
	signature, state, found := strings.Cut(rest, ":")
	return state, ok && found && hmac.Equal([]byte(signature), []byte(s.signature(of, state)))
}

func (s *States) signature(of Asking, state string) string {
	sum := of.Sum()
	mac := hmac.New(sha256.New, s.key[:])
	_, _ = mac.Write(sum[:])
	_, _ = mac.Write([]byte(state))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// ErrUnknownState refuses a requestState that the client was not given for its request.
var ErrUnknownState = &jsonrpc.Error{
	Code:    jsonrpc.CodeInvalidParams,
	Message: "requestState is not that of an open call of yours: its time is over, it has been used, or the request is another; call again without it",
}
