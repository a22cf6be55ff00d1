// Package access knows who may call over HTTP: the tokens of the configuration, and those of an authorization server.
package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/orla-project/orla/internal/app/config"
)

// minToken is the least length of a token: shorter ones can be guessed.
const minToken = 16

// bearer is the hash of a token, and the caller that it identifies.
type bearer struct {
	name string
	hash [sha256.Size]byte
}

// Tokens reads the configured tokens and returns a verifier; nil if none are configured. callers are
// the names of the callers, each with the hash of its token.
func Tokens(cfg *config.Loaded) (_ auth.TokenVerifier, callers map[string]string, _ error) {
	if len(cfg.Auth.Tokens) == 0 {
		return nil, nil, nil
	}
	var known []bearer
	callers = map[string]string{}
	for i, t := range cfg.Auth.Tokens {
		wrong := func(field, format string, args ...any) error {
			return cfg.At(fmt.Sprintf("auth.tokens[%d].%s", i, field), fmt.Errorf(format, args...))
		}
		path, from := t.File, "file"
		if t.Credential != "" {
			var err error
			if path, err = config.Credential(t.Credential); err != nil {
				return nil, nil, wrong("credential", "%w", err)
			}
			from = "credential"
		} else if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(cfg.File), path)
		}
		data, err := config.ReadSmall(path)
		if err != nil {
			return nil, nil, wrong(from, "%w%s", err, config.MakeToken(path, err))
		}
		token := strings.TrimSpace(string(data))
		if len(token) < minToken || strings.ContainsAny(token, " \t\r\n") {
			return nil, nil, wrong(from, "%s must hold one token of at least %d characters and no spaces", path, minToken)
		}
		b := bearer{t.Name, sha256.Sum256([]byte(token))}
		if i := slices.IndexFunc(known, func(k bearer) bool { return k.hash == b.hash && k.name != b.name }); i >= 0 { // calls would be those of one of the two
			return nil, nil, wrong(from, "%s holds the token of %q as well; each caller needs one of its own", path, known[i].name)
		}
		known = append(known, b)
		callers[b.name] += string(b.hash[:])
	}
	return func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		hash := sha256.Sum256([]byte(token))
		for _, b := range known {
			if subtle.ConstantTimeCompare(hash[:], b.hash[:]) == 1 {
				return &auth.TokenInfo{UserID: b.name}, nil
			}
		}
		return nil, auth.ErrInvalidToken
	}, callers, nil
}

// Unchanged returns an error if the file of a caller has another token than the one that is accepted: Orla removes from what it
// keeps the tokens that it finds in the files, and would not find that one. accepted is what Tokens returned as callers.
func Unchanged(cfg *config.Loaded, accepted map[string]string) error {
	_, now, err := Tokens(cfg)
	if err != nil {
		return err
	}
	for name, hash := range now {
		if accepted[name] != hash {
			return fmt.Errorf("auth.tokens %q: its file has another token than the one that is accepted; orla reload makes Orla accept the new one", name)
		}
	}
	return nil
}
