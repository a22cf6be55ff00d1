package unixsocket

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/orla-project/orla/internal/file/regularfile"
)

// Location is where a control socket is.
type Location struct {
	Socket string // its path, absolute; "" for none
	// Private says that the folder is Orla's own: it is made if it is missing,
	// and is for this user alone.
	Private bool
}

// Name is what the socket of the Orla that serves a folder is called, without
// its extension. The folder is what the links on the way to it lead to; what
// does not exist yet counts as it is written.
func Name(folder string) string {
	sum := sha256.Sum256([]byte(regularfile.Real(folder)))
	return hex.EncodeToString(sum[:8])
}

const (
	socketSuffix = ".sock"
	lockSuffix   = ".lock" // in place of the socket's
)

// In is the path of the socket of a folder of tools in one of the folders that
// sockets are in.
func In(dir, folder string) string { return filepath.Join(dir, Name(folder)+socketSuffix) }

// prepare makes the folder of a socket ready, or says why no socket may be in it.
func (l Location) prepare() error {
	dir := filepath.Dir(l.Socket)
	if l.Private {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner, known := info.Sys().(*syscall.Stat_t)
	switch uid := os.Geteuid(); {
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", dir)
	case known && int(owner.Uid) != uid && owner.Uid != 0:
		return fmt.Errorf("%s belongs to another user (%d), who could put another socket there", dir, owner.Uid)
	case l.Private && known && int(owner.Uid) == uid && info.Mode().Perm() != 0o700:
		return os.Chmod(dir, 0o700) //nolint:gosec // a folder needs the bit
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Errorf("every user may write to %s, and could put another socket there", dir)
	case info.Mode().Perm()&0o020 != 0 && known && int(owner.Gid) != os.Getegid(): // many systems give each user a group
		return fmt.Errorf("the users of another group (%d) may write to %s, and could put another socket there; chmod g-w %s", owner.Gid, dir, dir)
	}
	return nil
}
