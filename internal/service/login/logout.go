package login

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/orla-project/orla/internal/service/outbound"
)

// revokePatience bounds the request to the issuer at a logout.
const revokePatience = 10 * time.Second

// Logout forgets the login of a server, and reports whether there was one. The error revoked says why
// the issuer may still accept the tokens.
func Logout(ctx context.Context, client *outbound.Client, dir, server, endpoint string) (was bool, revoked, err error) {
	f := fileOf(dir, server, endpoint)
	if _, err := os.Lstat(f.path()); errors.Is(err, fs.ErrNotExist) {
		return false, nil, nil
	}
	unlock, err := f.lock(ctx)
	if err != nil {
		return false, nil, err
	}
	defer unlock()
	r, unread := f.read()
	if err := os.Remove(f.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return true, nil, err
	}
	switch {
	case unread != nil:
		return true, unread, nil
	case r == nil:
		return false, nil, nil
	case r.RevocationEndpoint == "" || checkURL(r.RevocationEndpoint) != nil:
		return true, errors.New("the issuer has no revocation endpoint; an access token that was issued may be valid until it ends"), nil
	}
	ctx, cancel := context.WithTimeout(ctx, revokePatience)
	defer cancel()
	if err := r.revoke(ctx, client); err != nil {
		return true, fmt.Errorf("the issuer %s was asked to revoke the tokens: %w", r.Issuer, err), nil
	}
	return true, nil, nil
}

// Others returns the names of the files with logins of a server at other endpoints.
func Others(dir, server, endpoint string) []string {
	own := filepath.Base(fileOf(dir, server, endpoint).path())
	names, _ := fs.Glob(os.DirFS(dir), server+"-????????????????.json") // the pattern is valid
	var list []string
	for _, name := range names {
		if name != own {
			list = append(list, filepath.Join(dir, name))
		}
	}
	return list
}
