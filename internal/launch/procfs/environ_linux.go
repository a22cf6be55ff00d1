package procfs

import (
	"slices"
	"strconv"
	"time"
)

// maxEnviron is how much of an environment is read, in bytes. A process can declare any part of its memory, even
// terabytes, to be its environment.
const maxEnviron = 128 << 10

// execPatience bounds how long a look waits for all processes in the middle of an exec together. execPause is the
// pause between its attempts. An exec usually takes microseconds.
const (
	execPatience = 20 * time.Millisecond
	execPause    = time.Millisecond
)

// Environs reads the environments of processes for a look at many of them. The zero
// value works, for one look after the other.
type Environs struct {
	buf  []byte
	late []int // processes that were in the middle of an exec
}

// Of returns the environment that a process was started with, up to 128 KiB. It is valid until the next call. The
// environment of another user's process cannot be read, and a zombie has none. A process in the middle of an exec
// has none for a moment; Wait reads it again.
func (e *Environs) Of(pid int) ([]byte, error) {
	environ, settled, err := e.read(pid)
	if !settled {
		e.late = append(e.late, pid)
	}
	return environ, err
}

// Wait ends a look. It reads the environments of processes that were in the middle of an exec again, and passes
// them to tell. It returns an error if no descriptor was free.
func (e *Environs) Wait(tell func(pid int, environ []byte)) (err error) {
	await(e.late, func(pid int) bool {
		environ, settled, readErr := e.read(pid)
		if OutOfFiles(readErr) {
			err = readErr
		}
		tell(pid, environ)
		return settled
	})
	e.late = nil
	return err
}

// await calls done for each of pids until that returns true, or execPatience is over.
func await(pids []int, done func(pid int) bool) {
	late := time.Now().Add(execPatience)
	for len(pids) > 0 {
		<-time.After(execPause)
		pids = slices.DeleteFunc(pids, func(pid int) bool { return done(pid) || !time.Now().Before(late) })
	}
}

// read returns the environment of a process. settled is false if it has to be read again later.
func (e *Environs) read(pid int) (environ []byte, settled bool, err error) {
	if e.buf == nil {
		e.buf = make([]byte, maxEnviron)
	}
	environ, err = File(pid, "environ", e.buf)
	if err != nil || len(environ) > 0 {
		return environ, true, err
	}
	was, known := environAt(pid)
	if !known || was.start == was.end {
		return nil, known, nil
	}
	// Its exec is over by now, or there is nothing where it says that its environment is.
	environ, err = File(pid, "environ", e.buf)
	if err == nil && len(environ) == 0 {
		at, known := environAt(pid)
		return nil, known && at == was, nil
	}
	return environ, true, err
}

// place is where a process has its environment in its memory. If start and end are the same, it has none.
type place struct{ start, end uint64 }

// environAt returns where a process has its environment, and whether that is known. It is not known in the middle
// of an exec, until the process has code: before that, the place is missing, or seems to be empty
// (create_elf_tables). Kernel threads and processes that have ended have no memory.
func environAt(pid int) (at place, known bool) {
	var buf [2048]byte // as in StatOf
	fields, err := fieldsOf(pid, buf[:])
	const memory, code, envStart, envEnd = 20, 23, 47, 48
	if err != nil || len(fields) <= envEnd || string(fields[memory]) == "0" {
		return place{}, true
	}
	at.start, _ = strconv.ParseUint(string(fields[envStart]), 10, 64) // it is one
	at.end, _ = strconv.ParseUint(string(fields[envEnd]), 10, 64)     // the same
	return at, at.end != 0 && string(fields[code]) != "0"
}
