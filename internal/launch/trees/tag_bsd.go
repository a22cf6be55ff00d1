//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package trees

// Tagger gives no tags: on these systems processes inherit nothing that others can read.
type Tagger struct{}

// NewTagger returns a Tagger that gives no tags.
func NewTagger(string, bool) *Tagger { return nil }

// Begin is called before each fork, End after it.
func (*Tagger) Begin() {}

// End returns 0.
func (*Tagger) End(int, bool) uint64 { return 0 }
