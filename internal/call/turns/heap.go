package turns

import "container/heap"

// Heap keeps items in order, the one that comes before all others first.
type Heap[T Item[T]] struct{ items items[T] }

// Item is what a Heap may have. It has a Position.
type Item[T any] interface {
	Before(other T) bool
	position() *Position
}

// Position is where an item stands in a Heap.
type Position struct{ at int }

func (p *Position) position() *Position { return p }

// Len returns how many items there are.
func (h *Heap[T]) Len() int { return len(h.items) }

// First returns the first item. There must be one.
func (h *Heap[T]) First() T { return h.items[0] }

// Push adds an item.
func (h *Heap[T]) Push(x T) { heap.Push(&h.items, x) }

// Fix moves an item that has changed to where it belongs now.
func (h *Heap[T]) Fix(x T) { heap.Fix(&h.items, x.position().at) }

// Remove takes an item out.
func (h *Heap[T]) Remove(x T) { heap.Remove(&h.items, x.position().at) }

// items implements heap.Interface.
type items[T Item[T]] []T

func (s items[T]) Len() int           { return len(s) }
func (s items[T]) Less(i, j int) bool { return s[i].Before(s[j]) }

func (s items[T]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].position().at, s[j].position().at = i, j
}

func (s *items[T]) Push(x any) {
	one, _ := x.(T)
	one.position().at = len(*s)
	*s = append(*s, one)
}

func (s *items[T]) Pop() any {
	last := len(*s) - 1
	one := (*s)[last]
	clear((*s)[last:])
	*s = (*s)[:last]
	return one
}
