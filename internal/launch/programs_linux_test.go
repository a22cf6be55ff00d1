package launch_test

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// lease takes a write lease on a file until the test is over. A process that opens or
// executes the file waits for the end of the lease.
func lease(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })                           // this ends the lease
	testkit.Eventually(t, "the file can be leased", func() bool { // no other process has it open
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
		return err != unix.EAGAIN
	})
	if err != nil {
		t.Skip("this file system has no leases:", err)
	}
}

// programLoadedBy returns an ELF file that contains nothing but the name of its loader.
func programLoadedBy(loader string) string {
	const head, entry = 64, 56
	text := make([]byte, head+entry)
	copy(text, "\x7fELF\x02\x01\x01")
	own, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	copy(text[16:20], own[16:20]) // the machine's
	le := binary.LittleEndian
	le.PutUint16(text[16:], 3)     // ET_DYN
	le.PutUint32(text[20:], 1)     // the version
	le.PutUint64(text[32:], head)  // the offset of the table
	le.PutUint16(text[52:], head)  // the size of the header
	le.PutUint16(text[54:], entry) // the size of an entry
	le.PutUint16(text[56:], 1)     // number of entries
	le.PutUint32(text[head:], 3)   // PT_INTERP
	le.PutUint64(text[head+8:], head+entry)
	le.PutUint64(text[head+32:], uint64(len(loader)+1))
	return string(text) + loader + "\x00"
}

// SPEC S2, N2: a write lease on a program, on the interpreter of a script or on a loader
// prevents only the start of that program, and no caller waits for the end of the lease.
func TestS2ALeaseOnAProgramHoldsUpNothingElse(t *testing.T) {
	for name, text := range map[string]func(leased string) string{
		"a program":     nil,
		"a script":      func(leased string) string { return "#! " + leased + " -x\n" },
		"by its loader": programLoadedBy,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLocal(t)
			dir := t.TempDir()
			write := func(name, text string) string {
				path := filepath.Join(dir, name)
				if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
				return path
			}
			leased := write("leased", "#!/bin/sh\n")
			path := leased
			if text != nil {
				path = write("program", text(leased))
			}
			lease(t, leased)
			spec := launch.Spec{Path: path, Argv: []string{path}, Dir: dir}
			starts := map[string]func(context.Context) error{
				"Start": func(ctx context.Context) error { _, err := l.Start(ctx, spec); return err },
				"Run": func(ctx context.Context) error {
					_, err := launch.Run(ctx, l.Launcher(), spec, func([]byte) {}, func([]byte) {})
					return err
				},
			}
			for name, start := range starts {
				ctx, cancel := context.WithTimeout(t.Context(), patience/3) // less than the kernel waits for a lease
				failed := make(chan error, 1)
				go func() { failed <- start(ctx) }()
				for range 20 {
					if r := run(ctx, l, "true"); r.err != nil {
						t.Fatalf("%s: another program: %v", name, r.err)
					}
				}
				err := <-failed
				if ctx.Err() != nil {
					t.Errorf("%s held up another program", name)
				}
				cancel()
				if err == nil || !strings.Contains(err.Error(), "a file lease") || !strings.Contains(err.Error(), leased) {
					t.Errorf("%s: %v, want that %s is leased", name, err, leased)
				}
			}
		})
	}
}
