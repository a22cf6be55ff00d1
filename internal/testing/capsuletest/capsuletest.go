// Package capsuletest makes a test binary act as a capsule, good or bad, so that
// tests of a capsule's life run against real processes and need no build step:
//
//	func TestMain(m *testing.M) { capsuletest.Main(m) }
//
// A test asks Tool for a manifest whose entrypoint is the test binary itself and
// whose environment names a script; the process that is started from it plays
// that script instead of running the tests. Only tests import this package.
//
// Its invariant: a process that plays a script, and all that it forks, ends
// within two minutes, whatever the test forgets.
package capsuletest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// scriptVar names the script that a process plays. A script's parameters are
// variables whose names begin with it and an underscore.
const scriptVar = "CAPSULETEST"

// life is the longest life of a process that plays a script.
const life = 2 * time.Minute

// A Script is what a capsule process does from its start to its end. The process
// exits with code 0 when it returns.
type Script func(p *Peer)

// Main plays the script that the environment names, if it names one, and does
// not return. Else it runs the tests, and fails when they leave goroutines or
// descriptors behind.
func Main(m *testing.M) {
	if name := os.Getenv(scriptVar); name != "" {
		play(name)
	}
	before := descriptors()
	code := m.Run()
	if code == 0 {
		if left := leftBehind(before, patience); left != "" {
			fmt.Fprintf(os.Stderr, "the tests left behind:\n%s\n", left)
			code = 1
		}
	}
	exit(code)
}

func play(name string) {
	script := scripts[name]
	if script == nil {
		fmt.Fprintf(os.Stderr, "there is no script %q\n", name)
		exit(127)
	}
	time.AfterFunc(life, func() { exit(124) })
	script(newPeer(os.Stdin, os.Stdout))
	exit(0)
}

// patience is how long what is ending may take to end.
const patience = 10 * time.Second

// exit ends the process.
func exit(code int) {
	os.Exit(code) //nolint:forbidigo // this is the main function of a process
}

// Param returns a parameter of the script, "" if it was not set.
func Param(name string) string { return os.Getenv(scriptVar + "_" + name) }

// number returns a parameter that is a number.
func number(name string, otherwise int) int {
	text := Param(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		complain("%s_%s: %v", scriptVar, name, err)
		exit(127)
	}
	return n
}

// list returns a parameter that is a list, with commas between its elements.
func list(name, otherwise string) []string {
	text, set := os.LookupEnv(scriptVar + "_" + name)
	if !set {
		text = otherwise
	}
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// pause waits. Scripts have no other clock than the real one.
func pause(ms int) {
	if ms > 0 {
		<-time.After(time.Duration(ms) * time.Millisecond)
	}
}

// forever waits until the process is killed, or its life is over.
func forever() {
	<-time.After(life)
}

// complain prints a line on stderr.
func complain(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
