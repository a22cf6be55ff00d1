package replicas

import (
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"time"
)

// Heir returns the replica that goes on with something of a replica that has gone: the same one on every replica, as
// long as they know the same ones, and for as long as that one serves. It is one of those that served when that one went; when all
// of these have gone, one of those that served when the last of them did, and so on. So a replica that comes later takes
// nothing over that another one goes on with, and nothing comes back that has ended there.
func (r *Replicas) Heir(of, what string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	gone := r.leases[leaseOf(of)]
	if gone == nil || gone.wentAt().IsZero() {
		return first(r.servingLocked(slices.Collect(maps.Values(r.leases))), what)
	}
	for until := gone.wentAt(); !until.IsZero(); {
		var group []*seen
		var last, next time.Time // when the last of the group went, and when the next one began
		for _, l := range r.leases {
			switch since := l.serves(); {
			case since.IsZero():
			case since.After(until):
				if next.IsZero() || since.Before(next) {
					next = since
				}
			default:
				group = append(group, l)
				if at := l.wentAt(); at.After(last) {
					last = at
				}
			}
		}
		if best := first(r.servingLocked(group), what); best != "" {
			return best
		}
		if last.After(until) {
			until = last
		} else {
			until = next
		}
	}
	return ""
}

// servingLocked returns the names of those replicas that serve and can be reached.
func (r *Replicas) servingLocked(of []*seen) (names []string) {
	for _, l := range of {
		m := l.member()
		if m.Name == r.self && !r.leaving && !l.serves().IsZero() || m.Name != r.self && r.answersLocked(l) {
			names = append(names, m.Name)
		}
	}
	return names
}

// first names one of several by rendezvous hashing; "" of none.
func first(names []string, what string) (best string) {
	var most uint64
	for _, name := range names {
		if n := weight(name, what); best == "" || n > most || n == most && name < best {
			best, most = name, n
		}
	}
	return best
}

func weight(name, what string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, name+"\x00"+what) // a hash has no errors
	n := h.Sum64()
	n ^= n >> 31 // FNV hardly mixes its last bytes
	n *= 0x9e3779b97f4a7c15
	return n ^ n>>29
}
