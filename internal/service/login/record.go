package login

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/file/wholefile"
	"github.com/orla-project/orla/internal/service/secret"
)

// maxRecord bounds the file of a login in bytes.
const maxRecord = 256 << 10

// Record is a login, as it is in its file.
type Record struct {
	Server   string `json:"server"`   // the name of the McpServer
	Endpoint string `json:"endpoint"` // of the McpServer
	Resource string `json:"resource"` // what the tokens are for
	Issuer   string `json:"issuer"`
	Class    string `json:"class"` // of the server's address; see outbound.ClassOf

	TokenEndpoint      string `json:"token_endpoint"`
	RevocationEndpoint string `json:"revocation_endpoint,omitempty"`
	Client             Client `json:"client"`

	Who      string    `json:"who,omitempty"` // who has logged in, if the issuer said it
	Scopes   []string  `json:"scopes,omitempty"`
	Access   string    `json:"access_token"`
	Refresh  string    `json:"refresh_token,omitempty"`
	Obtained time.Time `json:"obtained"`         // the access token
	Expires  time.Time `json:"expires,omitzero"` // the access token; zero if the issuer has not said it
	Since    time.Time `json:"since"`            // the login
	// Refused is why the login cannot be used any more; "" while it can.
	Refused string `json:"refused,omitempty"`
}

// early is how long before its end an access token is refreshed.
const early = 30 * time.Second

// Fresh reports whether the access token needs no refresh.
func (r *Record) Fresh() bool {
	if r.Expires.IsZero() {
		return true
	}
	margin := min(early, r.Expires.Sub(r.Obtained)/4) // some tokens are short
	return time.Now().Before(r.Expires.Add(-margin))
}

// Valid reports whether the access token has not ended.
func (r *Record) Valid() bool { return r.Expires.IsZero() || time.Now().Before(r.Expires) }

// Usable reports whether calls can use the login, perhaps after a refresh.
func (r *Record) Usable() bool { return r.Refused == "" && (r.Valid() || r.Refresh != "") }

// Summary describes the login for people, without a secret.
func (r *Record) Summary() string {
	text := "logged in at " + r.Issuer
	if r.Who != "" {
		text += " as " + r.Who
	}
	switch {
	case r.Refused != "":
		return "over: " + r.Refused + "; run: orla login " + r.Server
	case r.Expires.IsZero():
	case !r.Usable():
		return text + "; the access token has ended, and there is no refresh token; run: orla login " + r.Server
	case r.Valid() && r.Refresh == "":
		text += "; the access token ends " + r.Expires.UTC().Format(time.RFC3339) + ", and there is no refresh token"
	case r.Valid():
		text += "; the access token ends " + r.Expires.UTC().Format(time.RFC3339) + ", and is refreshed"
	default:
		text += "; the access token has ended, and is refreshed at the next call"
	}
	return text
}

// secrets returns everything in the record that must not be shown, except the access token.
func (r *Record) secrets() []secret.Value {
	var list []secret.Value
	for _, text := range []string{r.Refresh, r.Client.Secret} {
		if text != "" {
			list = append(list, secret.NewValue(text))
		}
	}
	return list
}

// check returns what is wrong with the content of a file.
func (r *Record) check(server, endpoint string) error {
	switch {
	case r.Server != server || r.Endpoint != endpoint:
		return errors.New("it is the login of another server")
	case !covers(r.Resource, endpoint):
		return errors.New("its tokens are for another resource")
	case checkURL(endpoint) != nil || checkURL(r.TokenEndpoint) != nil || r.Client.ID == "":
		return errors.New("it is not complete")
	case !bearer(r.Access):
		return errors.New("it has no access token that fits into a header")
	}
	return nil
}

// file is the file of one login, and the lock for changing it.
type file struct {
	dir, name        string // name without an ending
	server, endpoint string
}

