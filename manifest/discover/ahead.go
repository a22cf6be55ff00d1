package discover

import (
	"io/fs"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/manifest/resource"
	"github.com/orla-project/orla/manifest/toolfile"
)

// aheadOf is how many entries of a folder are read ahead of the walker at a time, and fewAhead how many are not
// worth that.
const (
	aheadOf  = 512
	fewAhead = 32
)

// ahead has what several goroutines have read of the next entries of a folder. The walker goes through these
// in order, and reads itself what is missing.
type ahead struct {
	w     *walker
	in    *listing
	begin int // of what was read, in in.entries
	read  []reading
}

// reading is what was read of one entry.
type reading struct {
	done   bool
	err    error
	info   fs.FileInfo      // of a file
	parsed *toolfile.Parsed // of a file; nil if it was not parsed
	folderReading
}

// folderReading is what was read of a folder.
type folderReading struct {
	abs, display string        // its path without links, and the same as messages have it; "" if it was not read ahead
	entries      []fs.DirEntry // sorted by name
	of           *readPackage  // nil if it is to be read as any other folder
}

// of returns what was read of an entry of the folder, the next ones being read before if that is their turn.
func (a *ahead) of(i int) *reading {
	if len(a.in.entries) < fewAhead {
		return &reading{}
	}
	if i >= a.begin+len(a.read) {
		a.begin, a.read = i, make([]reading, min(aheadOf, len(a.in.entries)-i))
		a.readAll()
	}
	return &a.read[i-a.begin]
}

func (a *ahead) readAll() {
	var next atomic.Int64
	var all sync.WaitGroup
	readers := runtime.GOMAXPROCS(0)
	if len(a.w.known.tools)+len(a.w.known.packages) > 0 { // calls are answered meanwhile
		readers = max(1, readers/2)
	}
	for range min(readers, len(a.read)) {
		all.Go(func() {
			defer func() { _ = recover() }() // the walker reads the entry itself, and meets the same
			for {
				i := int(next.Add(1)) - 1
				if i >= len(a.read) || a.w.stopped() {
					return
				}
				a.w.readEntry(a.in, a.in.entries[a.begin+i], &a.read[i])
			}
		})
	}
	all.Wait()
}

// readEntry reads an entry if it is a folder, or an executable that nothing else describes. It may be called from
// several goroutines.
func (w *walker) readEntry(in *listing, entry fs.DirEntry, r *reading) {
	name := entry.Name()
	if entry.IsDir() {
		if !isPassedOver(name) && w.only == nil && !Skips(name) && !isVersionFolder(name) {
			r.abs, r.display = in.below+name, in.shown+name
			w.readFolder(r.abs, r.display, r)
		}
		return
	}
	if !entry.Type().IsRegular() || isPassedOver(name) || w.only != nil && !w.only(name) || strings.HasSuffix(name, toolfile.SidecarSuffix) {
		return
	}
	r.info, r.err = entry.Info()
	r.done = true
	if r.err != nil || r.info.Mode()&0o111 == 0 || resource.HasExtension(name) || name == misnamedManifest || len(in.sidecarsOf(name)) > 0 {
		return
	}
	file := in.below + name
	r.parsed = w.parse(w.executable(in, name, file, nil), r.info)
}

// parse parses an executable, or finds it among what an earlier search has read. It may be called from several
// goroutines.
func (w *walker) parse(e toolfile.Executable, info fs.FileInfo) *toolfile.Parsed {
	if w.seen == nil {
		return e.Parse()
	}
	id, ok := identify(e.Path, info)
	if before, known := w.known.tools[e.Path]; ok && known && before.id == id && before.parsed.Is(e) {
		w.keep(e.Path, before)
		return before.parsed
	}
	now := w.now()
	parsed := e.Parse()
	// A file that is changed from now on has another identity for the next search.
	if ok && id.isOld(now) && parsed.Lasts() {
		w.keep(e.Path, seenTool{id, parsed})
	}
	return parsed
}

func (w *walker) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen.now()
}

func (w *walker) keep(path string, t seenTool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keeps.tools[path] = t
}

// stopped reports whether the search has to end.
func (w *walker) stopped() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.load.Stopped() != nil
}
