package main

import (
	"bytes"
	"fmt"
	"os"
	"testing"
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
