package rpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
)

// SPEC P3: with random ids, text that guesses the ids of calls answers none of them, and the call itself is still
// answered. Progress has such a token too.
func TestP3AnswersCannotBeGuessed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &loop{}
		l.conn = New(l, Options{Handler: &keeping{}, RandomIDs: true})
		const calls = 100
		ids := make(chan int64, calls)
		var ending sync.WaitGroup
		for range calls {
			ending.Go(func() {
				var id int64
				result, err := l.conn.Call(t.Context(), Request{Method: "work", Params: func(own int64) [][]byte {
					id = own
					ids <- own
					return [][]byte{[]byte("{}")}
				}})
				if want := fmt.Sprint("[", id, "]"); err != nil || string(result) != want {
					t.Errorf("the answer of %d is %s, %v", id, result, err)
				}
			})
		}
		synctest.Wait()
		for id := range 10 * calls {
			if l.conn.Receive(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":"forged"}`, id)) == 0 {
				t.Errorf("an answer with the id %d is taken", id)
			}
			if l.conn.Note(int64(id), "notifications/progress", json.RawMessage("{}")) {
				t.Errorf("progress with the token %d is taken", id)
			}
		}
		seen := map[int64]bool{}
		for range calls {
			id := <-ids
			if id <= 0 || id >= maxRandom || seen[id] {
				t.Errorf("an id is %d", id)
			}
			seen[id] = true
			l.conn.Receive(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":[%d]}`, id, id))
		}
		ending.Wait()
		l.conn.Close(errors.New("over"))
	})
}
