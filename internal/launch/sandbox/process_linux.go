//go:build amd64 || arm64

package sandbox

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/shim"
)

// stagePatience is how long a stage may take to start a tool. Usually it takes milliseconds.
const stagePatience = 10 * time.Second

// process is a tool in its sandbox. The LocalProcess is the stage, which ends as the tool does.
type process struct {
	*launch.LocalProcess
	channel *os.File
	once    sync.Once // guards the fields that follow
	status  syscall.WaitStatus
	told    bool // whether the stage has reported how the tool ended
}

// await sends the plan, and waits for the stage's report.
func (p *process) await(ctx context.Context, plan shim.Plan) (*Reason, error) {
	pids := p.Applied().Tree.Pids
	if err := p.channel.SetDeadline(time.Now().Add(stagePatience)); err != nil {
		return nil, fault.Wrap(fault.StartFailed, err, "the channel to a sandbox: %v", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = p.channel.SetDeadline(time.Unix(1, 0)) }) // ends the wait
	defer stop()
	_, sent := p.channel.Write(plan.Encode())
	var first [1]byte
	if _, err := io.ReadFull(p.channel, first[:]); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, fault.From(cause)
		}
		return unanswered(errors.Join(sent, err), pids), nil
	}
	if shim.Report(first[0]) == shim.Ready {
		return nil, nil
	}
	said, err := io.ReadAll(p.channel)
	if err != nil || len(said) == 0 {
		return unanswered(err, pids), nil
	}
	step, cause := string(said[1:]), syscall.Errno(said[0])
	if shim.Report(first[0]) == shim.Unrun {
		return nil, unrun(step, cause, pids)
	}
	return notMade(step, cause), nil
}

// abandon ends a process that is not returned.
func (p *process) abandon() {
	p.Kill()
	stdin, stdout, stderr := p.Streams()
	for _, f := range [...]*os.File{stdin, stdout, stderr, p.channel} {
		if f != nil {
			_ = f.Close() // its content is not needed
		}
	}
}

// Exit returns how the tool ended. The stage exits with the tool's code, and reports before whether
// a signal ended it.
func (p *process) Exit() launch.Exit {
	exit := p.LocalProcess.Exit()
	p.once.Do(func() {
		defer func() { _ = p.channel.Close() }() // nothing more is sent
		var status [4]byte
		_ = p.channel.SetDeadline(time.Now().Add(time.Second)) // the report is already there, or never will be
		if _, err := io.ReadFull(p.channel, status[:]); err == nil {
			p.status, p.told = syscall.WaitStatus(binary.LittleEndian.Uint32(status[:])), true
		}
	})
	if p.told && exit.Signal == 0 && p.status.Signaled() {
		exit.Signal = p.status.Signal()
	}
	return exit
}
