package capsuletest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

// echo is a well-behaved capsule, which does what a call's Args say.
func echo(p *Peer) { newServer(p, nil).serve() }

// mcpServer is a plain MCP server, that never heard of orla.hello (SPEC D8).
func mcpServer(p *Peer) {
	s := newServer(p, nil)
	alone(Param("LOCK"))
	pause(number("START_MS", 0))
	s.loop()
	s.end()
}

// silent reads, and never says a word.
func silent(p *Peer) {
	complain("thinking about it")
	for p.Read() != nil {
		continue
	}
}

// helloTwice says hello twice at the start, and once more before every answer.
func helloTwice(p *Peer) {
	s := newServer(p, handlers{"tools/call": func(s *server, m *Message) {
		s.Hello(s.Name, s.Version)
		call(s, m)
	}})
	s.hello()
	s.serve()
}

// helloOther says hello with OTHER_NAME or OTHER_VERSION.
func helloOther(p *Peer) {
	s := newServer(p, nil)
	if name := Param("OTHER_NAME"); name != "" {
		s.Name = name
	}
	if version := Param("OTHER_VERSION"); version != "" {
		s.Version = version
	}
	s.serve()
}

// helloMalformed says PARAMS as the parameters of a hello; nothing for none.
func helloMalformed(p *Peer) {
	if params := Param("PARAMS"); params != "" {
		p.Line(`{"jsonrpc":"2.0","method":"orla.hello","params":` + params + `}`)
	} else {
		p.Line(`{"jsonrpc":"2.0","method":"orla.hello"}`)
	}
	newServer(p, nil).loop()
}

// notHello says FIRST, and then hello.
func notHello(p *Peer) {
	first := Param("FIRST")
	if first == "" {
		first = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"first"}}`
	}
	p.Line(first)
	newServer(p, nil).serve()
}

// exitsStarting prints STDERR and exits with CODE, without a hello. With UNTIL it
// does so only while the file of that name is missing.
func exitsStarting(p *Peer) {
	if until := Param("UNTIL"); until != "" {
		if _, err := os.Stat(until); err == nil {
			newServer(p, nil).serve()
		}
	}
	if text := Param("STDERR"); text != "" {
		complain("%s", text)
	}
	pause(number("START_MS", 0))
	exit(number("CODE", 0))
}

// exitsReady exits with CODE right after its hello, or AFTER_MS later.
func exitsReady(p *Peer) {
	s := newServer(p, nil)
	s.hello()
	pause(number("AFTER_MS", 0))
	exit(number("CODE", 0))
}

// exitsAtCall exits with CODE instead of answering the Nth call.
func exitsAtCall(p *Peer) {
	newServer(p, handlers{"tools/call": func(s *server, m *Message) {
		s.mu.Lock()
		n := s.calls + 1
		s.mu.Unlock()
		if n == number("N", 1) {
			exit(number("CODE", 0))
		}
		call(s, m)
	}}).serve()
}

// deaf serves, and takes no notice of the end of stdin nor of SIGTERM.
func deaf(p *Peer) {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	s := newServer(p, nil)
	s.hello()
	s.loop()
	complain("not listening")
	forever()
}

// diesStopping aborts when stdin ends: a core dump for a farewell.
func diesStopping(p *Peer) {
	s := newServer(p, nil)
	s.hello()
	s.loop()
	complain("ouch")
	die(syscall.SIGKILL)
}

// closesStdout serves, until it closes stdout at the Nth call, or right after its
// hello for 0. It lives on.
func closesStdout(p *Peer) {
	closeIt := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.out = io.Discard
		if err := os.Stdout.Close(); err != nil {
			complain("%v", err)
		}
	}
	s := newServer(p, handlers{"tools/call": func(s *server, m *Message) {
		s.mu.Lock()
		n := s.calls + 1
		s.mu.Unlock()
		if n == number("N", 1) {
			closeIt()
		}
		call(s, m)
	}})
	s.hello()
	if number("N", 1) == 0 {
		closeIt()
	}
	s.loop()
}

// closesStdin closes stdin before its hello, and lives on.
func closesStdin(p *Peer) {
	s := newServer(p, nil)
	if err := os.Stdin.Close(); err != nil {
		complain("%v", err)
	}
	s.hello()
	forever()
}

// forksDaemon has a process that left its group and session by a double fork.
func forksDaemon(p *Peer) {
	s := newServer(p, nil)
	out, err := fork("daemon-starter", true, nil).Output()
	if err != nil {
		complain("daemon-starter: %v", err)
	}
	s.knowFork(string(out))
	s.serve()
}

// startDaemon is the fork in the middle. It prints the daemon's id.
func startDaemon(*Peer) {
	fmt.Fprintln(os.Stdout, started(fork("sleeper-deaf", true, nil)))
}

// forksDeaf has a child in its group that ignores SIGTERM.
func forksDeaf(p *Peer) {
	s := newServer(p, nil)
	s.knowFork(started(fork("sleeper-deaf", false, nil)))
	s.serve()
}

// holdsStdout has a child that inherits stdout and keeps it open; with SETSID=1
// in a session of its own.
func holdsStdout(p *Peer) {
	s := newServer(p, nil)
	s.knowFork(started(fork("sleeper", Param("SETSID") != "", os.Stdout)))
	s.serve()
}

// sleeper does nothing.
func sleeper(*Peer) {
	sayReady()
	forever()
}

// deafSleeper ignores all that can be ignored.
func deafSleeper(*Peer) {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	sayReady()
	forever()
}

// readyFD is where a forked process says that it is set, by closing it.
const readyFD = 3

func sayReady() {
	if err := syscall.Close(readyFD); err != nil {
		complain("say ready: %v", err)
	}
}

// fork makes a command that plays another script.
func fork(script string, setsid bool, stdout *os.File) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.CommandContext(context.Background(), self)
	cmd.Env = append(os.Environ(), scriptVar+"="+script)
	if stdout != nil {
		cmd.Stdout = stdout
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: setsid}
	return cmd
}

// started starts a sleeper and returns its process id when it is set.
func started(cmd *exec.Cmd) string {
	ours, theirs, err := os.Pipe()
	if err != nil {
		complain("%v", err)
		return ""
	}
	defer func() { _ = ours.Close() }()
	cmd.ExtraFiles = []*os.File{theirs}
	err = cmd.Start()
	_ = theirs.Close() // the sleeper has its own
	if err != nil {
		complain("%v", err)
		return ""
	}
	_, _ = ours.Read(make([]byte, 1)) // nothing is written: it ends when the sleeper closes it
	return strconv.Itoa(cmd.Process.Pid)
}

func (s *server) knowFork(pid string) {
	if n, err := strconv.Atoi(strings.TrimSpace(pid)); err == nil {
		s.forked = append(s.forked, n)
	}
}

// die ends this process by a signal.
func die(sig syscall.Signal) {
	signal.Reset(sig)
	if err := syscall.Kill(os.Getpid(), sig); err != nil {
		complain("%v", err)
	}
	forever() // until the signal arrives
}
