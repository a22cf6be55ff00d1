package launch

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// programs are the files that the kernel opens to execute a program: the program itself,
// the interpreters of a script, and the loader (ld.so).
//
// The thread that forks returns after the exec, and the garbage collector waits for that
// thread: an exec that blocks on a file would stop all of Orla. So another thread opens
// these files first, and only the caller waits for it. The files stay open until the
// exec has returned: no process can take a write lease (fcntl F_SETLEASE) on an open
// file, and an exec would wait up to 45 s for the end of such a lease. A process of the
// same user can still replace a file between the open and the exec.
type programs struct {
	files  [maxPrograms]int
	n      int    // number of open files
	leased string // the file on which another process has a lease; "" if there is none
	local  bool   // all files are on local file systems
}

func (p *programs) close() { closeAll(p.files[:p.n]) }

// maxPrograms bounds the files of one program. The kernel follows at most five
// interpreters that are scripts themselves, and one loader.
const maxPrograms = 7

// openPrograms opens the files of the program at path, whose working directory is dir. It
// stops at the first file that it cannot open: the exec reports the reason.
func openPrograms(path, dir string) (p programs) {
	if dir != "" && !isBelow(path, dir) {
		_ = syscall.Stat(dir, new(syscall.Stat_t)) // only to block here and not in the fork
	}
	var buf [headSize]byte
	for isLoader := false; p.n < maxPrograms; {
		fd, err := openProgram(path)
		if err != nil {
			if errors.Is(err, syscall.EWOULDBLOCK) {
				p.leased = path
			}
			return p
		}
		p.files[p.n] = fd
		p.n++
		if isLoader { // a loader has no interpreter
			return p
		}
		if path, isLoader = interpreterOf(fd, buf[:]); path == "" {
			return p
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
	}
	return p
}

func isBelow(path, dir string) bool {
	return len(path) > len(dir) && path[:len(dir)] == dir && path[len(dir)] == filepath.Separator
}

// openProgram opens a file. It waits neither for the end of a lease nor for the writer of
// a FIFO.
func openProgram(path string) (fd int, err error) {
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		fd, err = syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	}
	return fd, err
}

// headSize is the number of bytes that are read first. They usually include the name of
// the loader.
const headSize = 1 << 10

// interpreterOf returns the file that runs a program: the interpreter of a script, or the
// loader of an ELF file; "" if there is none. buf has headSize bytes.
func interpreterOf(fd int, buf []byte) (path string, isLoader bool) {
	const maxLine = 256 // as much of a script as the kernel reads
	n, _ := syscall.Pread(fd, buf, 0)
	head := buf[:max(n, 0)]
	line, ok := bytes.CutPrefix(head[:min(len(head), maxLine)], []byte("#!"))
	if !ok {
		return loaderOf(fd, head), true
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	line = bytes.TrimLeft(line, " \t")
	if end := bytes.IndexAny(line, " \t\x00"); end >= 0 {
		line = line[:end]
	}
	return string(line), false
}

// loaderOf returns the loader that an ELF file names. head is the beginning of the file.
// elf.NewFile would read all tables of the file, for each start of a process.
func loaderOf(fd int, head []byte) string {
	const maxTable, maxPath = 64 << 10, 4096 // the kernel's limits
	if len(head) < 64 || !bytes.HasPrefix(head, []byte(elf.ELFMAG)) {
		return ""
	}
	order := binary.NativeEndian // this machine executes no other files
	// The offset of the program header table, its number of entries and their size.
	is64 := elf.Class(head[elf.EI_CLASS]) == elf.ELFCLASS64
	at, count, size := uint64(order.Uint32(head[28:])), int(order.Uint16(head[44:])), 32
	if is64 {
		at, count, size = order.Uint64(head[32:]), int(order.Uint16(head[56:])), 56
	}
	table := part(fd, head, at, uint64(count*size), maxTable)
	for ; len(table) >= size; table = table[size:] {
		if elf.ProgType(order.Uint32(table)) != elf.PT_INTERP {
			continue
		}
		at, length := uint64(order.Uint32(table[4:])), uint64(order.Uint32(table[16:]))
		if is64 {
			at, length = order.Uint64(table[8:]), order.Uint64(table[32:])
		}
		name, _, _ := bytes.Cut(part(fd, head, at, length, maxPath), []byte{0})
		return string(name)
	}
	return ""
}

// part returns length bytes at an offset of the file. head is the beginning of the file.
// It returns nil if the file is shorter or length is over most.
func part(fd int, head []byte, at, length, most uint64) []byte {
	if length > most {
		return nil
	}
	if size := uint64(len(head)); at <= size && length <= size-at {
		return head[at : at+length]
	}
	data := make([]byte, length)
	if n, _ := syscall.Pread(fd, data, int64(at)); n < len(data) { // a negative offset is an error
		return nil
	}
	return data
}

// opener opens the files of programs before they are executed.
type opener struct {
	open func(path, dir string) programs // openPrograms, except in tests

	mu sync.Mutex // guards the fields that follow
	// local are those whose files are on local file systems. The caller opens them itself.
	local map[command]struct{}
	// hung are those that could not be opened before their caller's deadline. Each channel
	// is closed when the open returns. Later callers wait for that, so that they do not
	// block more threads.
	hung map[command]<-chan struct{}
}

// command is a program and its working directory.
type command struct{ path, dir string }

// maxLocal bounds the size of opener.local.
const maxLocal = 1000

// leasedError reports that another process has a lease on a file.
type leasedError struct{ path string }

// Error implements error.
func (e leasedError) Error() string { return "a file lease on " + e.path }

// openFor opens the files of a program. The caller closes them after the exec. If an open
// blocks, only this call waits, at most until ctx ends.
func (o *opener) openFor(ctx context.Context, path, dir string) (programs, error) {
	for try := 0; ; try++ {
		p, err := o.try(ctx, command{path, dir})
		if err != nil || p.leased == "" {
			return p, err
		}
		p.close()
		if try == len(busyPauses) {
			return programs{}, leasedError{p.leased}
		}
		select {
		case <-time.After(busyPauses[try]): // the kernel has asked the lease's holder to release it
		case <-ctx.Done():
			return programs{}, context.Cause(ctx)
		}
	}
}

func (o *opener) try(ctx context.Context, c command) (programs, error) {
	o.mu.Lock()
	_, local := o.local[c]
	hung := o.hung[c]
	o.mu.Unlock()
	if local {
		return o.open(c.path, c.dir), nil
	}
	if hung != nil {
		select {
		case <-hung:
		case <-ctx.Done():
			return programs{}, context.Cause(ctx)
		}
	}
	opened := make(chan programs, 1)
	go func() {
		p := o.open(c.path, c.dir)
		p.local = areLocal(p, c.dir)
		opened <- p
	}()
	select {
	case p := <-opened:
		if p.local {
			o.addLocal(c)
		}
		return p, nil
	case <-ctx.Done():
		o.abandon(c, opened)
		return programs{}, context.Cause(ctx)
	}
}

func (o *opener) addLocal(c command) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.local == nil || len(o.local) >= maxLocal {
		o.local = map[command]struct{}{}
	}
	o.local[c] = struct{}{}
}

// abandon closes the files when the open returns, and makes other callers wait for that.
func (o *opener) abandon(c command, opened <-chan programs) {
	over := make(chan struct{})
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.hung == nil {
		o.hung = map[command]<-chan struct{}{}
	}
	o.hung[c] = over
	go func() {
		p := <-opened
		p.close()
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.hung[c] == over {
			delete(o.hung, c)
		}
		close(over)
	}()
}
