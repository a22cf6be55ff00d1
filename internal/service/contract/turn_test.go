package contract_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/service/contract"
	"github.com/orla-project/orla/manifest"
)

// SPEC N2: what is done with a large answer of a service waits for the turn of its caller, until the attempt
// ends. A small answer does not wait.
func TestN2ALargeAnswerIsReadInTurn(t *testing.T) {
	tool, err := contract.For(manifest.Tool{Name: "web_search", OutputSchema: []byte(`{"type":"object"}`)})
	if err != nil {
		t.Fatal(err)
	}
	pad := strings.Repeat("x", turns.Heavy)
	envelope := func(pad string) string {
		return `{"request_id":"` + id + `","status":"success","result":{"x":"` + pad + `"}}`
	}
	module := func(pad string) string {
		return `{"contract_version":"v1","status":"ok","output":{"x":"` + pad + `"}}`
	}
	for name, test := range map[string]struct {
		small, large string
		read         func(*contract.Exchange, string) error
	}{
		"any body": {`{"x":"x"}`, `{"x":"` + pad + `"}`, func(x *contract.Exchange, body string) error {
			_, err := x.Raw([]byte(body), "application/json")
			return err
		}},
		"an envelope": {envelope("x"), envelope(pad), func(x *contract.Exchange, body string) error {
			_, err := x.Answer([]byte(body))
			return err
		}},
		"a pushed envelope": {envelope("x"), envelope(pad), func(x *contract.Exchange, body string) error {
			_, err := x.Decode([]byte(body))
			return err
		}},
		"a module's output": {module("x"), module(pad), func(x *contract.Exchange, body string) error {
			_, err := x.ModuleAnswer([]byte(body))
			return err
		}},
		"a result": {`{"x":"x"}`, `{"x":"` + pad + `"}`, func(x *contract.Exchange, body string) error {
			_, err := x.Result(contract.Response{Status: "success", Result: []byte(body)})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				room := turns.NewRoom(1 << 20)
				held, release := room.Open(t.Context(), turns.Owner{Caller: "one", Session: "another"})
				defer release()
				for range turns.Workers() {
					if err := turns.AccountOf(held).BeginWork(held); err != nil {
						t.Fatal(err)
					}
				}
				late := errors.New("too late")
				begin := func(body string) (read chan error, end context.CancelCauseFunc) {
					ctx, end := context.WithCancelCause(callid.With(t.Context(), id))
					ctx, release := room.Open(ctx, turns.Owner{Caller: "one"})
					read = make(chan error, 1)
					go func() {
						defer release()
						read <- test.read(tool.Exchange(ctx, peer.Call{}, token("")), body)
					}()
					synctest.Wait()
					return read, end
				}
				small, end := begin(test.small)
				defer end(nil)
				if len(small) == 0 {
					t.Error("a small answer waits")
				} else if err := <-small; err != nil {
					t.Error(err)
				}
				large, end := begin(test.large)
				defer end(nil)
				left, leave := begin(test.large)
				if len(large)+len(left) > 0 {
					t.Error("a large answer does not wait")
				}
				leave(late)
				if err := <-left; !errors.Is(err, late) {
					t.Errorf("at the end of the attempt: %v", err)
				}
				for range turns.Workers() {
					turns.AccountOf(held).EndWork()
				}
				if err := <-large; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// SPEC N2: a module's output is read in a turn of the caller also if it is refused.
func TestN2AModulesOutputThatIsRefusedIsReadInTurn(t *testing.T) {
	tool, err := contract.For(manifest.Tool{Name: "module"})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, release := turns.NewRoom(1<<20).Open(callid.With(t.Context(), "id"), turns.Owner{Caller: "one"})
		defer release()
		account := turns.AccountOf(ctx)
		for range turns.Workers() {
			if err := account.BeginWork(ctx); err != nil {
				t.Fatal(err)
			}
		}
		read := make(chan error, 1)
		go func() {
			_, err := tool.Exchange(ctx, peer.Call{}, token("")).ModuleAnswer([]byte(`{"contract_version":"v9","x":"` + strings.Repeat("x", turns.Heavy) + `"}`))
			read <- err
		}()
		synctest.Wait()
		if len(read) > 0 {
			t.Error("it does not wait")
		}
		for range turns.Workers() {
			account.EndWork()
		}
		if err := <-read; err == nil {
			t.Error("it is not refused")
		}
	})
}
