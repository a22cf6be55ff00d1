package supervisor

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/wholefile"
)

const (
	// maxClaimFile bounds what is read back, in bytes, and maxKept what is written.
	maxClaimFile, maxKept = 32 << 20, 16 << 20
	// claimPause is how long what has changed may wait for more before it is written.
	claimPause = time.Second
)

// claimFile keeps who offered something first, from one start of Orla to the next (SPEC N2): the
// first in the order of names would take it otherwise.
type claimFile struct {
	of      *Supervisor
	path    string
	log     *slog.Logger
	changed chan struct{} // holds a token when there is something new
}

// claimText is the content of the file: the names of manifests, by what they offer.
type claimText map[sort]map[string][]string

// readClaims returns what a file keeps; nothing where there is none, or one that Orla has
// not written.
func readClaims(path string) map[claim][]string {
	claims := map[claim][]string{}
	var text claimText
	raw, err := regularfile.ReadOwn(path, maxClaimFile)
	if err != nil || json.Unmarshal(raw, &text) != nil {
		return claims
	}
	for sort, of := range text {
		for key, line := range of {
			if sort == aTool {
				key = rules.Folded(key)
			}
			claims[claim{sort, key}] = line[:min(len(line), maxLine)]
		}
	}
	return claims
}

// note says that there is something new to keep. A nil claimFile keeps nothing.
func (f *claimFile) note() {
	if f == nil {
		return
	}
	select {
	case f.changed <- struct{}{}:
	default: // it will be looked at anyway
	}
}

// String names the service in logs.
func (*claimFile) String() string { return "claims" }

// Serve writes what has changed until ctx ends, and what has changed by then.
func (f *claimFile) Serve(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-f.changed:
		case <-ctx.Done():
		}
		select {
		case <-time.After(claimPause):
			f.write()
		case <-ctx.Done():
			f.write()
		}
	}
	return ctx.Err()
}

func (f *claimFile) write() {
	if err := wholefile.Write(f.path, f.text()); err != nil {
		f.log.Warn("cannot store for the next start which capsule was first to offer something", "path", f.path, "err", err)
	}
}

// text is the file as it is to be.
func (f *claimFile) text() []byte {
	f.of.applying.Lock()
	claims := f.of.claims // it is replaced as a whole
	f.of.applying.Unlock()
	text, size := claimText{}, 0
	for k, line := range claims {
		if size += len(k.key) + 64*len(line); size > maxKept {
			break
		}
		if text[k.sort] == nil {
			text[k.sort] = map[string][]string{}
		}
		text[k.sort][k.key] = line
	}
	raw, err := json.Marshal(text)
	if err != nil { // it is made of strings
		panic(err)
	}
	return raw
}
