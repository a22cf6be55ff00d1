package main

import (
	"bufio"
	"context"
	"io"
	"os/exec"
)

// bareProcess is a capsule that was started by os/exec alone.
type bareProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.Reader
}

// startBare starts a capsule and waits for its hello.
func startBare(ctx context.Context, path string, args ...string) (*bareProcess, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &bareProcess{cmd: cmd, in: in, out: out}
	// It says nothing else before it is asked.
	if _, err := bufio.NewReader(out).ReadSlice('\n'); err != nil {
		_ = p.end() // the cause is err
		return nil, err
	}
	return p, nil
}

// end closes its stdin, which is its sign to end, and waits for that.
func (p *bareProcess) end() error {
	if err := p.in.Close(); err != nil {
		return err
	}
	return p.cmd.Wait()
}

// used is the CPU time of its life, once it has ended.
func (p *bareProcess) used() cpu {
	state := p.cmd.ProcessState
	return cpu{own: state.UserTime() + state.SystemTime()}
}
