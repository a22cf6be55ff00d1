package decisions_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/decisions"
	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/call/approvals/passkey"
	"github.com/orla-project/orla/manifest"
)

const page = "http://localhost:8080"

// person is somebody with a passkey, on a page.
type person struct {
	t    *testing.T
	name string
	key  *ecdsa.PrivateKey
	ask  func(method, path string, body any) (int, string)
}

func newPerson(t *testing.T, name string, d *decisions.Decisions) *person {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Passkeys.Add(&passkey.Key{ID: []byte(name), Public: public, RP: "localhost", Origin: page, Owner: name}, func([]passkey.Key) error { return nil }); err != nil {
		t.Fatal(err)
	}
	handler := d.Page(http.NotFoundHandler())
	v := &decisions.Visitor{Name: name, Roles: decisions.Roles(), Origin: page, Session: name, NoPasskeys: func() error { return nil }}
	return &person{t, name, key, func(method, path string, body any) (int, string) {
		text, _ := json.Marshal(body) // of this test
		r := httptest.NewRequest(method, "/v1"+path, strings.NewReader(string(text)))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r.WithContext(decisions.With(r.Context(), v)))
		return w.Code, w.Body.String()
	}}
}

func (p *person) signs(s passkey.Statement) passkey.Assertion {
	p.t.Helper()
	client := fmt.Appendf(nil, `{"type":"webauthn.get","challenge":%q,"origin":%q}`, base64.RawURLEncoding.EncodeToString(s.Challenge()), page)
	rp, sum := sha256.Sum256([]byte("localhost")), sha256.Sum256(client)
	data := append(rp[:], 0x05, 0, 0, 0, 0)
	hash := sha256.Sum256(append(append([]byte{}, data...), sum[:]...))
	signature, err := ecdsa.SignASN1(rand.Reader, p.key, hash[:])
	if err != nil {
		p.t.Fatal(err)
	}
	return passkey.Assertion{Credential: []byte(p.name), ClientData: client, Data: data, Signature: signature}
}

// SPEC-TOOLS 8.7: what a passkey has decided is told before that the passkey was removed, so that the audit log is right. When
// its removal is answered, it decides nothing more.
func TestT87ARemovalWaitsForWhatAPasskeyDecides(t *testing.T) {
	var told []string
	var mu sync.Mutex
	tell := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, what)
	}
	begun, removed := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	store, err := approvals.Open(approvals.Options{
		Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Told: func(e approvals.Event) { tell("decided by " + e.By) },
		Unrecorded: func() error {
			if first.CompareAndSwap(false, true) {
				close(begun)
				select { // the removal comes now, if nothing holds it
				case <-removed:
				case <-time.After(200 * time.Millisecond):
				}
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	d := &decisions.Decisions{
		Store: func() *approvals.Store { return store }, SameUser: func() bool { return false }, ByLogin: func() bool { return false }, Unrecorded: func() error { return nil },
		Passkeys: passkey.NewStore(filepath.Join(t.TempDir(), "passkeys", "a.json")), Log: slog.New(slog.DiscardHandler),
		Changed: func(c *decisions.PasskeyChange) { tell(c.What + " by " + c.By) },
	}
	ada, bob := newPerson(t, "ada", d), newPerson(t, "bob", d)
	r, _, err := store.Ask(approvals.Question{Caller: "ci", Tool: "wipe", Args: json.RawMessage(`{}`), Policy: "1", Approvers: []manifest.Approver{manifest.ApproverOperator}})
	if err != nil {
		t.Fatal(err)
	}
	var said decisions.Statement
	if code, text := bob.ask("GET", "/approvals/"+r.ID+"/statement?purpose=approve", nil); code != http.StatusOK || json.Unmarshal([]byte(text), &said) != nil {
		t.Fatalf("%d %s", code, text)
	}
	var list decisions.KnownPasskeys
	if code, text := ada.ask("GET", "/passkeys", nil); code != http.StatusOK || json.Unmarshal([]byte(text), &list) != nil || len(list.Passkeys) != 2 {
		t.Fatalf("%d %s", code, text)
	}
	his := list.Passkeys[1]
	approved := make(chan string, 1)
	go func() {
		_, text := bob.ask("POST", "/approvals/"+r.ID+"/approve", decisions.VisitorDecision{Proof: bob.signs(passkey.Statement{
			Purpose: passkey.Approve, ID: r.ID, Args: said.Args, Shown: passkey.Sum([]byte(said.Document)),
		})})
		approved <- text
	}()
	<-begun
	if code, text := ada.ask("POST", "/passkeys/remove", decisions.PasskeyDecision{Key: his.Key, Proof: ada.signs(passkey.Statement{
		Purpose: passkey.Remove, ID: his.Key, Shown: passkey.Sum([]byte(his.Document)),
	})}); code != http.StatusOK {
		t.Errorf("remove: %d %s", code, text)
	}
	close(removed)
	if text := <-approved; !strings.Contains(text, `"phase":"Approved"`) {
		t.Errorf("approve: %s", text)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"decided by bob", "removed by ada"}; fmt.Sprint(told) != fmt.Sprint(want) {
		t.Errorf("told: %q, want %q", told, want)
	}
}
