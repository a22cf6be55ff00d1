package mcpbridge

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/orla-project/orla/mcpbridge/wire"
)

// metaTask is where a client says in _meta what its call is a part of.
const metaTask = "orloj.dev/task"

// taskOf is what a call is a part of: what its client says, else a name of the
// session; "" without either (SPEC-TOOLS 2.1). Services get to see it, so that
// the session's id must not: it would let them take the session over.
func taskOf(meta json.RawMessage, from *origin) string {
	const longest = 256
	said := ""
	if meta != nil {
		said, _ = wire.TextOf(wire.MemberOf(meta, metaTask))
	}
	switch {
	case said != "" && len(said) <= longest:
		return said
	case from.session == "":
		return ""
	case from.task != "":
		return from.task
	}
	return sessionTask(from.session)
}

// sessionTask is the name of a session for those who are not to know its id.
func sessionTask(session string) string {
	digest := sha256.Sum256([]byte(session))
	return "session-" + hex.EncodeToString(digest[:8])
}
