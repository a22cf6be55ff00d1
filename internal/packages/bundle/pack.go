package bundle

import (
	"archive/tar"
	"archive/zip"
	"compress/flate"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/file/watch"
	"github.com/orla-project/orla/internal/packages/origin"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/toolfile"
)

// Format is a form of a packed package.
type Format string

// The formats.
const (
	TarGz Format = "tar.gz"
	MCPB  Format = "mcpb"
)

// packedAt is the time of all files in a packed package: the first that a zip can have.
var packedAt = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// Pack writes the package in a folder as an archive. The same files make the same bytes, whoever packs them and when. It leaves
// out what the .gitignore files in the folder ignore, and what version control, package managers and interpreters keep
// beside source files, but node_modules if nothing ignores it. Neither w nor an archive with the name of the folder is in it. A bundle
// gets a manifest.json, unless the package has one. names are the files that were packed.
func Pack(dir string, w io.Writer, format Format) (names []string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	if names, err = packed(root, dir, w); err != nil {
		return nil, err
	}
	var out archive
	var extra []byte
	switch format {
	case TarGz:
		z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return nil, err
		}
		out = &tarOut{z, tar.NewWriter(z)}
	case MCPB:
		z := zip.NewWriter(w)
		z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestCompression) })
		out = &zipOut{z}
		if !slices.Contains(names, manifestFile) {
			if extra, err = bundleOf(dir); err != nil {
				return nil, err
			}
			names = append(names, manifestFile)
			slices.Sort(names)
		}
	default:
		return nil, fmt.Errorf("a package is packed as %s or %s, and not as %q", TarGz, MCPB, format)
	}
	for _, name := range names {
		if name == manifestFile && extra != nil {
			err = out.file(name, 0o644, extra)
		} else {
			err = add(root, out, name)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return names, out.Close()
}

// packed returns the files and links of a package, sorted.
func packed(root *os.Root, dir string, w io.Writer) (names []string, err error) {
	ignored := watch.Gitignored(dir)
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	isOut := func(name string) bool {
		if base := filepath.Base(dir) + "."; name == base+string(TarGz) || name == base+string(MCPB) {
			return true
		}
		f, isFile := w.(*os.File)
		if !isFile {
			return false
		}
		out, err1 := f.Stat()
		info, err2 := root.Lstat(name)
		return err1 == nil && err2 == nil && os.SameFile(out, info)
	}
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		skip := ignored(name, d.IsDir()) || watch.Ignored(name, d.IsDir()) && path.Base(name) != "node_modules" || name == origin.Record || !d.IsDir() && isOut(name)
		switch {
		case skip && d.IsDir():
			return fs.SkipDir
		case skip, d.IsDir():
			return nil
		}
		names = append(names, name)
		return nil
	})
	slices.Sort(names)
	if err == nil && !slices.Contains(names, "tool.yaml") {
		err = fmt.Errorf("%s has no tool.yaml, or ignores it; name the folder of a package", dir)
	}
	return names, err
}

// archive is what a package is written into.
type archive interface {
	file(name string, mode fs.FileMode, content []byte) error
	link(name, target string) error
	Close() error
}

func add(root *os.Root, out archive, name string) error {
	info, err := root.Lstat(name)
	switch {
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := root.Readlink(name)
		if err != nil {
			return err
		}
		if path.IsAbs(target) || strings.HasPrefix(path.Join(path.Dir(name), target), "..") {
			return errors.New("the link leads out of the package")
		}
		return out.link(name, target)
	case !info.Mode().IsRegular():
		return errors.New("it is neither a file nor a link")
	}
	content, err := readBelow(root, name, 256<<20)
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if info.Mode()&0o100 != 0 {
		mode = 0o755
	}
	return out.file(name, mode, content)
}

type tarOut struct {
	zip *gzip.Writer
	tar *tar.Writer
}

func (o *tarOut) file(name string, mode fs.FileMode, content []byte) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(mode), Size: int64(len(content)), ModTime: packedAt, Format: tar.FormatPAX}
	if err := o.tar.WriteHeader(h); err != nil {
		return err
	}
	_, err := o.tar.Write(content)
	return err
}

func (o *tarOut) link(name, target string) error {
	return o.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777, ModTime: packedAt, Format: tar.FormatPAX})
}

func (o *tarOut) Close() error { return errors.Join(o.tar.Close(), o.zip.Close()) }

type zipOut struct{ *zip.Writer }

func (o *zipOut) file(name string, mode fs.FileMode, content []byte) error {
	h := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: packedAt}
	h.SetMode(mode)
	f, err := o.CreateHeader(h)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return err
}

func (o *zipOut) link(name, target string) error {
	return o.file(name, fs.ModeSymlink|0o777, []byte(target))
}

// bundleOf returns the manifest.json of a package.
func bundleOf(dir string) ([]byte, error) {
	tool, _, _, err := toolfile.ReadPackage(dir, "tool.yaml", "tool.yaml", nil)
	if err != nil {
		return nil, err
	}
	if tool.Kind != manifest.Capsule || tool.Runtime.Handshake != manifest.HandshakeMCP {
		return nil, errors.New("only a capsule with handshake: mcp can be an MCP bundle: other clients speak MCP with it")
	}
	below, ok := strings.CutPrefix(tool.Path, tool.Dir+"/")
	if !ok {
		return nil, errors.New("its entrypoint is not in the package")
	}
	m := map[string]any{
		"manifest_version": "0.3", "name": tool.Name, "version": tool.Version, "description": tool.Description,
		"author": map[string]string{"name": tool.Name},
		"server": map[string]any{"type": "binary", "entry_point": below, "mcp_config": map[string]any{
			"command": "${__dirname}/" + below, "args": append([]string{}, tool.Run.Args...), "env": tool.Run.Env,
		}},
	}
	text, err := json.MarshalIndent(m, "", "  ")
	return append(text, '\n'), err
}
