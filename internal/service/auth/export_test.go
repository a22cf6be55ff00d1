package auth

import "net/http"

// NewTokensOver returns Tokens that ask through next, which may be in memory.
func NewTokensOver(next http.RoundTripper) *Tokens { return newTokens(next) }

// Kept returns how many grants something is kept of.
func (t *Tokens) Kept() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.slots)
}

// The bounds of what is kept.
const (
	MaxTokens = maxTokens
	Undated   = undated
	Longest   = longest
	Patience  = patience
)
