package client

import (
	"container/list"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

// slowTurn is how long a turn lasts at most: the client may not read, and the others wait.
const slowTurn = 5 * time.Millisecond

// Notifier gives clients their turns to be told news. The clients of one caller are told one
// after another, one message each: if all were told at once, the calls of other callers would
// wait for them (SPEC N2).
type Notifier struct {
	mu    sync.Mutex                 // guards queue
	queue map[turns.Owner]*list.List // the clients (*Inbox) that wait, by their caller; see serve
}

// NewNotifier returns a Notifier without clients.
func NewNotifier() *Notifier { return &Notifier{queue: map[turns.Owner]*list.List{}} }

// add has a client wait for one turn.
func (n *Notifier) add(caller turns.Owner, i *Inbox) {
	n.mu.Lock()
	defer n.mu.Unlock()
	waiting := n.queue[caller]
	if waiting == nil {
		waiting = list.New()
		n.queue[caller] = waiting
		go n.serve(caller)
	}
	waiting.PushBack(i)
}

// serve gives the clients of a caller their turns while any wait. It runs while the caller is
// in queue, and rests for as long as it has worked: a change that repeats in the meantime is told once.
func (n *Notifier) serve(caller turns.Owner) {
	patience := time.NewTimer(slowTurn)
	defer patience.Stop()
	var worked time.Duration
	for i := n.next(caller); i != nil; i = n.next(caller) {
		if worked >= slowTurn {
			patience.Reset(worked)
			<-patience.C
			worked = 0
		}
		turn := make(chan struct{})
		if !i.give(turn) {
			continue
		}
		began := time.Now()
		patience.Reset(slowTurn)
		select {
		case <-turn:
			worked += time.Since(began)
		case <-patience.C: // it goes on, but nobody waits for it any more
		}
	}
}

// next returns the client that has waited longest. If none waits, it forgets the caller and
// returns nil.
func (n *Notifier) next(caller turns.Owner) *Inbox {
	n.mu.Lock()
	defer n.mu.Unlock()
	waiting := n.queue[caller]
	first := waiting.Front()
	if first == nil {
		delete(n.queue, caller)
		return nil
	}
	i, _ := waiting.Remove(first).(*Inbox)
	return i
}
