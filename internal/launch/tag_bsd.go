//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package launch

// tagger gives no tags: these systems have nothing that a process inherits and
// others can read.
type tagger struct{}

func newTagger(string, bool) *tagger { return nil }

func (*tagger) begin() {}

func (*tagger) end(int, bool) uint64 { return 0 }
