package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The environment by which the harness reaches the tools that it wrote.
const (
	envJournal = "CHAOS_JOURNAL" // the file in which calls are noted that arrived
	envLock    = "CHAOS_LOCK"    // the file that a capsule's tree holds locked
)

// request is what a call asks a tool to do: its arguments.
type request struct {
	Nonce string `json:"nonce"`
	// Do is how it behaves meanwhile; "" is well. See perform.
	Do      string `json:"do,omitempty"`
	MS      int    `json:"ms,omitempty"`  // how long it takes
	Pad     string `json:"pad,omitempty"` // makes the call large
	Fill    int    `json:"fill,omitempty"`
	version string // of who answers
}

// answer is what a well-behaved tool says to a request: nobody can take it for
// the answer to another one.
func (r request) answer() string {
	return fmt.Sprintf("%s %s %d %s", r.Nonce, r.version, len(r.Pad), fill(r.Nonce, r.Fill))
}

// fill is text of a size that follows from a nonce.
func fill(nonce string, size int) string {
	return strings.Repeat(nonce+"-", size/(len(nonce)+1)+1)[:size]
}

// character is what a tool's own file says of it: saving the file changes it.
type character struct {
	version string
	tools   []string // that a capsule lists; nil if its manifest has it all
	fault   string   // what is wrong with this version of it; "" for nothing
}

// text is the file of a tool with this character.
func (c character) text(self, role, head string) string {
	return fmt.Sprintf("#!%s %s\n%s# version %s\n# tools %s\n# fault %s\n", self, role, head, c.version, strings.Join(c.tools, " "), c.fault)
}

// readCharacter reads a tool's own file. It may have been moved since the tool was started.
func readCharacter(path string) (c character, err error) {
	raw, err := os.ReadFile(path)
	for line := range strings.Lines(string(raw)) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != "#" {
			continue
		}
		switch words[1] {
		case "version":
			c.version = words[2]
		case "tools":
			c.tools = words[2:]
		case "fault":
			c.fault = words[2]
		}
	}
	return c, err
}

