package origin_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/packages/origin"
)

// part is an entry of an archive.
type part struct {
	name, text string
	mode       fs.FileMode
	kind       byte // of tar, if it is not a file, folder or link
}

// aTar returns a .tar.gz. The content of a link is its target.
func aTar(t testing.TB, parts []part) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, p := range parts {
		h := &tar.Header{Name: p.name, Mode: int64(p.mode.Perm()), Typeflag: tar.TypeReg, Size: int64(len(p.text)), Format: tar.FormatPAX}
		if p.mode&fs.ModeSetuid != 0 {
			h.Mode |= 0o4000
		}
		switch {
		case p.kind != 0:
			h.Typeflag, h.Size, h.Linkname = p.kind, 0, p.text
			if p.kind == tar.TypeXGlobalHeader {
				h = &tar.Header{Typeflag: p.kind, Name: p.name, PAXRecords: map[string]string{"comment": p.text}, Format: tar.FormatPAX}
			}
		case p.mode.IsDir():
			h.Typeflag, h.Size = tar.TypeDir, 0
		case p.mode&fs.ModeSymlink != 0:
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, p.text, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte(p.text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// aZip returns a .zip.
func aZip(t testing.TB, parts []part) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, p := range parts {
		h := &zip.FileHeader{Name: p.name, Method: zip.Deflate}
		h.SetMode(p.mode)
		if p.kind != 0 {
			h.SetMode(p.mode | fs.ModeNamedPipe)
		}
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(p.text)); err != nil && !p.mode.IsDir() {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// unpack unpacks an archive, whose name says nothing of what it is.
func unpack(t testing.TB, archive []byte, limits origin.Limits) (string, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "archive")
	if err := os.WriteFile(file, archive, 0o600); err != nil {
		t.Fatal(err)
	}
	into := filepath.Join(dir, "outer", "into")
	return into, origin.Unpack(context.Background(), file, into, limits)
}

// contents returns what is below a folder: the text of a file, with its mode, or the target of a link.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			found[name] = "folder"
		case d.Type() == fs.ModeSymlink:
			target, _ := os.Readlink(path)
			found[name] = "to " + target
		default:
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			found[name] = fmt.Sprintf("%o %s", uint32(info.Mode()), text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// RFC 3, sections 4.1 and 4.2; SPEC M3: a package may be an archive, with or without one folder around it. Modes become 0644 and 0755.
func TestRFC3S4_2Archives(t *testing.T) {
	plain := []part{
		{"tool.yaml", "name: x\n", 0o600, 0},
		{"bin/x", "#!/bin/sh\n", 0o700 | fs.ModeSetuid, 0},
		{"empty/", "", fs.ModeDir | 0o777, 0},
		{"bin/y", "x", fs.ModeSymlink | 0o777, 0},
		{"doc/deep/z", "../../bin/y", fs.ModeSymlink | 0o777, 0},
		{"ä \u00a0b", "", 0o666, 0},
	}
	want := map[string]string{"tool.yaml": "644 name: x\n", "bin": "folder", "bin/x": "755 #!/bin/sh\n", "empty": "folder", "bin/y": "to x", "doc": "folder", "doc/deep": "folder", "doc/deep/z": "to ../../bin/y", "ä b": "644 "}
	plain[5].name = "ä b"
	var below, dotted []part
	below = append(below, part{"pax_global_header", "0123", 0, tar.TypeXGlobalHeader}, part{"x-1.0/", "", fs.ModeDir | 0o755, 0})
	dotted = append(dotted, part{"./", "", fs.ModeDir | 0o755, 0})
	for _, p := range plain {
		q := p
		q.name = "x-1.0/" + p.name
		below = append(below, q)
		q.name = "./" + p.name
		dotted = append(dotted, q)
	}
	for name, archive := range map[string][]byte{
		"tar": aTar(t, plain), "zip": aZip(t, plain), "tar below": aTar(t, below), "zip below": aZip(t, below[1:]), "tar with dots": aTar(t, dotted),
	} {
		into, err := unpack(t, archive, origin.Limits{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := contents(t, into); !maps.Equal(got, want) {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// SPEC M4: an archive that could write elsewhere, replace something, confuse a reader or fill the disk is refused
// before anything is written, and the error has nothing that a terminal obeys.
func TestM4HostileArchives(t *testing.T) {
	limits := origin.Limits{Bytes: 1 << 20, Files: 50}
	deep := strings.Repeat("d/", 70) + "x"
	var many []part
	for i := range 60 {
		many = append(many, part{fmt.Sprint("f", i), "", 0o644, 0})
	}
	one := func(p part) []part { return []part{{"tool.yaml", "", 0o644, 0}, p} }
	symlink := fs.ModeSymlink | 0o777
	for name, c := range map[string]struct {
		parts []part
		want  string
	}{
		"traversal":        {one(part{"../evil", "x", 0o644, 0}), `".."`},
		"traversal inside": {one(part{"a/../../evil", "x", 0o644, 0}), `".."`},
		"dot":              {one(part{"a/./b", "x", 0o644, 0}), `"."`},
		"empty component":  {one(part{"a//b", "x", 0o644, 0}), "empty component"},
		"absolute":         {one(part{"/etc/evil", "x", 0o644, 0}), "absolute"},
		"backslash":        {one(part{`..\evil`, "x", 0o644, 0}), "not allowed"},
		"control":          {one(part{"a\x1b[31mb", "x", 0o644, 0}), "not allowed"},
		"newline":          {one(part{"a\nb", "x", 0o644, 0}), "not allowed"},
		"bidi":             {one(part{"a\u202egpj.sh", "x", 0o644, 0}), "not allowed"},
		"zero width":       {one(part{".g\u200cit/config", "x", 0o644, 0}), "not allowed"},
		"not UTF-8":        {one(part{"a\xff", "x", 0o644, 0}), "not allowed"},
		"long name":        {one(part{strings.Repeat("a", 300), "x", 0o644, 0}), "over 255 bytes"},
		"long path":        {one(part{strings.Repeat(strings.Repeat("a", 99)+"/", 12) + "x", "x", 0o644, 0}), "over 1024 bytes"},
		"deep":             {one(part{deep, "x", 0o644, 0}), "over 64 components"},
		"twice":            {one(part{"tool.yaml", "evil", 0o644, 0}), "there twice"},
		"case twins":       {one(part{"Tool.YAML", "evil", 0o644, 0}), "only in case"},
		"folder twins":     {[]part{{"bin/a", "", 0o644, 0}, {"Bin/b", "", 0o644, 0}}, "only in case"},
		"Unicode twins":    {[]part{{"\u00e4", "", 0o644, 0}, {"a\u0308", "", 0o644, 0}}, "only in case"},
		"file and folder":  {[]part{{"a", "", 0o644, 0}, {"a/b", "", 0o644, 0}}, "is a file and a folder"},
		"link and folder":  {[]part{{"b/x", "", 0o644, 0}, {"a", "b", symlink, 0}, {"a/evil", "x", 0o644, 0}}, "is a link and a folder"},
		"folder and link":  {[]part{{"b/x", "", 0o644, 0}, {"a/evil", "x", 0o644, 0}, {"a", "b", symlink, 0}}, "there twice"},
		"link out":         {one(part{"l", "../../etc/passwd", symlink, 0}), "leads out"},
		"link absolute":    {one(part{"l", "/etc/passwd", symlink, 0}), "absolute"},
		"link chain out":   {[]part{{"d/up", "..", symlink, 0}, {"l", "d/up/../x", symlink, 0}, {"x", "", 0o644, 0}}, "leads out"},
		"link to nothing":  {one(part{"l", "nothing", symlink, 0}), "leads to nothing"},
		"link to itself":   {one(part{"l", "l", symlink, 0}), "too many links"},
		"link loop":        {[]part{{"a", "b", symlink, 0}, {"b", "a", symlink, 0}}, "too many links"},
		"link to a file/":  {one(part{"l", "tool.yaml/x", symlink, 0}), "through a file"},
		"link with escape": {one(part{"l", "tool\x1b", symlink, 0}), "not allowed"},
		"link, empty":      {one(part{"l", "", symlink, 0}), "no target"},
		"device":           {one(part{"d", "", 0o644, tar.TypeChar}), "device"},
		"FIFO":             {one(part{"d", "", 0o644, tar.TypeFifo}), "device"},
		"git":              {one(part{".git/config", "x", 0o644, 0}), ".git"},
		"git below":        {one(part{"a/.GIT/config", "x", 0o644, 0}), ".git"},
		"record":           {one(part{".Orla-package.json", "{}", 0o644, 0}), "notes what it installed"},
		"record below":     {[]part{{"x/.orla-package.json", "{}", 0o644, 0}, {"x/tool.yaml", "", 0o644, 0}}, "notes what it installed"},
		"many":             {many, "too large"},
		"many folders":     {one(part{strings.Repeat("d/", 60) + "x", "", 0o644, 0}), "too large"},
		"bomb":             {one(part{"zeros", strings.Repeat("\x00", 2<<20), 0o644, 0}), "too large"},
		"bombs":            {[]part{{"a", strings.Repeat("\x00", 600<<10), 0o644, 0}, {"b", strings.Repeat("\x00", 600<<10), 0o644, 0}}, "too large"},
	} {
		for format, make := range map[string]func(testing.TB, []part) []byte{"tar": aTar, "zip": aZip} {
			if format == "tar" && name == "link, empty" {
				continue // archive/tar writes none
			}
			into, err := unpack(t, make(t, c.parts), limits)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\x1b\n\u202e\u200c") {
				t.Errorf("%s, %s: %v", name, format, err)
			}
			if left := contents(t, filepath.Dir(into)); len(left) > 1 {
				t.Errorf("%s, %s: it wrote %q", name, format, left)
			}
		}
	}
	if _, err := unpack(t, aTar(t, one(part{"h", "tool.yaml", 0o644, tar.TypeLink})), limits); err == nil || !strings.Contains(err.Error(), "hard link") {
		t.Errorf("hard link: %v", err)
	}
}

// SPEC M4: an archive that says another size than it has, or that is broken, is refused.
func TestM4ArchivesThatLie(t *testing.T) {
	limits := origin.Limits{Bytes: 1 << 20, Files: 50}
	good := aZip(t, []part{{"a", strings.Repeat("\x00", 2<<20), 0o644, 0}})
	lie := bytes.ReplaceAll(good, []byte{0, 0, 0x20, 0}, []byte{10, 0, 0, 0}) // 2 MiB becomes 10 bytes
	if bytes.Equal(lie, good) {
		t.Fatal("nothing was replaced")
	}
	encrypted := slices.Clone(aZip(t, []part{{"a", "x", 0o644, 0}}))
	encrypted[bytes.Index(encrypted, []byte("PK\x01\x02"))+8] |= 1
	// A directory that is larger than that of any package.
	var large []part
	for i := range 3000 {
		large = append(large, part{fmt.Sprintf("%0200d", i), "", 0o644, 0})
	}
	var comments bytes.Buffer
	w := zip.NewWriter(&comments)
	for i := range 10 {
		if _, err := w.CreateHeader(&zip.FileHeader{Name: fmt.Sprint(i), Comment: strings.Repeat("a", 60_000)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	headers := make([]part, 3000) // which are not files, and bytes all the same
	for i := range headers {
		headers[i] = part{"pax_global_header", "x", 0, tar.TypeXGlobalHeader}
	}
	tarred := aTar(t, []part{{"a", strings.Repeat("abc", 1000), 0o644, 0}})
	for name, archive := range map[string][]byte{
		"a size":    lie,
		"encrypted": encrypted,
		"directory": aZip(t, large),
		"comments":  comments.Bytes(),
		"headers":   aTar(t, headers),
		"cut":       tarred[:len(tarred)/2],
		"cut zip":   good[:len(good)/2],
		"text":      []byte("hello"),
		"nothing":   nil,
		"gzip":      {0x1f, 0x8b, 8, 0},
		"no tar": func() []byte {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = z.Write(bytes.Repeat([]byte("x"), 2000))
			_ = z.Close()
			return b.Bytes()
		}(),
		"large": bytes.Repeat([]byte("PK\x03\x04"), 1<<20),
	} {
		if _, err := unpack(t, archive, limits); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	file := filepath.Join(t.TempDir(), "x")
	put(t, file, string(tarred), 0o644)
	if err := origin.Unpack(ctx, file, t.TempDir(), limits); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// RFC 3, section 4.2; SPEC M3, M4: a package may be a folder. Files that are not part of it stay behind, and what is
// neither a file nor a folder is refused.
func TestRFC3S4_2Folders(t *testing.T) {
	from := t.TempDir()
	put(t, filepath.Join(from, "tool.yaml"), "x", 0o600)
	put(t, filepath.Join(from, "bin", "x"), "y", 0o711)
	put(t, filepath.Join(from, ".git", "config"), "z", 0o644)
	put(t, filepath.Join(from, ".venv", "x"), "z", 0o644)
	into := filepath.Join(t.TempDir(), "new")
	if err := origin.Copy(t.Context(), from, into, origin.Limits{}); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, into); !maps.Equal(got, map[string]string{"tool.yaml": "644 x", "bin": "folder", "bin/x": "755 y"}) {
		t.Errorf("%q", got)
	}
	for name, make := range map[string]func(string) error{
		"is a FIFO":            func(at string) error { return syscall.Mkfifo(at, 0o644) },
		"leads to an absolute": func(at string) error { return os.Symlink("/etc/passwd", at) },
		"leads out":            func(at string) error { return os.Symlink("..", at) },
		"too large":            func(at string) error { return os.WriteFile(at, make([]byte, 2000), 0o600) },
		"is a socket": func(at string) error {
			l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", at)
			if err == nil {
				t.Cleanup(func() { _ = l.Close() })
			}
			return err
		},
	} {
		from := t.TempDir()
		if err := make(filepath.Join(from, "a")); err != nil {
			t.Fatal(err)
		}
		if err := origin.Copy(t.Context(), from, t.TempDir(), origin.Limits{Bytes: 1000}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// SPEC M5: the digest changes with each name, byte, executable bit, link and folder, and with nothing else.
func TestM5Digest(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a"), "1", 0o644)
	put(t, filepath.Join(dir, "d", "b"), "2", 0o755)
	digest := func() string {
		t.Helper()
		d, err := origin.Digest(t.Context(), dir)
		if err != nil || !strings.HasPrefix(d, "h1:") {
			t.Fatalf("%q %v", d, err)
		}
		return d
	}
	first := digest()
	put(t, filepath.Join(dir, origin.Record), "{}", 0o644)
	put(t, filepath.Join(dir, "a"), "1", 0o600)
	if got := digest(); got != first {
		t.Errorf("the record or a mode counts: %s", got)
	}
	seen := map[string]string{first: "nothing"}
	for name, change := range map[string]func() error{
		"content":    func() error { return os.WriteFile(filepath.Join(dir, "a"), []byte("3"), 0o600) },
		"executable": func() error { return os.Chmod(filepath.Join(dir, "d", "b"), 0o644) },
		"file":       func() error { return os.WriteFile(filepath.Join(dir, "d", "c"), nil, 0o600) },
		"folder":     func() error { return os.Mkdir(filepath.Join(dir, "e"), 0o755) },
		"link":       func() error { return os.Symlink("a", filepath.Join(dir, "l")) },
		"record":     func() error { return os.WriteFile(filepath.Join(dir, "d", origin.Record), nil, 0o600) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if other, there := seen[digest()]; there {
			t.Errorf("%s: the digest is that of %s", name, other)
		}
		seen[digest()] = name
	}
}

// SPEC M4: whatever an archive is, nothing is written outside, nothing is but files, folders and links, and no limit is exceeded.
func FuzzUnpack(f *testing.F) {
	parts := []part{{"x/tool.yaml", "name: x\n", 0o644, 0}, {"x/bin/x", "#!", 0o755, 0}, {"x/l", "bin/x", fs.ModeSymlink | 0o777, 0}}
	f.Add(aTar(f, parts))
	f.Add(aZip(f, parts))
	f.Add(aZip(f, []part{{"../a", "x", 0o644, 0}}))
	f.Fuzz(func(t *testing.T, archive []byte) {
		into, err := unpack(t, archive, origin.Limits{Bytes: 1 << 16, Files: 20})
		outer := contents(t, filepath.Dir(filepath.Dir(into)))
		size, n := 0, 0
		for name, text := range outer {
			below, inside := strings.CutPrefix(name, "outer/into/")
			switch {
			case name == "archive" || name == "outer" || name == "outer/into":
				continue
			case !inside || strings.HasPrefix(text, "to /") || strings.EqualFold(filepath.Base(below), ".git"):
				t.Fatalf("%q: %q", name, text)
			case strings.HasPrefix(text, "to "):
				if at, err := filepath.EvalSymlinks(filepath.Join(into, below)); err != nil || at != into && !strings.HasPrefix(at, into+"/") {
					t.Fatalf("the link %q leads to %q (%v)", below, at, err)
				}
			case text != "folder":
				size += len(text) - 4
			}
			n++
		}
		if err == nil && (size > 1<<16 || n > 20) {
			t.Fatalf("%d bytes in %d files", size, n)
		}
	})
}
