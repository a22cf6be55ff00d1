package toolfile

import (
	"encoding/json"
	"path/filepath"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/yamldoc"
)

// About is what a tool.yaml says for people and for orla install (SPEC M1).
type About struct {
	Author, License, Repository, Homepage string
	Keywords                              []string
	// Requires are programs, such as "node>=20". Permissions are what the package asks for, as it is written.
	Requires, Permissions []string
}

// ReadAbout reads what the tool.yaml of a folder says about the package. ReadPackage checks the rest of it. display
// is its name in errors.
func ReadAbout(dir, display string) (About, error) {
	data, err := regularfile.Read(filepath.Join(dir, ManifestFile), maxManifest)
	if err != nil {
		return About{}, err
	}
	var written toolYAML
	doc, err := yamldoc.Decode(display, data, &written, yamldoc.Options{})
	if err != nil {
		return About{}, err
	}
	a := About{
		Author: written.Author, License: written.License, Repository: written.Repository, Homepage: written.Homepage,
		Keywords: written.Keywords, Requires: written.requires(),
	}
	if len(written.Permissions) > 0 && json.Unmarshal(written.Permissions, &a.Permissions) != nil {
		return a, doc.At("permissions", "wants a list of texts, such as network and filesystem:read:/data")
	}
	return a, nil
}
