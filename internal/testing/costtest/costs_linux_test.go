package costtest

import "testing"

var sum int

// Work that grows with the square of its size is found out, and work in proportion is not.
func TestS1QuadraticWorkIsFoundOut(t *testing.T) {
	for _, c := range []struct {
		name   string
		n      int
		each   func(n int) int // how much each of n parts costs
		passes bool
	}{
		{"proportional", 100_000, func(int) int { return 1 }, true},
		{"quadratic", 1000, func(n int) int { return n }, false},
	} {
		cost, double := costs(c.n, 1, func(n int) func() {
			return func() {
				for range n {
					for i := range c.each(n) {
						sum += i & 1
					}
				}
			}
		})
		if double.Within(cost) != c.passes {
			t.Errorf("%s: %v and %v: within is %t", c.name, cost, double, !c.passes)
		}
	}
}