// fileOf returns the file of a server's login in a folder. A server whose endpoint changes has another
// one, so that no token goes to the new address.
func fileOf(dir, server, endpoint string) file {
	sum := sha256.Sum256([]byte(server + "\n" + endpoint))
	return file{dir, server + "-" + hex.EncodeToString(sum[:8]), server, endpoint}
}

func (f file) path() string { return filepath.Join(f.dir, f.name+".json") }

// stamp tells one content of a file from another.
type stamp struct {
	inode   uint64
	size    int64
	mode    fs.FileMode
	changed time.Time
}

// stamp returns the stamp of the file; the zero stamp if there is none.
func (f file) stamp() stamp {
	info, err := os.Lstat(f.path())
	if err != nil {
		return stamp{}
	}
	s := stamp{size: info.Size(), mode: info.Mode(), changed: info.ModTime()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode = sys.Ino
	}
	return s
}

// read returns the login; nil if there is none. It refuses a file that another user owns or can read.
func (f file) read() (*Record, error) {
	r, err := f.load()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path(), err)
	}
	return r, nil
}

func (f file) load() (*Record, error) {
	if err := private(f.dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	opened, err := os.OpenFile(f.path(), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, pathless(err)
	}
	defer func() { _ = opened.Close() }() // it was only read
	info, err := opened.Stat()
	if err != nil {
		return nil, pathless(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	if err := owned(info, "chmod 600"); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(opened, maxRecord+1))
	if err != nil {
		return nil, pathless(err)
	}
	if len(text) > maxRecord {
		return nil, fmt.Errorf("it is over %d KiB", maxRecord>>10)
	}
	r := &Record{}
	if json.Unmarshal(text, r) != nil {
		return nil, errors.New("it is not the file of a login") // the cause may quote a token
	}
	return r, r.check(f.server, f.endpoint)
}

// write puts a login on the disk.
func (f file) write(r *Record) error {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return err
	}
	if err := private(f.dir); err != nil {
		return fmt.Errorf("%s: %w", f.dir, err)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if len(text) > maxRecord {
		return fmt.Errorf("the login has over %d KiB", maxRecord>>10)
	}
	return wholefile.WriteSynced(f.path(), append(text, '\n'))
}

// private returns why a folder does not keep secrets.
func private(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return pathless(err)
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", dir)
	}
	return owned(info, "chmod 700")
}

// owned returns why a file or folder is not this user's alone.
func owned(info fs.FileInfo, fix string) error {
	if sys, ok := info.Sys().(*syscall.Stat_t); ok && int64(sys.Uid) != int64(os.Geteuid()) {
		return fmt.Errorf("it belongs to the user %d, and this is %d; log in as the user that Orla runs as", sys.Uid, os.Geteuid())
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("other users have access to it (mode %04o); %s, and log in again if somebody may have read it", info.Mode().Perm(), fix)
	}
	return nil
}

// pathless returns an error without the path, which stands in front of it already.
func pathless(err error) error {
	if cause, ok := errors.AsType[*fs.PathError](err); ok {
		return cause.Err
	}
	return err
}

// bearer reports whether a text is an access token that fits into a header (RFC 6750, 2.1).
func bearer(token string) bool {
	rest := strings.TrimRight(token, "=")
	return rest != "" && len(token) <= maxToken && !strings.ContainsFunc(rest, func(c rune) bool {
		letter := c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		return !letter && !strings.ContainsRune("-._~+/", c)
	})
}

// maxToken bounds a token in bytes.
const maxToken = 16 << 10

// lock waits until no other process and no other part of this one changes the login, or ctx ends.
func (f file) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return nil, err
	}
	held, err := os.OpenFile(filepath.Join(f.dir, f.name+".lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = held.Close() }, nil // this also unlocks it
		}
		const again = 20 * time.Millisecond
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) || !pace.Sleep(ctx, again) {
			_ = held.Close() // the other error says more
			return nil, fmt.Errorf("%s: another Orla holds it: %w", held.Name(), err)
		}
	}
}
