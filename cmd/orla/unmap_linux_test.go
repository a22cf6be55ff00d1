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

// SPEC L4: so is what a busy moment needed of it, when that is over.
func TestL4TheProgramIsForgottenWhenItIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- thrift{}.Serve(ctx) }()
		synctest.Wait()
		touch(2 * stirredBytes)
		useProgram(t)
		before := ofFiles(t)
		time.Sleep(3 * thriftEvery)
		synctest.Wait()
		if after := ofFiles(t); after > before/2 {
			t.Errorf("%d kB of files are in memory; it was %d kB", after, before)
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
