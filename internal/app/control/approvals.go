package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// Approver answers the requests about approvals (SPEC-TOOLS 8.7). Its methods may be called from any goroutine.
type Approver interface {
	// Approvals yields records without arguments, the oldest first. With Follow it goes on with each that is new
	// or has changed, whatever its phase, until ctx ends.
	Approvals(ctx context.Context, q ApprovalQuery) iter.Seq[Approval]
	// Approval tells of one record, with its arguments.
	Approval(id string) (Approval, error)
	// Approve, Deny and Extend note what a peer has decided, and return the record as it is then.
	Approve(by Peer, id string, asked ApproveRequest) (Approval, error)
	Deny(by Peer, id string, asked DenyRequest) (Approval, error)
	Extend(by Peer, id string, asked ExtendRequest) (Approval, error)
}

// Peer is the process at the other end of a connection, as the kernel knows it.
type Peer struct{ UID int }

// ApprovalQuery says which records are wanted.
type ApprovalQuery struct {
	Phase  string // one of approvalPhases; "" for all
	Follow bool   // and then each that is new or has changed
}

// approvalPhases are the phases of a record.
func approvalPhases() []string { return []string{"Pending", "Approved", "Denied", "Expired"} }

// peerKey is the key of a connection's Peer in the context of its requests.
type peerKey struct{}

// withPeer is for http.Server.ConnContext.
func withPeer(ctx context.Context, conn any) context.Context {
	if g, ok := conn.(*guest); ok {
		return context.WithValue(ctx, peerKey{}, Peer{UID: g.uid})
	}
	return ctx
}

// PeerOf returns the process that makes a request at the control socket.
func PeerOf(r *http.Request) (Peer, error) {
	if by, ok := r.Context().Value(peerKey{}).(Peer); ok {
		return by, nil
	}
	return Peer{}, &Error{Code: CodeForbidden, Message: "Orla cannot tell who you are"} // a listener that is not a doorman
}

// approvals lists records, or follows them.
func (s *Server) approvals(w http.ResponseWriter, r *http.Request) (any, error) {
	q, err := parseApprovalQuery(r)
	if err != nil {
		return nil, err
	}
	records := s.opts.Backend.Approvals(r.Context(), q)
	if q.Follow {
		pour(w, true, func(yield func(json.RawMessage, int) bool) {
			for a := range records {
				line := rawjson.Must(a)
				if !yield(line, 0) {
					return
				}
			}
		})
		return nil, nil
	}
	return Approvals{Approvals: append([]Approval{}, slices.Collect(records)...)}, nil
}

func parseApprovalQuery(r *http.Request) (q ApprovalQuery, err error) {
	for key, values := range r.URL.Query() {
		value := values[len(values)-1]
		switch key {
		case "phase":
			q.Phase, err = oneOf(value, approvalPhases())
		case "follow":
			q.Follow, err = strconv.ParseBool(value)
		default:
			return q, &Error{Code: CodeBadRequest, Message: fmt.Sprintf("there is no parameter %q", key), Hint: "there are phase and follow"}
		}
		if err != nil {
			return q, &Error{Code: CodeBadRequest, Message: fmt.Sprintf("%s=%s: %v", key, value, err)}
		}
	}
	return q, nil
}

func (s *Server) approval(_ http.ResponseWriter, r *http.Request) (any, error) {
	return s.opts.Backend.Approval(r.PathValue("id"))
}

func (s *Server) approve(w http.ResponseWriter, r *http.Request) (any, error) {
	var asked ApproveRequest
	return s.decide(w, r, &asked, func(by Peer, id string) (Approval, error) {
		if asked.Digest == "" {
			return Approval{}, &Error{
				Code: CodeBadRequest, Message: "digest is required: that of the record that you have read",
				Hint: "GET /v1/approvals/" + id + " returns it",
			}
		}
		return s.opts.Backend.Approve(by, id, asked)
	})
}

func (s *Server) deny(w http.ResponseWriter, r *http.Request) (any, error) {
	var asked DenyRequest
	return s.decide(w, r, &asked, func(by Peer, id string) (Approval, error) { return s.opts.Backend.Deny(by, id, asked) })
}

func (s *Server) extend(w http.ResponseWriter, r *http.Request) (any, error) {
	var asked ExtendRequest
	return s.decide(w, r, &asked, func(by Peer, id string) (Approval, error) {
		if asked.TTL == "" {
			return Approval{}, &Error{Code: CodeBadRequest, Message: "ttl is required: a duration such as 10m"}
		}
		return s.opts.Backend.Extend(by, id, asked)
	})
}

// decide reads what a peer has decided, and notes it.
func (s *Server) decide(w http.ResponseWriter, r *http.Request, asked any, note func(by Peer, id string) (Approval, error)) (any, error) {
	by, err := PeerOf(r)
	if err != nil {
		return nil, err
	}
	body, err := s.body(w, r)
	if err != nil {
		return nil, err
	}
	if err := decodeDecision(body, asked); err != nil {
		return nil, err
	}
	return note(by, r.PathValue("id"))
}

// decodeDecision reads a request that decides. Who decides, and with what, is not for the request to say.
func decodeDecision(body []byte, asked any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(body, &given); err != nil {
		return &Error{Code: CodeBadRequest, Message: "the request's body: " + err.Error()}
	}
	for name := range given {
		switch strings.ToLower(name) {
		case "decided_by", "decided_how":
			return &Error{Code: CodeBadRequest, Message: name + " is not accepted: the connection says who decides"}
		case "proof":
			return &Error{Code: CodeBadRequest, Message: "proof is not accepted: passkeys are for the page of the console"}
		}
	}
	return Decode(body, asked)
}

// Decode reads the body of a request, which has no other members than v.
func Decode(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return &Error{Code: CodeBadRequest, Message: "the request's body: " + strings.TrimPrefix(err.Error(), "json: ")}
	}
	return nil
}
