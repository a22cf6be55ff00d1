package origin

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	maxTag     = 64 << 10
	principal  = "signer"
	sshHead    = "-----BEGIN SSH SIGNATURE-----"
	sshFoot    = "-----END SSH SIGNATURE-----"
	maxKey     = 16 << 10
	signerHint = "a signer is an SSH public key, such as \"ssh-ed25519 AAAA...\""
)

// keyTypes are the kinds of keys that may sign. Certificates are not among them: they need an authority.
var keyTypes = []string{
	"ssh-ed25519", "sk-ssh-ed25519@openssh.com", "ssh-rsa",
	"ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "sk-ecdsa-sha2-nistp256@openssh.com",
}

// SignerError says that a tag is not signed by one of those who may sign it.
type SignerError struct {
	Signer  string // who signed it; "" if nobody did
	Allowed []string

	reason string
}

// Error names the keys by their fingerprints.
func (e *SignerError) Error() string {
	var allowed []string
	for _, key := range e.Allowed {
		allowed = append(allowed, Fingerprint(key))
	}
	return fmt.Sprintf("the version is not signed as it must be: %s (allowed: %s)", e.reason, strings.Join(allowed, ", "))
}

// ParseSigner returns an SSH public key, as a file authorized_keys has it, without its comment.
func ParseSigner(text string) (string, error) {
	parts := strings.Fields(text)
	if len(parts) < 2 || len(text) > maxKey || !slices.Contains(keyTypes, parts[0]) {
		return "", errors.New(signerHint)
	}
	blob, err := base64.StdEncoding.DecodeString(parts[1])
	if err != nil {
		return "", errors.New(signerHint)
	}
	if of, ok := field(blob); !ok || string(of) != parts[0] {
		return "", errors.New(signerHint)
	}
	return parts[0] + " " + base64.StdEncoding.EncodeToString(blob), nil
}

func parseSigners(texts []string) (keys []string, err error) {
	for _, text := range texts {
		key, err := ParseSigner(text)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// Fingerprint returns the fingerprint of a key that ParseSigner has returned, as ssh-keygen shows it.
func Fingerprint(signer string) string {
	_, text, _ := strings.Cut(signer, " ")
	blob, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(blob) == 0 {
		return "unknown"
	}
	sum := sha256.Sum256(blob)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// field reads a string of SSH's wire format.
func field(from []byte) (value []byte, ok bool) {
	if len(from) < 4 {
		return nil, false
	}
	n := binary.BigEndian.Uint32(from)
	if uint64(n) > uint64(len(from)-4) {
		return nil, false
	}
	return from[4 : 4+n], true
}

// signer returns who signed a tag. It checks the signature with git, for the key that the signature itself
// names, and then whether that key may sign.
func (p *program) signer(ctx context.Context, tag, object, commit string, allowed []string) (string, error) {
	missing := func(reason string) (string, error) {
		if len(allowed) > 0 {
			return "", &SignerError{Allowed: allowed, reason: reason}
		}
		return "", nil
	}
	if object == commit {
		return missing("the tag has no signature")
	}
	text := &small{most: maxTag}
	if err := p.run(ctx, text, "cat-file", "tag", object); err != nil {
		return "", err
	}
	// A tag that was signed under another name, or for another object, must not count.
	head, message, _ := strings.Cut(text.String(), "\n\n")
	want := []string{"object " + commit, "type commit", "tag " + tag}
	if lines := strings.Split(head, "\n"); len(lines) < 3 || !slices.Equal(lines[:3], want) {
		return "", errors.New("the tag was made under another name, or of something that is not a commit")
	}
	at := strings.LastIndex("\n"+message, "\n"+sshHead)
	if at < 0 {
		return missing("the tag has no SSH signature")
	}
	key, err := keyOf(message[at:])
	if err != nil {
		return "", fmt.Errorf("the signature of the tag cannot be read: %w", err)
	}
	file := filepath.Join(p.dir, "allowed-signers")
	if err := os.WriteFile(file, []byte(principal+" namespaces=\"git\" "+key+"\n"), 0o600); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	checking := *p
	checking.set = "gpg.ssh.allowedSignersFile=" + file
	if err := checking.run(ctx, nil, "verify-tag", object); err != nil {
		return "", fmt.Errorf("the signature of the tag is wrong: %w", err)
	}
	if len(allowed) > 0 && !slices.Contains(allowed, key) {
		return "", &SignerError{Signer: key, Allowed: allowed, reason: "it is signed by " + Fingerprint(key)}
	}
	return key, nil
}

// keyOf returns the public key of an armored SSH signature.
func keyOf(armored string) (string, error) {
	body, _, ok := strings.Cut(strings.TrimPrefix(armored, sshHead), sshFoot)
	if !ok {
		return "", errors.New("it has no end")
	}
	blob, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(body), ""))
	if err != nil || len(blob) < 10 || string(blob[:6]) != "SSHSIG" {
		return "", errors.New("it is not an SSH signature")
	}
	public, ok := field(blob[10:]) // after the version
	if !ok {
		return "", errors.New("it is cut off")
	}
	kind, ok := field(public)
	if !ok {
		return "", errors.New("it has no key")
	}
	return ParseSigner(string(kind) + " " + base64.StdEncoding.EncodeToString(public))
}
