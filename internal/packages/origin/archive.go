package origin

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// tarball is a .tar.gz. It is read twice: once to check all of it, and once to write its files.
type tarball struct{ file *os.File }

// each calls what for each entry of the archive but the root, with its path.
func (t *tarball) each(ctx context.Context, limits Limits, what func(name string, h *tar.Header, content io.Reader) error) error {
	if _, err := t.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	unzipped, err := gzip.NewReader(t.file)
	if err != nil {
		return fmt.Errorf("the archive cannot be read: %w", err)
	}
	bounded := &bounded{from: during{ctx, unzipped}, left: limits.Bytes + limits.overhead()}
	archive := tar.NewReader(bounded)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) { // names are checked here
			return fmt.Errorf("the archive cannot be read: %w", err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue // git notes its commit in one
		}
		name := strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/")
		if h.Typeflag == tar.TypeDir && (name == "" || name == ".") {
			continue
		}
		if err := what(name, h, archive); err != nil {
			return err
		}
	}
}

func (t *tarball) list(ctx context.Context, limits Limits) (list []entry, err error) {
	err = t.each(ctx, limits, func(name string, h *tar.Header, _ io.Reader) error {
		if len(list) >= limits.Files {
			return fmt.Errorf("%w: there are over %d files and folders", ErrTooLarge, limits.Files)
		}
		e := entry{name: name, exec: h.Mode&0o100 != 0}
		switch h.Typeflag {
		case tar.TypeReg:
			e.kind, e.size = file, h.Size
		case tar.TypeDir:
			e.kind = folder
		case tar.TypeSymlink:
			e.kind, e.target = link, h.Linkname
		case tar.TypeLink:
			return refused(h.Name, "it is a hard link")
		default:
			return refused(h.Name, "it is a device, a pipe, or of a kind that is not allowed")
		}
		list = append(list, e)
		return nil
	})
	return list, err
}

func (t *tarball) files(ctx context.Context, entries []entry, put func(int, io.Reader) error) error {
	i := 0
	// The size was checked when the archive was listed, and what is written is counted again.
	return t.each(ctx, Limits{Bytes: 1 << 60}, func(name string, _ *tar.Header, content io.Reader) error {
		if i >= len(entries) || entries[i].name != name {
			return errors.New("the archive has changed while it was read")
		}
		i++
		if entries[i-1].kind != file {
			return nil
		}
		return put(i-1, content)
	})
}

// bounded fails when too much was read.
type bounded struct {
	from io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("%w: the archive unpacks to more bytes than a package may have", ErrTooLarge)
	}
	return n, err
}

// zipped is a .zip.
type zipped struct {
	file  *os.File
	size  int64
	parts []*zip.File // of the list
}

func (z *zipped) list(ctx context.Context, limits Limits) (list []entry, err error) {
	directory := &boundedAt{from: z.file, left: limits.overhead()}
	archive, err := zip.NewReader(directory, z.size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // names are checked here
		return nil, fmt.Errorf("the archive cannot be read: %w", err)
	}
	if len(archive.File) > limits.Files {
		return nil, fmt.Errorf("%w: there are over %d files and folders", ErrTooLarge, limits.Files)
	}
	directory.left = 1 << 60 // what is unpacked is counted
	for _, f := range archive.File {
		e, err := zipEntry(ctx, f)
		if err != nil {
			return nil, err
		}
		if f.UncompressedSize64 > uint64(limits.Bytes) {
			return nil, fmt.Errorf("%w: %s has over %d bytes", ErrTooLarge, quoted(f.Name), limits.Bytes)
		}
		list, z.parts = append(list, e), append(z.parts, f)
	}
	return list, nil
}

func zipEntry(ctx context.Context, f *zip.File) (entry, error) {
	mode := f.Mode()
	e := entry{name: strings.TrimSuffix(f.Name, "/"), exec: mode&0o100 != 0}
	switch {
	case f.Flags&1 != 0:
		return e, refused(f.Name, "it is encrypted")
	case mode&fs.ModeDir != 0:
		e.kind = folder
	case mode&fs.ModeSymlink != 0:
		r, err := f.Open()
		if err != nil {
			return e, refused(f.Name, "%v", err)
		}
		defer func() { _ = r.Close() }()
		target, err := io.ReadAll(io.LimitReader(during{ctx, r}, maxTarget+1))
		if err != nil {
			return e, refused(f.Name, "%v", err)
		}
		e.kind, e.target = link, string(target)
	case mode.IsRegular() && !strings.HasSuffix(f.Name, "/"):
		e.kind, e.size = file, int64(min(f.UncompressedSize64, 1<<60))
	default:
		return e, refused(f.Name, "it is a device, a pipe, or of a kind that is not allowed")
	}
	return e, nil
}

func (z *zipped) files(_ context.Context, entries []entry, put func(int, io.Reader) error) error {
	for i, f := range z.parts {
		if entries[i].kind != file {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return refused(f.Name, "%v", err)
		}
		err = put(i, r)
		if err := errors.Join(err, r.Close()); err != nil {
			return refused(f.Name, "%w", err)
		}
	}
	return nil
}

// boundedAt fails when too much was read: the directory of an archive is held in memory.
type boundedAt struct {
	from io.ReaderAt
	left int64
}

func (b *boundedAt) ReadAt(p []byte, at int64) (int, error) {
	n, err := b.from.ReadAt(p, at)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("%w: the directory of the archive is too large", ErrTooLarge)
	}
	return n, err
}
