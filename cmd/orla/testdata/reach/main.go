// Command reach tries what a tool should not be able to do, and prints a line
// for each: what it tried, and what came of it. docs/ISOLATION.md shows what it
// prints in each isolation mode. It is one program for all of them, and as a
// module it speaks the contract of type wasm.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// target is what the tests have set up for it to reach.
type target struct {
	Home     string `json:"home"`     // a file in Orla's home
	TCP      string `json:"tcp"`      // an address that answers
	UDP      string `json:"udp"`      // the same
	Unix     string `json:"unix"`     // an abstract socket that is listened on
	Orla     int    `json:"orla"`     // the process
	Variable string `json:"variable"` // is set in Orla's environment
}

// attempt is one thing that is tried.
type attempt struct {
	what string
	try  func(target) string
}

const (
	yes = "yes"
	no  = "no"
)

func done(err error) string {
	if err != nil {
		return no
	}
	return yes
}

var attempts = append([]attempt{
	{"runs as", func(target) string { return identity() }},
	{"has capabilities", func(target) string { return capable() }},
	{"reads `/etc/passwd`", func(target) string { return reads("/etc/passwd") }},
	{"reads `/etc/shadow`", func(target) string { return reads("/etc/shadow") }},
	{"reads a file in Orla's home", func(t target) string { return reads(t.Home) }},
	{"lists the machine's `/home`", func(target) string { return lists("/home") }},
	{"writes beside itself, in the tools folder", func(target) string { return writes(beside()) }},
	{"writes to `/usr`", func(target) string { return writes("/usr") }},
	{"writes to `/tmp`", func(target) string { return writes("/tmp") }},
	{"runs what it wrote to `/tmp`", func(target) string { return runsOwn() }},
	{"sees a variable of Orla's environment", func(t target) string { return has(os.Getenv(t.Variable) != "") }},
	{"sees Orla's process", func(t target) string { return reads(fmt.Sprintf("/proc/%d/cmdline", t.Orla)) }},
	{"reads the environment of Orla's process", func(t target) string { return reads(fmt.Sprintf("/proc/%d/environ", t.Orla)) }},
	{"connects to a server on the machine's loopback", func(t target) string { return dials("tcp", t.TCP) }},
	{"gets an answer to a UDP packet, as of DNS", func(t target) string { return dials("udp", t.UDP) }},
	{"connects to an abstract unix socket", func(t target) string { return dials("unix", "@"+t.Unix) }},
}, more...)

func main() {
	if len(os.Args) > 1 && child(os.Args[1]) {
		return
	}
	given, err := io.ReadAll(os.Stdin)
	if err != nil {
		fail(err)
	}
	var t target
	if err := json.Unmarshal(unwrap(given), &t); err != nil {
		fail(err)
	}
	var lines strings.Builder
	for _, a := range attempts {
		fmt.Fprintf(&lines, "%s: %s\n", a.what, a.try(t))
	}
	if _, err := os.Stdout.Write(wrap(lines.String())); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func has(it bool) string {
	if it {
		return yes
	}
	return no
}

func reads(path string) string {
	text, err := os.ReadFile(path)
	return has(err == nil && len(text) > 0)
}

func lists(path string) string {
	entries, err := os.ReadDir(path)
	return has(err == nil && len(entries) > 0)
}

func writes(dir string) string {
	path := filepath.Join(dir, "reach-wrote-this")
	err := os.WriteFile(path, []byte("here"), 0o600)
	if err == nil {
		_ = os.Remove(path) // it was there
	}
	return done(err)
}

func beside() string {
	self, err := os.Executable()
	if err != nil {
		return "/" // a module has no file
	}
	return filepath.Dir(self)
}

// dials asks for an answer of a byte, which both servers give to a byte.
func dials(network, address string) string {
	conn, err := net.DialTimeout(network, address, 2*time.Second)
	if err != nil {
		return no
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return no
	}
	if _, err := conn.Write([]byte("?")); err != nil {
		return no
	}
	_, err = conn.Read(make([]byte, 1))
	return done(err)
}
