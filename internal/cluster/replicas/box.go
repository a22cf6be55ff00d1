package replicas

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
)

// Box seals what clients bring back to any replica. The key is a Secret, which the first replica makes.
type Box struct {
	key  []byte
	aead cipher.AEAD
}

var secrets = kubeapi.Resource{Version: "v1", Name: "secrets"}

// keySize is the size of the key of a group, in bytes.
const keySize = 32

// OpenBox reads the key of the group, and makes it if there is none. It tries for as long as ctx allows.
func (r *Replicas) OpenBox(ctx context.Context) (*Box, error) {
	name := r.opts.Group + "-sessions"
	for {
		key, err := r.readKey(ctx, name)
		if err == nil && len(key) != keySize {
			return nil, fmt.Errorf("the Secret %s is not the key of sessions; delete it, and the next start makes one", name)
		}
		if err == nil {
			return NewBox(key)
		}
		if !pace.Sleep(ctx, look/2) {
			return nil, fmt.Errorf("the key of sessions, Secret %s: %w", name, err)
		}
	}
}

func (r *Replicas) readKey(ctx context.Context, name string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var found struct {
		Data struct {
			Key []byte `json:"key"`
		} `json:"data"`
	}
	ask := kubeapi.Request{Method: http.MethodGet, Of: secrets, Namespace: r.opts.Namespace, Name: name}
	err := r.opts.Client.Do(ctx, ask, &found)
	if failed, is := errors.AsType[*kubeapi.StatusError](err); !is || !failed.Means(http.StatusNotFound, "NotFound") {
		return found.Data.Key, err
	}
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // it has no errors
	ask.Method, ask.Name = http.MethodPost, ""
	ask.Body = kubeapi.Object{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
		"metadata": kubeapi.Object{"name": name, "labels": kubeapi.Object{labelGroup: r.opts.Group}},
		"data":     kubeapi.Object{"key": base64.StdEncoding.EncodeToString(key)},
	}
	return key, r.opts.Client.Do(ctx, ask, nil) // if another replica was faster, its key is read next
}

// NewBox returns a Box with a key of 32 bytes.
func NewBox(key []byte) (*Box, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &Box{key, aead}, err
}

// Seal encrypts a text, as characters that a header may have.
func (b *Box) Seal(text []byte) string {
	return base64.RawURLEncoding.EncodeToString(b.aead.Seal(nil, nil, text, nil))
}

// Open returns the text that was sealed by any replica. It reports false for anything else.
func (b *Box) Open(sealed string) (text []byte, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return nil, false
	}
	text, err = b.aead.Open(nil, nil, raw, nil)
	return text, err == nil
}

// Key returns a key for another purpose, the same for all replicas.
func (b *Box) Key(purpose string) [sha256.Size]byte {
	key, err := hkdf.Key(sha256.New, b.key, nil, purpose, sha256.Size)
	if err != nil { // only for a size that is too large
		panic(err)
	}
	return [sha256.Size]byte(key)
}
