package program

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/orla-project/orla/internal/testing/needs"
)

// SPEC-TOOLS 9.2: orla wasm test, as testdata/modules has it.
func TestT92ModulesAreTested(t *testing.T) {
	t.Parallel()
	needs.Time(t, "runs modules")
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "modules"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("NO_COLOR", "1")
			env.Setenv("GORACE", os.Getenv("GORACE"))
			return os.WriteFile(filepath.Join(env.WorkDir, "guest.wasm"), guest(), 0o755) // as compilers leave it
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// guest is a module that writes what stands between two tildes of its request,
// with " for each ': the test says there what the guest is to answer. Before
// that it does what a word begins with: !loop, !trap, !exit with code 3, or !more
// memory, of 256 KiB. It is small, so that tests need not wait for a compiler.
func guest() []byte {
	const (
		i, j, count = 0, 1, 2 // locals
		buffer      = 1024
		room        = 60_000

		fdRead, fdWrite, procExit = 0, 1, 2 // functions
	)
	join := func(parts ...[]byte) []byte { return slices.Concat(parts...) }
	op := func(code ...byte) []byte { return code }
	number := func(n int) []byte { return join(op(0x41), signed(n)) } // i32.const
	get := func(local byte) []byte { return op(0x20, local) }
	set := func(local byte) []byte { return op(0x21, local) }
	next := func(local byte, by int) []byte { return join(get(local), number(by), op(0x6a), set(local)) }
	at := func(local byte, offset byte) []byte { return join(get(local), op(0x2d, 0, offset)) } // i32.load8_u
	store := func(address int, value []byte) []byte { return join(number(address), value, op(0x36, 2, 0)) }
	is := func(value []byte, c byte) []byte { return join(value, number(int(c)), op(0x46)) } // i32.eq
	when := func(condition []byte, then ...[]byte) []byte {
		return join(condition, op(0x04, 0x40), join(then...), op(0x0b))
	}
	stream := func(function byte, descriptor int) []byte { // the buffers are at 0, and what was moved is at 8
		return join(number(descriptor), number(0), number(1), number(8), op(0x10, function, 0x1a))
	}
	forever := op(0x03, 0x40, 0x0c, 0, 0x0b)

	run := join(
		op(1, 3, 0x7f), // three locals
		store(0, number(buffer)), store(4, number(room)), stream(fdRead, 0),
		// i stands behind the first tilde.
		number(buffer), set(i),
		op(0x03, 0x40), at(i, 0), next(i, 1), number('~'), op(0x47, 0x0d, 0, 0x0b),
		when(is(at(i, 0), '!'),
			when(is(at(i, 1), 'l'), forever),
			when(is(at(i, 1), 't'), op(0x00)),
			when(is(at(i, 1), 'e'), number(3), op(0x10, procExit)),
			when(is(at(i, 1), 'm'), number(4), op(0x40, 0, 0x1a)),
			next(i, len("!word")),
		),
		// j comes to stand at the second.
		get(i), set(j),
		op(0x02, 0x40, 0x03, 0x40),
		is(at(j, 0), '~'), op(0x0d, 1),
		when(is(at(j, 0), '\''), get(j), number('"'), op(0x3a, 0, 0)),
		next(j, 1), op(0x0c, 0, 0x0b, 0x0b),
		store(0, get(i)), store(4, join(get(j), get(i), op(0x6b))), stream(fdWrite, 1),
		op(0x0b),
	)
	name := func(text string) []byte { return append(op(byte(len(text))), text...) }
	imported := func(function string, kind byte) []byte {
		return join(name("wasi_snapshot_preview1"), name(function), op(0, kind))
	}
	section := func(id byte, body ...[]byte) []byte {
		whole := join(body...)
		return join(op(id), unsigned(len(whole)), whole)
	}
	return join([]byte("\x00asm\x01\x00\x00\x00"),
		section(1, op(3, 0x60, 4, 0x7f, 0x7f, 0x7f, 0x7f, 1, 0x7f, 0x60, 1, 0x7f, 0, 0x60, 0, 0)),
		section(2, op(3), imported("fd_read", 0), imported("fd_write", 0), imported("proc_exit", 1)),
		section(3, op(1, 2)),
		section(5, op(1, 0, 1)),
		section(7, op(2), name("memory"), op(2, 0), name("_start"), op(0, 3)),
		section(10, op(1), unsigned(len(run)), run),
	)
}

func unsigned(n int) []byte {
	var out []byte
	for ; n > 0x7f; n >>= 7 {
		out = append(out, byte(n)|0x80)
	}
	return append(out, byte(n))
}

func signed(n int) []byte {
	var out []byte
	for ; n > 0x3f; n >>= 7 { // none is negative
		out = append(out, byte(n&0x7f)|0x80)
	}
	return append(out, byte(n))
}
