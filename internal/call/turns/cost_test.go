//go:build !race

package turns_test

import (
	"fmt"
	"testing"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/testing/costtest"
)

// To wait, to leave and to be served costs the same however many wait (SPEC S1).
func TestS1WaitingCostsInProportion(t *testing.T) {
	const n = 5000
	for name, line := range map[string]func(int) turns.Owner{
		"one line": func(int) turns.Owner { return turns.Owner{} }, "many lines": spread,
		"a line each": func(i int) turns.Owner { return turns.Owner{Session: fmt.Sprint(i)} },
	} {
		for how, first := range map[string]func(give func()){"leave": func(func()) {}, "are served": func(give func()) { give() }} {
			t.Run(name+" "+how, func(t *testing.T) {
				costtest.Check(t, n, func(n int) func() {
					return func() {
						places := turns.NewQueue(1, 0)
						places.Try(turns.Owner{Caller: "first"})
						var leave []func()
						for i := range n {
							leave = append(leave, places.Join(line(i)))
						}
						first(func() { places.Give(turns.Owner{Caller: "first"}) })
						for _, end := range leave {
							end()
						}
					}
				})
				costtest.Check(t, n, func(n int) func() {
					return func() {
						shares := turns.NewShares(1)
						shares.Try(turns.Owner{Caller: "first"}, 1)
						var leave []func()
						for i := range n {
							leave = append(leave, shares.Join(line(i), 1))
						}
						first(func() { shares.Give(turns.Owner{Caller: "first"}, 1) })
						for _, end := range leave {
							end()
						}
					}
				})
			})
		}
	}
}
