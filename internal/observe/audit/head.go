package audit

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/wholefile"
)

const (
	keyName   = "orla-audit"
	keyFile   = "key"     // in the folder audit of the state folder
	keyPublic = "key.pub" // next to it
)

// state is the folder audit of the state folder, for one audit log.
type state struct{ dir, id string }

// stateOf returns the state for an audit log; path is absolute, or Journal.
func stateOf(stateDir, path string) state {
	id := Journal
	if path != Journal {
		sum := sha256.Sum256([]byte(path))
		id = hash(sum).String()[:16]
	}
	return state{filepath.Join(stateDir, "audit"), id}
}

func (s state) headFile() string { return filepath.Join(s.dir, s.id+".head") }
func (s state) lockFile() string { return filepath.Join(s.dir, s.id+".lock") }

// signer returns the key that signs heads. The first call makes it.
func (s state) signer() (signer, error) {
	path := filepath.Join(s.dir, keyFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := s.makeKey(path); err != nil {
			return signer{}, err
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return signer{}, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return signer{}, fmt.Errorf("%s signs the audit log and is open to others than its owner; chmod 600 fixes that", path)
	}
	private, err := readKey(path)
	if err != nil {
		return signer{}, err
	}
	key, err := note.NewSigner(strings.TrimSpace(string(private)))
	if err != nil {
		return signer{}, fmt.Errorf("%s: %w", path, err)
	}
	public, err := readKey(filepath.Join(s.dir, keyPublic))
	if err != nil {
		return signer{}, err
	}
	return signer{key, strings.TrimSpace(string(public))}, nil
}

// readKey reads the file of a key, which may be a link to a mounted secret.
func readKey(path string) ([]byte, error) {
	text, err := regularfile.Read(path, maxLine)
	if err != nil {
		return nil, fmt.Errorf("%s %w", path, err)
	}
	return text, nil
}

// makeKey makes the key. Of several processes that do, one is first, and the others use its key.
func (s state) makeKey(path string) error {
	private, public, err := note.GenerateKey(rand.Reader, keyName)
	if err != nil {
		return err
	}
	unlock, err := lock(filepath.Join(s.dir, keyFile+".lock"), lockWait)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	if err := wholefile.Write(filepath.Join(s.dir, keyPublic), []byte(public+"\n")); err != nil {
		return err
	}
	return wholefile.Write(path, []byte(private+"\n"))
}

// PublicKey returns the key that checks the heads of this machine, as ParseKey reads it.
func PublicKey(stateDir string) (string, error) {
	text, err := readKey(filepath.Join(stateDir, "audit", keyPublic))
	return strings.TrimSpace(string(text)), err
}

// LastHead returns the line of the newest head of an audit log, as the state folder has it; nil if it has none.
func LastHead(stateDir, path string) ([]byte, error) {
	line, err := regularfile.ReadOwn(stateOf(stateDir, path).headFile(), maxLine)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return bytes.TrimSuffix(line, []byte("\n")), err
}

// headText is what a head signs: everything in its line but the signature.
func headText(seq uint64, prev hash, at time.Time, why string) string {
	return "orla audit log\n" + strconv.FormatUint(seq, 10) + "\n" + prev.String() + "\n" +
		at.UTC().Format(time.RFC3339Nano) + "\n" + why + "\n"
}

// headBody returns what follows seq and prev in the line of a head.
func headBody(at time.Time, why string, signed []byte) []byte {
	out := appendBegin(nil, at, eventHead)
	out = appendText(append(out, `,"why":`...), why)
	out = appendText(append(out, `,"note":`...), string(signed))
	return append(out, '}')
}

// appendLine appends a line without its line end.
func appendLine(out []byte, seq uint64, prev hash, body []byte) []byte {
	return append(appendPlace(out, seq, prev), body...)
}

// appendPlace appends the begin of a line: its place in the chain.
func appendPlace(out []byte, seq uint64, prev hash) []byte {
	out = append(out, `{"seq":`...)
	out = strconv.AppendUint(out, seq, 10)
	out = append(out, `,"prev":"`...)
	out = appendHex(out, prev)
	return append(out, '"')
}

// checkHead returns what is wrong with the line of a head. Each of its bytes counts.
func checkHead(line []byte, key note.Verifier) error {
	var l Line
	if err := json.Unmarshal(line, &l); err != nil || l.Event != eventHead {
		return errors.New("it is not a head")
	}
	prev, err := parseHash(l.Prev)
	if err != nil {
		return err
	}
	opened, err := note.Open([]byte(l.Note), note.VerifierList(key))
	switch {
	case err != nil:
		return fmt.Errorf("its signature is not valid for the key %s+%08x", key.Name(), key.KeyHash())
	case opened.Text != headText(l.Seq, prev, l.Time, l.Why):
		return errors.New("it is not what was signed")
	}
	// Neither the encoding of the signature nor that of the line may differ from what Orla writes.
	var again strings.Builder
	again.WriteString(opened.Text + "\n")
	for _, sig := range opened.Sigs {
		raw, err := base64.StdEncoding.Strict().DecodeString(sig.Base64)
		if err != nil {
			return errors.New("its signature is not encoded as Orla encodes it")
		}
		again.WriteString("— " + sig.Name + " " + base64.StdEncoding.EncodeToString(raw) + "\n")
	}
	if again.String() != l.Note || !bytes.Equal(line, appendLine(nil, l.Seq, prev, headBody(l.Time, l.Why, []byte(l.Note)))) {
		return errors.New("it is not written as Orla writes it")
	}
	return nil
}

func parseHash(text string) (h hash, err error) {
	if len(text) != 2*len(h) || !decodeHex(h[:], text) {
		return h, errors.New("its prev is not a hash")
	}
	return h, nil
}
