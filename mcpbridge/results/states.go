package results

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// Asking is a request of a client's, and whose it is. A state belongs to one.
type Asking struct {
	Client string // see peer.Client.Session
	Method string
	Name   string // of the tool or the prompt, or the URI
	Args   json.RawMessage
}

// Sum tells the request from all others.
func (a Asking) Sum() (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, part := range []string{a.Client, a.Method, a.Name} {
		_, _ = h.Write(binary.AppendUvarint(nil, uint64(len(part)))) // a hash has no errors
		_, _ = h.Write([]byte(part))
	}
	_, _ = h.Write(a.Args)
	return [sha256.Size]byte(h.Sum(nil))
}

// States signs what peers give as requestState. A peer does not see which client of
// Orla's a request comes from, so it is Orla that lets only the client that was given a
// state give it back, and only with the same request (SPEC N2). The key is new at each
// start: a state of before is refused, and the client begins again.
type States struct{ key [sha256.Size]byte }

// NewStates returns States with a new key.
func NewStates() *States {
	s := &States{}
	_, _ = rand.Read(s.key[:]) // it has no errors
	return s
}

// What a client is given begins with one of the two: heldPrefix for a conversation
// that Orla holds, signedPrefix for a peer's own state.
const (
	HeldPrefix   = "orla:"
	signedPrefix = "peer:"
)

// sign returns what the client is given for a state of its peer.
func (s *States) sign(of Asking, state string) string {
	return signedPrefix + s.signature(of, state) + ":" + state
}

// Check returns the peer's state of what a client gives back. It reports false for what
// was not given to this client for this request.
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

// ErrUnknownState answers a requestState that the client was not given for its request.
var ErrUnknownState = &jsonrpc.Error{
	Code:    jsonrpc.CodeInvalidParams,
	Message: "requestState is not that of an open call of yours: its time is over, it has been used, or the request is another; call again without it",
}
