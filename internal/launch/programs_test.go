package launch

import (
	"context"
	"debug/elf"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// SPEC S2, N2: a file system that does not answer delays only the calls of programs on
// it, within their deadlines. After the first such call, further ones block no threads.
func TestS2AFileSystemThatHangsHoldsUpItsOwnCallsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hanging atomic.Int64
		answer := make(chan struct{})
		o := opener{open: func(path, _ string) programs {
			if strings.HasPrefix(path, "/hung") {
				hanging.Add(1)
				defer hanging.Add(-1)
				<-answer
			}
			return programs{}
		}}
		of := func(path, dir string) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			p, err := o.openFor(ctx, path, dir)
			p.close()
			return err
		}
		began := time.Now()
		for range 10 {
			if err := of("/hung/tool", "/hung"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, want that the time is over", err)
			}
		}
		var calls sync.WaitGroup
		for range 10 {
			calls.Go(func() { _ = of("/hung/tool", "/hung") })
		}
		calls.Wait()
		if took := time.Since(began); took != 11*time.Second {
			t.Errorf("11 calls of 1 s took %v", took)
		}
		if n := hanging.Load(); n != 1 {
			t.Errorf("%d threads hang, want one", n)
		}
		began = time.Now()
		for _, other := range [][2]string{{"/fine/tool", "/hung"}, {"/fine/tool", "/fine"}} {
			if err := of(other[0], other[1]); err != nil || time.Since(began) != 0 {
				t.Errorf("%s: %v after %v", other, err, time.Since(began))
			}
		}
		close(answer)
		synctest.Wait()
		if err := of("/hung/tool", "/hung"); err != nil || len(o.hung) > 0 || hanging.Load() > 0 {
			t.Errorf("when the file system answers again: %v, %d hang, %d are held up", err, hanging.Load(), len(o.hung))
		}
	})
}

// The interpreter or the loader is the one that the kernel uses.
func TestInterpreters(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"":                           "",
		"#!":                         "",
		"#! \t\n/x":                  "",
		"#!/bin/sh":                  "/bin/sh",
		"#!/bin/sh\n":                "/bin/sh",
		"#! \t/bin/sh -e x\n/b":      "/bin/sh",
		"#!sh\x00x\n":                "sh",
		"echo x":                     "",
		elf.ELFMAG:                   "",
		"\x7fELF\x02\x01" + longText: "",
	} {
		path := filepath.Join(dir, "program")
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		if got := interpreter(t, path); got != want {
			t.Errorf("%q is run by %q, want %q", text, got, want)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{self, "/bin/sh", "/bin/ls"} {
		f, err := elf.Open(path)
		if err != nil {
			continue // another kind of system
		}
		want := ""
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP {
				text, _ := io.ReadAll(p.Open())
				want = strings.TrimRight(string(text), "\x00")
			}
		}
		_ = f.Close()
		if got := interpreter(t, path); got != want {
			t.Errorf("%s is run by %q, want %q", path, got, want)
		}
	}
}

// longText sets each number in an ELF file to its largest value.
var longText = strings.Repeat("\xff", 300)

func interpreter(t *testing.T, path string) string {
	t.Helper()
	fd, err := openProgram(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	got, _ := interpreterOf(fd, make([]byte, headSize))
	return got
}

// All files of a program are opened, including interpreters that are scripts.
func TestProgramsAreOpened(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("a", "#!b\n", 0o700) // counted from where it starts
	write("b", "#!"+dir+"/c\n", 0o700)
	write("c", "#!"+dir+"/d\n", 0o700)
	write("d", "text", 0o700)
	write("loop", "#!loop\n", 0o700)
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"a": 4, "b": 3, "c": 2, "d": 1, "fifo": 1, "absent": 0, "loop": maxPrograms} {
		p := openPrograms(filepath.Join(dir, name), dir)
		if p.n != want || p.leased != "" {
			t.Errorf("%s: %d files are open, %q is leased; want %d", name, p.n, p.leased, want)
		}
		p.close()
	}
}
