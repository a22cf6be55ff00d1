package lockfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/manifest"
)

// RecordName is the file in the folder of an installed package. No package may bring it.
const RecordName = ".orla-package.json"

// Record says that a folder was installed.
type Record struct {
	Orla    int    `json:"orla_package"` // the version of this format
	Name    string `json:"name"`
	Version string `json:"version"`
	Source  Source `json:"source"`
	Digest  string `json:"digest"`
}

// RecordOf is the record of an entry of the lock.
func RecordOf(p Package) Record {
	p.Source.Made = nil // the lock has it
	return Record{Orla: format, Name: p.Name, Version: p.Version, Source: p.Source, Digest: p.Digest}
}

// Text returns the file.
func (r Record) Text() []byte {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		panic(err) // strings and a number cannot fail
	}
	return append(text, '\n')
}

// ReadRecord reads the record of a folder. The error matches fs.ErrNotExist if there is none.
func ReadRecord(dir string) (Record, error) {
	const most = 64 << 10
	file := filepath.Join(dir, RecordName)
	data, err := regularfile.Read(file, most)
	if err != nil {
		return Record{}, err
	}
	var r Record
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return Record{}, fmt.Errorf("%s: %w", file, err)
	}
	if r.Orla != format {
		return Record{}, fmt.Errorf("%s: orla_package is %d, and this Orla reads %d", file, r.Orla, format)
	}
	return r, nil
}

// IsMissing reports whether the error of ReadRecord says that the folder was not installed.
func IsMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// Inside returns the folder of the installed package that a folder is, or is in; "" if there is none. A file with the name of a
// record that is not in a folder NAME/VERSION is not one: anybody may write it, as in /tmp, and it would hold for all below that.
func Inside(dir string) string {
	return nearest(dir, func(dir string) bool {
		_, err := os.Lstat(filepath.Join(dir, RecordName))
		return err == nil && manifest.ValidVersion(filepath.Base(dir)) && ValidName(filepath.Base(filepath.Dir(dir)))
	})
}

// Matches reports whether the entry of a lock is about the folder with this record.
func (r Record) Matches(p *Package) bool {
	return p != nil && r.Name == p.Name && r.Version == p.Version && r.Digest == p.Digest
}
