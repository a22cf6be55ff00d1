package passkey

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/wholefile"
)

const (
	maxKeys = 64      // in a store
	maxFile = 1 << 20 // bytes
)

// ErrNoPlace is for a store without a file.
var ErrNoPlace = errors.New("there is no state_dir to keep passkeys in")

// Store keeps passkeys in a file, which it reads each time: a person who has lost a passkey removes the file. Its
// methods may be called from any goroutine.
type Store struct {
	path string
	mu   sync.Mutex // held while the file is read and written
}

// NewStore returns the Store of a file; of none if path is "".
func NewStore(path string) *Store { return &Store{path: path} }

// Path is the file; "" for none.
func (s *Store) Path() string { return s.path }

// Keys returns all passkeys. A file that cannot be read is an error, so that nobody registers over it.
func (s *Store) Keys() ([]Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readLocked()
}

func (s *Store) readLocked() ([]Key, error) {
	if s.path == "" {
		return nil, ErrNoPlace
	}
	info, err := os.Lstat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxFile || info.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("%s: it is not a file that only its owner can write", s.path)
	}
	text, err := regularfile.ReadOwn(s.path, maxFile)
	if err != nil {
		return nil, err
	}
	var keys []Key
	if err := json.Unmarshal(text, &keys); err != nil {
		return nil, fmt.Errorf("%s: %w", s.path, err)
	}
	return keys, nil
}

func (s *Store) writeLocked(keys []Key) error {
	text, err := json.MarshalIndent(keys, "", "  ")
	if err != nil { // texts and numbers
		return err
	}
	return wholefile.WriteSynced(s.path, append(text, '\n'))
}

// same reports whether another passkey has the id or the public key of this one. Nobody shows that they have the private
// key when they register, and what is signed has no id: so a public key is that of one passkey alone.
func (k *Key) same(other Key) bool {
	return bytes.Equal(other.ID, k.ID) || bytes.Equal(other.Public, k.Public)
}

// Fits returns why a passkey could not be kept now; nil if it could.
func (s *Store) Fits(k *Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, err := s.readLocked()
	if err != nil {
		return err
	}
	return k.besides(keys)
}

// besides returns why a passkey is not kept beside others; nil if it is.
func (k *Key) besides(others []Key) error {
	switch {
	case len(others) >= maxKeys:
		return fmt.Errorf("there are %d passkeys, and no more are kept", maxKeys)
	case slices.ContainsFunc(others, k.same):
		return errors.New("this passkey is registered already")
	}
	return nil
}

// Add keeps a passkey. may is called with those that there are, and its error refuses.
func (s *Store) Add(k *Key, may func([]Key) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, err := s.readLocked()
	if err == nil {
		err = cmp.Or(may(keys), k.besides(keys))
	}
	if err != nil {
		return err
	}
	return s.writeLocked(append(keys, *k))
}

// Remove removes the passkey with an id. The last one stays.
func (s *Store) Remove(id Bytes) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, err := s.readLocked()
	if err != nil {
		return err
	}
	rest := slices.DeleteFunc(slices.Clone(keys), func(k Key) bool { return bytes.Equal(k.ID, id) })
	if len(rest) == len(keys) || len(rest) == 0 {
		return errors.New("it is gone, or the last one")
	}
	return s.writeLocked(rest)
}

// Use checks an assertion by a passkey of owner for a statement, and notes its counter before it returns, so that the
// assertion is not good again. It returns the proof.
func (s *Store) Use(owner, origin string, a *Assertion, of Statement) (*Proof, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, err := s.readLocked()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(keys, func(k Key) bool { return bytes.Equal(k.ID, a.Credential) })
	if i < 0 || keys[i].Owner != owner {
		return nil, fmt.Errorf("it is not a passkey of %s", owner)
	}
	k := &keys[i]
	if err := k.Verify(a, of, origin); err != nil {
		return nil, err
	}
	k.Count, k.Used = count(a.Data), time.Now().UTC().Truncate(time.Second)
	if err := s.writeLocked(keys); err != nil {
		return nil, err
	}
	return &Proof{Public: k.Public, RP: k.RP, TTL: of.TTL, Shown: of.Shown, Assertion: *a}, nil
}
