package replicas

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/orla-project/orla/internal/cluster/kubeapi"
)

// Order is what an operator wants of a capsule that one replica holds for all. It is in the capsule's Lease, so that it outlives
// each holder.
type Order string

// The orders. NoOrder is that there was none.
const (
	NoOrder      Order = ""
	StopOrder    Order = "stop" // until another order
	StartOrder   Order = "start"
	RestartOrder Order = "restart"
)

// Tell gives an order to all replicas.
func (r *Replicas) Tell(ctx context.Context, capsule string, order Order) error {
	said := string(order) + " " + rand.Text() // so that it differs from the one before
	note := kubeapi.Object{"metadata": kubeapi.Object{"annotations": kubeapi.Object{noteOrder: said}}}
	err := r.patch(ctx, r.leaseOfCapsule(capsule), note)
	if failed, is := errors.AsType[*kubeapi.StatusError](err); is && failed.Means(http.StatusNotFound, "NotFound") {
		return fmt.Errorf("no replica has held %s yet; try again when one does", capsule)
	}
	if err != nil {
		return fmt.Errorf("the other replicas cannot be told: %w", err)
	}
	return nil
}

// Ordered returns the last order.
func (r *Replicas) Ordered(capsule string) Order {
	order, _, _ := strings.Cut(r.orderOf(capsule), " ")
	return Order(order)
}

func (r *Replicas) orderOf(capsule string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.orderLocked(capsule)
}

func (r *Replicas) orderLocked(capsule string) string {
	if l := r.leases[r.leaseOfCapsule(capsule)]; l != nil {
		return l.note(noteOrder)
	}
	return ""
}

// Orders calls each with every order that is given from now on, until ctx ends. Of orders that follow each other at once it may
// leave out all but the last.
func (r *Replicas) Orders(ctx context.Context, capsule string, each func(Order)) {
	for last := r.orderOf(capsule); r.await(ctx, func() bool { return r.orderLocked(capsule) != last }); {
		last = r.orderOf(capsule)
		if order := r.Ordered(capsule); order != NoOrder {
			each(order)
		}
	}
}
