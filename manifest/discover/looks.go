package discover

import (
	"bytes"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/regularfile"
)

// scriptExtensions are those of files that are most likely meant to be run.
var scriptExtensions = []string{".sh", ".bash", ".py", ".js", ".mjs", ".ts", ".rb", ".pl", ".php", ".lua"}

// dataExtensions are those of files that are not worth opening to look for a
// shebang.
var dataExtensions = []string{
	".md", ".txt", ".json", ".yaml", ".yml", ".toml", ".csv", ".xml", ".html", ".css", ".lock", ".log",
	".png", ".jpg", ".svg", ".pdf", ".zip", ".gz", ".db", ".sqlite", ".pyc", ".o", ".so",
}

// looksLikeTool reports whether a file that is not executable may be meant to
// be: by its extension, by a shebang, or as a program that lost its mode.
func looksLikeTool(file string) bool {
	extension := filepath.Ext(file)
	if slices.Contains(scriptExtensions, extension) {
		return true
	}
	if slices.Contains(dataExtensions, extension) {
		return false
	}
	head := firstBytes(file, 4)
	return bytes.HasPrefix(head, []byte("#!")) ||
		extension == "" && (bytes.Equal(head, []byte("\x7fELF")) || bytes.Equal(head, []byte("\xcf\xfa\xed\xfe"))) // Linux, macOS
}

// isModule reports whether a file is WebAssembly, which no system runs by itself.
func isModule(file string) bool { return string(firstBytes(file, 4)) == "\x00asm" }

// isBackup reports whether editors leave a file of that name beside the one
// that they saved, with its mode, or write it before they rename it.
func isBackup(name string) bool {
	return strings.HasSuffix(name, "~") || strings.HasSuffix(name, ".tmp") || len(name) > 1 && name[0] == '#' && strings.HasSuffix(name, "#")
}

// firstBytes returns at most n bytes from the front of a regular file, and
// none if they cannot be read: whoever asks is only guessing.
func firstBytes(file string, n int64) []byte {
	f, _, err := regularfile.Open(file)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // it was only read
	head, err := io.ReadAll(io.LimitReader(f, n))
	if err != nil {
		return nil
	}
	return head
}
