package trees

import (
	"maps"
	"slices"
	"testing"

	"github.com/orla-project/orla/internal/launch/procfs"
)

// A process that has been forked, and is not yet in a session of its own, does not make
// the session of its parent, and with it a user's shell, a part of a tree.
func TestASessionIsOursWithItsLeader(t *testing.T) {
	const other, own = 1 << 30, 1 << 29 // ids that no process has
	of := func(parent, session int) procfs.Stat {
		return procfs.Stat{State: 'S', Parent: parent, Group: session, Session: session}
	}
	procs := map[int]procfs.Stat{
		other: of(1, other), other + 1: of(other, other), other + 2: of(other+1, other), // a shell, another Orla, its fork
		other + 3: of(1, own), other + 4: of(1, own), // this Orla's fork, and a neighbour
		other + 10: of(1, other+10), other + 11: of(1, other+10), // a tree that is ours: its leader lives
		other + 21: of(1, other+20), other + 22: of(1, other+20), // a tree that is ours: its leader is gone
		other + 31: of(other+11, other+31),         // a descendant in a session of its own
		other + 32: of(1, other+31),                // and who is in that
		other + 41: of(1, 0), other + 42: of(1, 0), // this Orla's fork where the session began outside the container, and a neighbour
	}
	ours := map[int]bool{other + 2: true, other + 3: true, other + 10: true, other + 21: true, other + 41: true}
	Complete(ours, procs, own)
	want := []int{other + 2, other + 3, other + 10, other + 11, other + 21, other + 22, other + 31, other + 32, other + 41}
	if got := slices.Sorted(maps.Keys(ours)); !slices.Equal(got, want) {
		t.Errorf("ours are %v, want %v", got, want)
	}
}
