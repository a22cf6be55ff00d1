package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/control"
)

// theApproval is the record that the backend has.
func theApproval() control.Approval {
	return control.Approval{
		ID: "ap-1", Phase: "Pending", Tool: "wipe", Caller: "ann", Runs: []string{"wipe"}, Approvers: []string{"operator"}, Created: time.Now(), Expires: time.Now(),
		TTL: "10m0s", Digest: "d1", Size: 2,
	}
}

func (b *backend) Approvals(ctx context.Context, q control.ApprovalQuery) iter.Seq[control.Approval] {
	return func(yield func(control.Approval) bool) {
		if q.Phase != "" && q.Phase != "Pending" || !yield(theApproval()) || !q.Follow {
			return
		}
		b.following(1)
		defer b.following(-1)
		<-ctx.Done()
	}
}

func (b *backend) Approval(id string) (control.Approval, error) {
	if id != "ap-1" {
		return control.Approval{}, &control.Error{Code: control.CodeNotFound, Message: "there is no approval"}
	}
	a := theApproval()
	a.Arguments = json.RawMessage(`{}`)
	a.Last = control.LastApproved{ID: "ap-0", By: "root", Decided: time.Now(), Changes: []control.ArgumentChange{{Path: "/a", Was: json.RawMessage("1")}}}
	return a, nil
}

// decided notes who decided, and with what.
func (b *backend) decided(by control.Peer, id, what string) (control.Approval, error) {
	a, err := b.Approval(id)
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		a.Last, a.Arguments, a.By, a.Decided = control.LastApproved{}, nil, fmt.Sprint(by.UID), time.Now()
		b.operated = append(b.operated, fmt.Sprint(by.UID, " ", what))
	}
	return a, err
}

func (b *backend) Approve(by control.Peer, id string, asked control.ApproveRequest) (control.Approval, error) {
	return b.decided(by, id, "approve "+asked.Digest+" "+asked.TTL)
}

func (b *backend) Deny(by control.Peer, id string, asked control.DenyRequest) (control.Approval, error) {
	return b.decided(by, id, "deny "+asked.Reason)
}

func (b *backend) Extend(by control.Peer, id string, asked control.ExtendRequest) (control.Approval, error) {
	return b.decided(by, id, "extend "+asked.TTL)
}

// SPEC-TOOLS 8.7: who decides is known from the connection, and a request that says it is refused, as is one
// with a proof.
func TestT87WhoDecidesIsNotInTheRequest(t *testing.T) {
	b := newBackend()
	s := serve(t, b)
	for path, good := range map[string]string{
		"/v1/approvals/ap-1/approve": `{"digest":"d1","ttl":"1h"`, "/v1/approvals/ap-1/deny": `{"reason":"no"`, "/v1/approvals/ap-1/extend": `{"ttl":"1h"`,
	} {
		for _, bad := range []string{
			`,"decided_by":"root"}`, `,"Decided_By":"root"}`, `,"decided_by":null}`, `,"decided_how":"passkey"}`, `,"proof":{}}`, `,"by":"root"}`, `,`, `} {}`, `}]`,
		} {
			if status, _, body := s.request("POST", path, good+bad); status != "400" {
				t.Errorf("POST %s %s: %s %s", path, good+bad, status, body)
			}
		}
		if status, _, body := s.request("POST", path, `["decided_by"]`); status != "400" {
			t.Errorf("POST %s with a list: %s %s", path, status, body)
		}
		if len(b.operated) > 0 {
			t.Fatalf("a refused request has decided: %s", b.operated)
		}
		if status, _, body := s.request("POST", path, good+"}"); status != "200" || !strings.Contains(body, fmt.Sprintf(`"decided_by":"%d"`, os.Geteuid())) {
			t.Errorf("POST %s %s}: %s %s", path, good, status, body)
		}
		b.operated = nil
	}
	for path, body := range map[string]string{"/v1/approvals/ap-1/approve": "", "/v1/approvals/ap-1/extend": "null"} {
		if status, _, answer := s.request("POST", path, body); status != "400" || len(b.operated) > 0 {
			t.Errorf("POST %s without what it needs: %s %s", path, status, answer)
		}
	}
}

// SPEC-TOOLS 8.7: whoever follows the approvals gets them as lines, until it leaves.
func TestT87FollowApprovals(t *testing.T) {
	b := newBackend()
	s := serve(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for line, err := range control.NewClient(s.socket).FollowApprovals(ctx, control.ApprovalQuery{Phase: "Pending"}) {
		var a control.Approval
		if err != nil || json.Unmarshal(line, &a) != nil || a.ID != "ap-1" {
			t.Fatalf("%s, %v", line, err)
		}
		break
	}
	for deadline := time.Now().Add(patience); b.readersNow() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the stream goes on without its client")
		}
	}
}
