package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// startPatience bounds a server's start, stopPatience its end.
	startPatience = 60 * time.Second
	stopPatience  = 60 * time.Second
	// lookEvery is how often a log is looked at, which bounds how exactly a
	// start is timed.
	lookEvery = 200 * time.Microsecond
)

// server is a running program that logs as Orla does. Its log goes to a file,
// as a service's does: reading it costs the measured calls nothing.
type server struct {
	cmd    *exec.Cmd
	log    *os.File
	began  time.Time
	stdin  io.WriteCloser // nil but on stdio
	stdout io.Reader      // nil but on stdio
	host   string         // host:port, "" on stdio
}

// logLine is what the bench reads of a log.
type logLine struct {
	Time       time.Time `json:"time"`
	Msg        string    `json:"msg"`
	URL        string    `json:"url"`
	Goroutines int       `json:"goroutines"`
	Tool       string    `json:"tool"`
	To         string    `json:"to"` // a capsule's state
	Pid        int       `json:"pid"`
	Duration   int64     `json:"duration_ms"` // of a reload
}

// startOrla starts Orla over HTTP and waits until it serves.
func (b *bench) startOrla(ctx context.Context, toolsDir string) (*server, error) {
	return b.start(ctx, b.orlaHTTP(toolsDir)...)
}

func (b *bench) orlaHTTP(toolsDir string) []string {
	return []string{b.orla, "--tools-dir", toolsDir, "--listen", "127.0.0.1", "--port", "0"}
}

// start starts a server and waits until its log says that it serves.
func (b *bench) start(ctx context.Context, argv ...string) (*server, error) {
	s, err := b.spawn(ctx, argv, func(*server) error { return nil })
	if err != nil {
		return nil, err
	}
	found, err := s.await(ctx, "serving", 0)
	if err != nil {
		s.stop()
		return nil, err
	}
	u, err := url.Parse(found.URL)
	if err != nil {
		s.stop()
		return nil, err
	}
	s.host = u.Host
	return s, nil
}

// startStdio starts Orla for one client on pipes.
func (b *bench) startStdio(ctx context.Context, toolsDir string) (*server, error) {
	return b.startPiped(ctx, b.orla, "--stdio", "--tools-dir", toolsDir)
}

// startPiped starts a server whose client is on its stdin and stdout.
func (b *bench) startPiped(ctx context.Context, argv ...string) (*server, error) {
	return b.spawn(ctx, argv, func(s *server) (err error) {
		if s.stdin, err = s.cmd.StdinPipe(); err != nil {
			return err
		}
		s.stdout, err = s.cmd.StdoutPipe()
		return err
	})
}

func (b *bench) spawn(ctx context.Context, argv []string, connect func(*server) error) (*server, error) {
	logs := filepath.Join(b.dir, "logs") // beside a tools folder, each line would wake who watches for the folder
	if err := os.MkdirAll(logs, 0o700); err != nil {
		return nil, err
	}
	log, err := os.CreateTemp(logs, "log-")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), "HOME="+b.home())
	cmd.Stderr = log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopPatience
	s := &server{cmd: cmd, log: log}
	if err := connect(s); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	s.began = time.Now()
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return s, nil
}

// home is a home folder whose tools are none.
func (b *bench) home() string { return filepath.Join(b.dir, "home") }

func (s *server) pid() int { return s.cmd.Process.Pid }

// await returns the first line with a message that stands at or after an
// offset of the log.
func (s *server) await(ctx context.Context, msg string, from int64) (logLine, error) {
	lines, err := s.awaitAll(ctx, msg, from, 1, func(l logLine) bool { return l.Msg == msg })
	if err != nil {
		return logLine{}, err
	}
	return lines[0], nil
}

// awaitAll waits until n lines at or after an offset of the log are wanted, and
// returns them. what names them in the error.
func (s *server) awaitAll(ctx context.Context, what string, from int64, n int, wanted func(logLine) bool) ([]logLine, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	var lines []logLine
	for {
		text, err := io.ReadAll(io.NewSectionReader(s.log, from, 1<<20))
		if err != nil {
			return nil, err
		}
		text = text[:bytes.LastIndexByte(text, '\n')+1]
		from += int64(len(text))
		for line := range bytes.Lines(text) {
			var l logLine
			if json.Unmarshal(line, &l) == nil && wanted(l) {
				lines = append(lines, l)
			}
		}
		if len(lines) >= n {
			return lines, nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("%s logged no %s: %w; its log ends: %s", filepath.Base(s.cmd.Path), what, ctx.Err(), s.logEnd())
		}
	}
}

// logSize is where the log ends now.
func (s *server) logSize() (int64, error) {
	info, err := s.log.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// goroutines asks Orla how many it has.
func (s *server) goroutines(ctx context.Context) (int, error) {
	from, err := s.logSize()
	if err != nil {
		return 0, err
	}
	if err := s.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		return 0, err
	}
	lines, err := s.awaitAll(ctx, "number of goroutines", from, 1, func(l logLine) bool { return l.Goroutines > 0 })
	if err != nil {
		return 0, err
	}
	return lines[0].Goroutines, nil
}

// logEnd is the last part of the log, to be shown when something went wrong.
func (s *server) logEnd() string {
	const most = 1000
	size, err := s.logSize()
	if err != nil {
		return ""
	}
	text, err := io.ReadAll(io.NewSectionReader(s.log, max(0, size-most), most))
	if err != nil {
		return ""
	}
	return string(text)
}

// stop ends the server and all that it started.
func (s *server) stop() {
	if s.stdin != nil {
		_ = s.stdin.Close() // the end of input is its sign to stop
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	last := time.AfterFunc(stopPatience, func() { _ = s.cmd.Process.Kill() })
	_ = s.cmd.Wait() // how it ends is not measured
	last.Stop()
	_ = s.log.Close()
}
