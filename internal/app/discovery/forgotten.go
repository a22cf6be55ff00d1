package discovery

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/manifest/discover"
	"github.com/orla-project/orla/manifest/toolfile"
)

// mostSearched bounds how many entries of the tools folders are read for one name.
const mostSearched = 10_000

// Forgotten says which script in the tools folders would be the tool with a name if it could be run, and
// what it lacks; "" if there is none. The search does not report such scripts, if only their names
// suggest that they are tools.
func Forgotten(cfg *config.Loaded, home, name string) string {
	dirs := Folders(cfg, home)
	for _, dir := range []string{dirs.ToolsDir, dirs.UserDir} {
		if script := scriptCalled(dir, name); dir != "" && script != "" {
			return lacking(config.Absolute(script))
		}
	}
	return ""
}

// scriptCalled finds a script that is not executable, by its name with or without extension.
func scriptCalled(dir, name string) (script string) {
	left := mostSearched
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error { // it ends early when the script is found
		left--
		base := filepath.Base(path)
		switch {
		case left == 0:
			return fs.SkipAll
		case err != nil:
			return nil //nolint:nilerr // what cannot be read has no script
		case path != dir && (strings.HasPrefix(base, ".") || entry.IsDir() && discover.Skips(base)):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular() || base != name && strings.TrimSuffix(base, filepath.Ext(base)) != name:
			return nil
		}
		info, err := entry.Info()
		if _, isScript := toolfile.ShebangFor(base); err == nil && isScript && info.Mode()&0o111 == 0 {
			script = path
			return fs.SkipAll
		}
		return nil
	})
	return script
}

func lacking(script string) string {
	text := fmt.Sprintf("%s is not executable: chmod +x %[1]s", script)
	head := make([]byte, 2)
	if f, err := os.Open(script); err == nil {
		_, _ = f.Read(head) // a file without two bytes has no shebang
		_ = f.Close()       // it was only read
	}
	if !bytes.Equal(head, []byte("#!")) {
		line, _ := toolfile.ShebangFor(script)
		text += "; it also needs a first line that says what runs it, such as " + line
	}
	return text
}
