package mcpbridge

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

// asking is a request of a client's, and whose it is. A state belongs to one.
type asking struct {
	client string // see peer.Client.Session
	method string
	name   string // of the tool or the prompt, or the URI
	args   json.RawMessage
}

// sum tells the request from all others.
func (a asking) sum() (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, part := range []string{a.client, a.method, a.name} {
		_, _ = h.Write(binary.AppendUvarint(nil, uint64(len(part)))) // a hash has no errors
		_, _ = h.Write([]byte(part))
	}
	_, _ = h.Write(a.args)
	return [sha256.Size]byte(h.Sum(nil))
}

// states signs what peers give as requestState. A peer does not see which client of
// Orla's a request comes from, so it is Orla that lets only the client that was given a
// state give it back, and only with the same request (SPEC N2). The key is new at each
// start: a state of before is refused, and the client begins again.
type states struct{ key [sha256.Size]byte }

func newStates() *states {
	s := &states{}
	_, _ = rand.Read(s.key[:]) // it has no errors
	return s
}

// What a client is given begins with one of the two: heldPrefix for a conversation
// that Orla holds, signedPrefix for a peer's own state.
const (
	heldPrefix   = "orla:"
	signedPrefix = "peer:"
)

// sign returns what the client is given for a state of its peer.
func (s *states) sign(of asking, state string) string {
	return signedPrefix + s.signature(of, state) + ":" + state
}

// check returns the peer's state of what a client gives back. It reports false for what
// was not given to this client for this request.
func (s *states) check(of asking, given string) (state string, ok bool) {
	rest, ok := strings.CutPrefix(given, signedPrefix)
	signature, state, found := strings.Cut(rest, ":")
	return state, ok && found && hmac.Equal([]byte(signature), []byte(s.signature(of, state)))
}

func (s *states) signature(of asking, state string) string {
	sum := of.sum()
	mac := hmac.New(sha256.New, s.key[:])
	_, _ = mac.Write(sum[:])
	_, _ = mac.Write([]byte(state))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// errUnknownState answers a requestState that the client was not given for its request.
var errUnknownState = &jsonrpc.Error{
	Code:    jsonrpc.CodeInvalidParams,
	Message: "requestState is not that of an open call of yours: its time is over, it has been used, or the request is another; call again without it",
}