// note writes a line into the journal. It begins with the end of another one, which a full
// disk may have cut.
func note(format string, args ...any) {
	f, err := os.OpenFile(os.Getenv(envJournal), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	_, _ = fmt.Fprintf(f, "\n"+format+"\n", args...) // the harness looks whether its disk is full
	_ = f.Close()
}

// beSimple is the whole life of a simple tool.
func beSimple(path string) error {
	raw, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	c, _ := readCharacter(path) // without one it has no version
	r := request{version: c.version}
	if err := json.Unmarshal(raw, &r); err != nil {
		return err
	}
	note("ran %s %s %d", os.Getenv("ORLA_TOOL"), r.Nonce, os.Getpid())
	switch r.Do {
	case "die":
		os.Exit(3)
	case "child", "daemon":
		_ = haveChild(r.Do == "daemon", nil) // it may be over the limit
	}
	pause(r.MS)
	_, err = os.Stdout.WriteString(r.answer())
	return err
}

// capsule is one process of a capsule.
type capsule struct {
	name string
	character
	lock *os.File

	mu  sync.Mutex // guards out
	out *bufio.Writer
}

// beCapsule is the whole life of a capsule's process.
func beCapsule(path string) error {
	own, err := readCharacter(path)
	if err != nil {
		return err // as an interpreter that cannot open its script; what it offers is not known
	}
	c := &capsule{name: os.Getenv("ORLA_TOOL"), character: own, out: bufio.NewWriter(os.Stdout)}
	if lock := os.Getenv(envLock); lock != "" {
		if c.lock, err = os.OpenFile(lock, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
			return err
		}
		// All that it starts inherits the lock: who finds it taken found a process of
		// the last tree alive (SPEC D2).
		if err := syscall.Flock(int(c.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			note("overlap %s %s %d", c.name, strings.ReplaceAll(fmt.Sprint(err, holders(lock)), " ", "_"), os.Getpid())
		}
	}
	switch c.fault {
	case "exits":
		return errors.New("this version cannot start")
	case "silent":
		pause(60_000)
	case "stranger":
		c.name = "somebody-else"
	}
	capabilities := []string{}
	if len(c.tools) > 0 {
		capabilities = append(capabilities, "tools", "resources")
	}
	c.say(map[string]any{"method": "orla.hello", "params": map[string]any{"name": c.name, "version": "1.0.0", "capabilities": capabilities}})
	return c.listen(bufio.NewReaderSize(os.Stdin, 64<<10))
}

// holders says who else has a file open.
func holders(path string) (all []string) {
	open, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is good
	for _, fd := range open {
		target, err := os.Readlink(fd)
		pid := strings.Split(fd, "/")[2]
		if err != nil || target != path || pid == strconv.Itoa(os.Getpid()) {
			continue
		}
		stat, _ := os.ReadFile("/proc/" + pid + "/stat") // it may be over
		all = append(all, fmt.Sprintf("%.60s", stat))
	}
	return all
}

// message is what a capsule reads.
type message struct {
	ID     *int64 `json:"id"`
	Method string `json:"method"`
	Params struct {
		Name      string  `json:"name"`
		Arguments request `json:"arguments"`
	} `json:"params"`
}

func (c *capsule) listen(in *bufio.Reader) error {
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil // Orla wants it to end
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			note("broken %s %.100q %d", c.name, line, os.Getpid())
			continue
		}
		switch {
		case m.ID == nil:
		case m.Method == "tools/call":
			note("ran %s %s %d", c.name, m.Params.Arguments.Nonce, os.Getpid())
			if m.Params.Arguments.Do == "mute" {
				pause(m.Params.Arguments.MS)
				m.Params.Arguments.MS = 0
			}
			calls.Go(func() { c.perform(*m.ID, m.Params.Arguments) })
		case m.Method == "tools/list":
			var tools []map[string]any
			for _, name := range c.tools {
				tools = append(tools, map[string]any{"name": name, "inputSchema": map[string]any{"type": "object"}})
			}
			c.say(map[string]any{"id": *m.ID, "result": map[string]any{"tools": tools}})
		case m.Method == "resources/list":
			c.say(map[string]any{"id": *m.ID, "result": map[string]any{"resources": []any{map[string]any{"uri": keptURI, "name": "one"}}}})
		case m.Method == "resources/read":
			c.say(map[string]any{"id": *m.ID, "result": map[string]any{"contents": []any{map[string]any{"uri": keptURI, "text": "kept " + c.version}}}})
		case m.Method == "ping":
			c.say(map[string]any{"id": *m.ID, "result": map[string]any{}})
		default:
			c.say(map[string]any{"id": *m.ID, "error": map[string]any{"code": -32601, "message": "no such method"}})
		}
	}
}

// perform answers one call as it is asked to.
func (c *capsule) perform(id int64, r request) {
	r.version = c.version
	answer := map[string]any{"id": id, "result": map[string]any{"content": []any{map[string]any{"type": "text", "text": r.answer()}}}}
	pause(r.MS)
	switch r.Do {
	case "die":
		os.Exit(3)
	case "child", "daemon":
		_ = haveChild(r.Do == "daemon", c.lock) // it may be over the limit
	case "twice": // the second one belongs to nobody
		c.say(answer)
	case "stray":
		c.say(map[string]any{"id": id + 1_000_000, "result": "the answer to a question that nobody asked"})
	case "junk":
		c.write("print() in the wrong place\n\n{\"jsonrpc\":\n")
		_, _ = os.Stderr.WriteString(strings.Repeat("noise on stderr\n", 20))
	case "slowly": // one line in two parts: the pipe is held meanwhile
		c.halves(answer)
		return
	}
	c.say(answer)
}

func (c *capsule) say(m map[string]any) {
	m["jsonrpc"] = "2.0"
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	c.write(string(raw) + "\n")
}

func (c *capsule) write(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.out.WriteString(text) // Orla may be gone, and then so is this process
	_ = c.out.Flush()
}

func (c *capsule) halves(m map[string]any) {
	m["jsonrpc"] = "2.0"
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = os.Stdout.Write(raw[:len(raw)/2]) // as in write
	pause(30)
	_, _ = os.Stdout.Write(append(raw[len(raw)/2:], '\n'))
}

// haveChild starts a process that would live for long: a daemon leaves its
// parent's session. What the parent holds locked, the child does too.
func haveChild(daemon bool, lock *os.File) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(context.Background(), self, roleChild) // it outlives all
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: daemon}
	if lock != nil {
		cmd.ExtraFiles = []*os.File{lock}
	}
	return cmd.Start()
}

func pause(ms int) { <-time.After(time.Duration(ms) * time.Millisecond) }
