package clients

import (
	"bytes"
	"log/slog"
	"strconv"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// What stands before the id of a call that a message names.
var callKeys = [][]byte{[]byte(`"progressToken":`), []byte(`"` + peer.MetaCall + `":`)}

// Spare reports whether a message of a capsule is progress or a log message, which may be left out where there are too
// many, and the call that it names; 0 for none. It only looks for that, and decodes nothing.
func Spare(line []byte) (call int64, spare bool) {
	h := rawjson.ReadHead(line)
	if h.ID != nil {
		return 0, false
	}
	switch string(h.Method) {
	case `"notifications/progress"`, `"notifications/message"`:
	default:
		return 0, false
	}
	const enough = 4 << 10 // a longer one is not worth the look
	if len(line) > enough {
		return 0, true
	}
	for _, key := range callKeys {
		if _, after, found := bytes.Cut(line, key); found {
			after = bytes.TrimLeft(after, " ")
			n := bytes.IndexFunc(after, func(r rune) bool { return r < '0' || r > '9' })
			call, _ = strconv.ParseInt(string(after[:max(n, 0)]), 10, 64) // 0 if it is not a number
			return call, true
		}
	}
	return 0, true
}

// LeftOut returns what logs how many messages of a capsule were left out.
func LeftOut(tool string, log *slog.Logger) func(lines int) {
	return func(lines int) {
		log.Warn("a capsule says too much while it works for several callers; progress and log messages were left out", "tool", tool, "lines", lines)
	}
}
