package procfs

import (
	"slices"
	"strconv"
	"time"
)

// maxEnviron is how much of an environment is read, in bytes. A process may say of any
// part of its memory that it is its environment, at no cost, be it terabytes.
const maxEnviron = 128 << 10

// execPatience is how long a look waits for all processes in the middle of an exec
// together, with execPause between its tries: it is a matter of microseconds where
// nobody is in the way.
const (
	execPatience = 20 * time.Millisecond
	execPause    = time.Millisecond
)

// Environs reads the environments of processes for a look at many of them. The zero
// value works, for one look after the other.
type Environs struct {
	buf  []byte
	late []int // what was in the middle of an exec
}

// Of returns the environment that a process was started with, the first 128 KiB of it,
// until the next call. That of another user's cannot be had, and a zombie has none. Nor
// has a process that is becoming another program, for a moment: Wait asks that one again.
func (e *Environs) Of(pid int) ([]byte, error) {
	environ, settled, err := e.read(pid)
	if !settled {
		e.late = append(e.late, pid)
	}
	return environ, err
}

// Wait ends a look. It asks again what was in the middle of an exec, and tells what it
// learns. Its error is that there was no descriptor left to look with.
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

// read returns the environment of a process, and whether it is worth asking again.
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

// place is where in its memory a process has its environment. Where that is empty it
// has none.
type place struct{ start, end uint64 }

// environAt returns where a process says that its environment is, and whether that is
// known. One that was given none knows where it would be; one in the middle of an exec
// does not yet, or thinks for a moment that it is empty, until it has code
// (create_elf_tables). The kernel's own have no memory, nor has what is over.
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
