package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// SPEC L4: what of the program only the start needed is given back, and what is
// needed again is there.
func TestForgetProgram(t *testing.T) {
	before := ofFiles(t)
	forgetProgram()
	if after := ofFiles(t); after > before*3/4 {
		t.Errorf("%d kB of files are in memory; it was %d kB", after, before)
	}
	forgetProgram()
}

// SPEC L4: what the start needed of it is given back when that is over, and so is
// what a busy moment needed.
func TestL4TheProgramIsForgottenWhenItIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- thrift{}.Serve(ctx) }()
		for _, after := range []string{"the start", "a busy moment"} {
			synctest.Wait()
			useProgram(t)
			before := ofFiles(t)
			time.Sleep(3 * thriftEvery)
			synctest.Wait()
			if now := ofFiles(t); now > before/2 {
				t.Errorf("after %s %d kB of files are in memory; it was %d kB", after, now, before)
			}
			touch(2 * stirredBytes)
		}
		cancel()
		if err := <-served; !errors.Is(err, context.Canceled) {
			t.Errorf("the service ended with %v", err)
		}
	})
}

// useProgram has all of the program's code in memory.
func useProgram(t *testing.T) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = memory.Close() }() // only read
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(line, ".test\n") || !strings.Contains(line, " r-xp ") {
			continue
		}
		var from, to int64
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, io.NewSectionReader(memory, from, to-from)); err != nil {
			t.Fatal(err)
		}
	}
}

// ofFiles is how much of this process's memory comes from files.
func ofFiles(t *testing.T) (kB int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(status, []byte("RssFile:"))
	if _, err := fmt.Sscan(string(rest), &kB); err != nil {
		t.Fatal(err)
	}
	return kB
}
