package terminal

import (
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Polled returns std.In for the runtime's poller to wait on, if it is a pipe or a
// socket. A read that blocks keeps a thread and, for some milliseconds, one of the
// runtime's processors, after which the runtime looks every 20 µs in the meantime: to a
// simple call on two cores that came to a quarter of its CPU time.
//
// done, which is never nil, releases what was made, and ends a read that is
// under way.
func (std Streams) Polled() (in io.Reader, done func()) {
	given, ok := std.In.(*os.File)
	if !ok {
		return std.In, func() {}
	}
	info, err := given.Stat()
	if err != nil || info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) == 0 || !blocks(given) {
		return std.In, func() {} // others share a terminal, and a file cannot be polled
	}
	fd, err := duplicate(given)
	if err != nil {
		return std.In, func() {}
	}
	_ = unix.SetNonblock(fd, true) // if it still blocks, it is read as any file
	own := os.NewFile(uintptr(fd), given.Name())
	done = func() {
		_ = unix.SetNonblock(fd, false) // whoever has the same pipe may read on
		_ = own.Close()                 // it was only read
	}
	if !blocks(std.Out) || !blocks(std.Err) { // it is one socket for all, and writes are to wait
		done()
		return std.In, func() {}
	}
	return own, done
}

// blocks reports whether reads or writes of a stream wait.
func blocks(stream any) bool {
	flags := 0
	withDescriptor(stream, func(fd uintptr) { flags, _ = unix.FcntlInt(fd, unix.F_GETFL, 0) }) // no flags, if that is not known
	return flags&unix.O_NONBLOCK == 0
}

func duplicate(f *os.File) (fd int, err error) {
	withDescriptor(f, func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, err
}

// withDescriptor calls use with a stream's descriptor, if it has one. File.Fd would
// make it one that blocks.
func withDescriptor(stream any, use func(fd uintptr)) {
	f, ok := stream.(*os.File)
	if !ok {
		return
	}
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(use) // the error would be a closed file
	}
}
