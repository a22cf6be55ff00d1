package rules

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// metaAgent is the key in _meta with which a client names the agent that it acts for (SPEC N1).
const metaAgent = "orloj.dev/agent"

// AgentIn returns the agent that a call is made for by its _meta, in the form NFC as names of callers are; "" for none. What is not
// a text is returned as it is: it is nobody's name.
func AgentIn(meta []byte) string {
	if meta == nil {
		return ""
	}
	raw := rawjson.Get(meta, metaAgent)
	if raw == nil {
		return ""
	}
	agent := rawjson.String(raw)
	if agent == "" && (json.Unmarshal(raw, &agent) != nil || agent == "" || strings.ContainsRune(agent, utf8.RuneError)) { // of half a character
		return string(raw) // what is not a name is nobody whom it may act for
	}
	return Exact(agent)
}
