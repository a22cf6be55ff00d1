// Command reach tries what a tool should not be able to do, and prints a line
// for each: what it tried, and whether it could. docs/ISOLATION.md shows what it
// prints in each isolation mode. It is one program for all of them; built for
// wasip1 it speaks the contract of type wasm.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// target is what has been set up for it to reach.
type target struct {
	Only     string `json:"only"`     // the one attempt to make; "" for all that none is the last of
	Passwd   string `json:"passwd"`   // the digest of the machine's file
	Shadow   string `json:"shadow"`   // the same
	Home     string `json:"home"`     // a file in Orla's home
	Tmp      string `json:"tmp"`      // a file in the machine's /tmp
	TCP      string `json:"tcp"`      // an address that answers a byte
	UDP      string `json:"udp"`      // the same
	Unix     string `json:"unix"`     // the same, by an abstract name
	Orla     int    `json:"orla"`     // the process
	Variable string `json:"variable"` // is set in Orla's environment
}

// attempt is one thing that is tried.
type attempt struct {
	what string
	try  func(target) string
	last bool // it may be the end of this process
}

const (
	yes = "yes"
	no  = "no"
)

// attempts are those of all systems, and those of processes.
func attempts() []attempt {
	return append([]attempt{
		{what: "runs as", try: func(target) string { return identity() }},
		{what: "has capabilities", try: func(target) string { return capable() }},
		{what: "reads the machine's `/etc/passwd`", try: func(t target) string { return digests("/etc/passwd", t.Passwd) }},
		{what: "reads the machine's `/etc/shadow`", try: func(t target) string { return digests("/etc/shadow", t.Shadow) }},
		{what: "reads a file in the home of Orla's user", try: func(t target) string { return reads(t.Home) }},
		{what: "reads a file in the machine's `/tmp`", try: func(t target) string { return reads(t.Tmp) }},
		{what: "writes to a `/tmp`", try: func(target) string { return writes("/tmp") }},
		{what: "runs what it wrote there", try: func(target) string { return runsOwn() }},
		{what: "writes beside itself, in the tools folder", try: func(target) string { return writes(beside()) }},
		{what: "writes to `/usr`", try: func(target) string { return writes("/usr") }},
		{what: "writes to `/etc`", try: func(target) string { return writes("/etc") }},
		{what: "sees a variable of Orla's environment", try: func(t target) string { return has(os.Getenv(t.Variable) != "") }},
		{what: "sees Orla's process", try: func(t target) string { return reads(fmt.Sprintf("/proc/%d/cmdline", t.Orla)) }},
		{what: "reads the environment of Orla's process", try: func(t target) string { return reads(fmt.Sprintf("/proc/%d/environ", t.Orla)) }},
		{what: "connects to a server on the machine's loopback", try: func(t target) string { return dials("tcp", t.TCP) }},
		{what: "gets an answer to a UDP packet, as of DNS", try: func(t target) string { return dials("udp", t.UDP) }},
		{what: "connects to an abstract unix socket", try: func(t target) string { return dials("unix", "@"+t.Unix) }},
	}, ofProcesses...)
}

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
	for _, a := range attempts() {
		switch {
		case t.Only == "" && a.last:
			fmt.Fprintf(&lines, "%s:\n", a.what)
		case t.Only == "" || t.Only == a.what:
			fmt.Fprintf(&lines, "%s: %s\n", a.what, a.try(t))
		}
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

func digests(path, want string) string {
	text, err := os.ReadFile(path)
	sum := sha256.Sum256(text)
	return has(err == nil && hex.EncodeToString(sum[:]) == want)
}

func reads(path string) string {
	text, err := os.ReadFile(path)
	return has(err == nil && len(text) > 0)
}

func writes(dir string) string {
	path := filepath.Join(dir, fmt.Sprint("reach-", os.Getpid()))
	if err := os.WriteFile(path, []byte("here"), 0o600); err != nil {
		return no
	}
	_ = os.Remove(path) // it was there
	return yes
}

// beside is the folder of this program. A module is in none.
func beside() string {
	self, err := os.Executable()
	if err != nil {
		return "/"
	}
	return filepath.Dir(self)
}

// patience is how long an answer may take of a machine that is busy. What cannot
// be reached says so at once.
const patience = 10 * time.Second

// dials sends a byte and wants one back.
func dials(network, address string) string {
	conn, err := net.DialTimeout(network, address, patience)
	if err != nil {
		return no
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience)) // or it waits longer
	if _, err := conn.Write([]byte("?")); err != nil {
		return no
	}
	_, err = conn.Read(make([]byte, 1))
	return has(err == nil)
}

// takes takes so much memory, and uses it.
func takes(bytes int) string {
	block := make([]byte, bytes)
	for i := 0; i < len(block); i += 4096 {
		block[i] = 1
	}
	return has(block[len(block)/4096*4096-4096] == 1)
}
