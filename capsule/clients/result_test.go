package clients

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/orla-project/orla/internal/call/turns"
)

// SPEC N2: a large answer is looked at in a turn of its caller, a small one at once.
func TestN2ALargeAnswerIsLookedAtInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, release := turns.NewRoom(1<<20).Open(t.Context(), turns.Owner{Caller: "one"})
		defer release()
		account := turns.AccountOf(ctx)
		for range turns.Workers() {
			if err := account.BeginWork(ctx); err != nil {
				t.Fatal(err)
			}
		}
		look := func(result string) <-chan string {
			looked := make(chan string, 1)
			go func() {
				answer, _, err := ReadResult(ctx, json.RawMessage(result), true)
				if err != nil {
					t.Error(err)
				}
				looked <- string(answer)
			}()
			synctest.Wait()
			return looked
		}
		if got := <-look(`"x"`); got != `{"content":[{"type":"text","text":"x"}]}` {
			t.Errorf("a small answer becomes %s", got)
		}
		large := look(`"` + strings.Repeat("x", turns.Heavy) + `"`)
		if len(large) > 0 {
			t.Error("a large answer does not wait")
		}
		for range turns.Workers() {
			account.EndWork()
		}
		if got := <-large; !strings.HasPrefix(got, `{"content":`) {
			t.Errorf("a large answer becomes %.100s", got)
		}
	})
}
