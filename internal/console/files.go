package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed page
var page embed.FS

// file is one file of the page.
type file struct {
	kind, tag string
	content   []byte
}

// kinds are the content types of the page's files, by extension.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// readFiles returns the files of the page, by their names.
func readFiles() map[string]file {
	files := map[string]file{}
	entries, _ := fs.ReadDir(page, "page") // it is embedded
	for _, e := range entries {
		content, _ := page.ReadFile("page/" + e.Name())
		sum := sha256.Sum256(content)
		files[e.Name()] = file{kinds[path.Ext(e.Name())], `"` + hex.EncodeToString(sum[:8]) + `"`, content}
	}
	return files
}

// serveFile serves the page to who has a session, to others a page that says how to get one, and to everybody
// the files that both need. They tell nothing of this Orla.
func (c *Console) serveFile(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		refuse(w, http.StatusMethodNotAllowed, "there is nothing to change here", "")
		return
	}
	name, below := strings.CutPrefix(r.URL.Path, "/console/")
	status := http.StatusOK
	switch {
	case r.URL.Path == "/" && c.holder(r) != nil:
		name = "index.html"
	case r.URL.Path == "/":
		name, status = "welcome.html", http.StatusUnauthorized
	case r.URL.Path == loginPath:
		name = "login.html"
	case !below || strings.HasSuffix(name, ".html"):
		name = ""
	default:
		w.Header().Set("Cache-Control", "no-cache")
	}
	f, ok := c.files()[name]
	if !ok {
		refuse(w, http.StatusNotFound, "there is no such page", "")
		return
	}
	w.Header().Set("Content-Type", f.kind)
	if below && r.URL.Path != loginPath {
		w.Header().Set("ETag", f.tag)
		if r.Header.Get("If-None-Match") == f.tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(f.content) // an error means that the client has left
	}
}
