package rules_test

import (
	"testing"

	"github.com/orla-project/orla/internal/call/rules"
)

// SPEC N1: an agent has one name, however a client writes it. Else the agent could decide about calls that are made for it.
func TestN1AnAgentHasOneName(t *testing.T) {
	const name = "jos\u00e9"
	for meta, want := range map[string]string{
		``:                                     "",
		`{}`:                                   "",
		`{"orloj.dev/agent":"josé"}`:           name,
		`{"orloj.dev/agent":"jos\u00e9"}`:      name,
		`{"orloj.dev/agent":"jose\u0301"}`:     name,
		"{\"orloj.dev/agent\":\"jose\u0301\"}": name,
		`{"orloj.dev/agent":"b\u006ft"}`:       "bot",
		// Nobody has these names.
		`{"orloj.dev/agent":""}`:          `""`,
		`{"orloj.dev/agent":null}`:        `null`,
		`{"orloj.dev/agent":["bot"]}`:     `["bot"]`,
		`{"orloj.dev/agent":"bot\ud800"}`: `"bot\ud800"`,
	} {
		if got := rules.AgentIn([]byte(meta)); got != want {
			t.Errorf("%s: %q, want %q", meta, got, want)
		}
	}
}
