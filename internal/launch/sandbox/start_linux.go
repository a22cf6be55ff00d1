//go:build amd64 || arm64

package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/launch/shim"
)

// Launcher returns a Launcher for the processes of one tool.
func (h *Host) Launcher(opts Options) launch.Launcher { return launcher{h, opts} }

type launcher struct {
	host *Host
	opts Options
}

// Start starts a process in its own sandbox. It returns when the program has been executed, or a
// step has failed.
func (l launcher) Start(ctx context.Context, spec launch.Spec) (launch.Process, error) {
	v, err := newView(append(slices.Clip(l.opts.Paths), spec.Expose...), l.opts.Hidden)
	if err != nil {
		return nil, err
	}
	if err := v.open(l.opts, spec.Expose); err != nil {
		return nil, err
	}
	if err := v.finds(spec); err != nil {
		return nil, err
	}
	p, reason, err := l.host.start(ctx, spec, v, l.opts)
	if reason != nil {
		return nil, reason.fault()
	}
	if err != nil {
		return nil, err // a nil *process would be a non-nil launch.Process
	}
	return p, nil
}

// start starts a stage, and waits until it has started the tool. A Reason says why the sandbox is
// not available, an error why the tool cannot be started in it.
func (h *Host) start(ctx context.Context, spec launch.Spec, v view, opts Options) (*process, *Reason, error) {
	limits := within(spec.Limits, opts.Limits)
	for {
		root, why := h.cells()
		if root == nil {
			return nil, noCgroup(why), nil
		}
		p, err := h.stage(ctx, spec, root, limits, opts.Network)
		if err != nil {
			if reason := noNamespaces(err); reason != nil {
				return nil, reason, nil
			}
			return nil, nil, err
		}
		if applied := p.Applied().Tree; applied != limits {
			p.abandon()
			if h.renewed(root) {
				continue
			}
			return nil, notApplied(applied, limits), nil
		}
		reason, err := p.await(ctx, planOf(spec, v, opts))
		if reason != nil || err != nil {
			p.abandon()
			return nil, reason, err
		}
		return p, nil, nil
	}
}

// stage starts a stage, which waits for its plan.
func (h *Host) stage(ctx context.Context, spec launch.Spec, root *cgroup.Root, limits cgroup.Limits, network bool) (*process, error) {
	channel, theirs, err := newChannel()
	if err != nil {
		return nil, fault.Wrap(fault.StartFailed, err, "no channel to a sandbox: %v", err)
	}
	stage := stageOf(spec, root, limits, theirs)
	if network {
		stage.Sys = namespacesWithNetwork
	}
	p, err := h.local.Start(ctx, stage)
	_ = theirs.Close() // the stage has its own
	if err != nil {
		_ = channel.Close() // nothing was sent
		return nil, err
	}
	return &process{LocalProcess: p, channel: channel}, nil
}

// newChannel returns a pair of sockets. The second one is for the stage.
func newChannel() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		_, _ = unix.Close(fds[0]), unix.Close(fds[1]) // nothing was written
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "|sandbox"), os.NewFile(uintptr(fds[1]), "|stage"), nil
}

// stageOf is the Spec of the stage. It does not get the tool's environment, which must not affect a
// process that is still root.
func stageOf(spec launch.Spec, root *cgroup.Root, limits cgroup.Limits, channel *os.File) launch.Spec {
	name := spec.Cell
	if name == "" { // one of several calls
		name = "call-" + strings.ToLower(rand.Text()[:12])
	}
	return launch.Spec{
		Path:   "/proc/self/exe",
		Argv:   []string{"orla", shim.Word},
		Env:    []string{"GOMAXPROCS=1", "GODEBUG=containermaxprocs=0,updatemaxprocs=0"},
		Dir:    "/",
		ID:     spec.ID,
		Whole:  spec.Whole,
		Input:  spec.Input,
		Grace:  spec.Grace,
		Cell:   name,
		Cells:  root,
		Limits: limits,
		Files:  []*os.File{channel},
		Sys:    namespaces,
	}
}

// namespaces makes a process start in new namespaces. Without root these need a user namespace, in
// which the only user is Orla's.
func namespaces(attr *syscall.SysProcAttr) {
	attr.Cloneflags |= unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	if os.Geteuid() == 0 {
		// Root's groups are dropped here: once the stage runs, it would have to stop the runtime's
		// threads for that.
		attr.Credential = &syscall.Credential{Uid: 0, Gid: ID}
		return
	}
	attr.Cloneflags |= unix.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: ID, HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: ID, HostID: os.Getegid(), Size: 1}}
	attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP} // only for the stage, which drops them
}

// namespacesWithNetwork is namespaces for a process that keeps the network of the machine.
func namespacesWithNetwork(attr *syscall.SysProcAttr) {
	namespaces(attr)
	attr.Cloneflags &^= unix.CLONE_NEWNET
}

// planOf returns the plan of the stage.
func planOf(spec launch.Spec, v view, opts Options) shim.Plan {
	dir := spec.Dir
	if !v.sees(dir) && !v.leadsTo(dir) {
		dir = "/tmp"
	}
	return shim.Plan{
		Base:     base(),
		Hostname: "sandbox",
		Entries:  v.entries(),
		Drop:     os.Geteuid() == 0,
		ID:       ID,
		Landlock: landlock(landlockVersion(), v.writes, opts.Network),
		Filter:   filter(!opts.opens(), len(opts.Writes) == 0),
		Limits: []shim.Rlimit{
			{Resource: unix.RLIMIT_CORE, Most: 0},
			{Resource: unix.RLIMIT_NOFILE, Most: 4096},
			{Resource: unix.RLIMIT_MEMLOCK, Most: 8 << 20},
			{Resource: unix.RLIMIT_RTPRIO, Most: 0}, // a CPU limit does not apply to real-time processes
			{Resource: unix.RLIMIT_NICE, Most: 0},
			// Outside the sandbox this limit is the tag by which Orla finds the processes that tools
			// leave (package trees). A process inside must not be able to forge a tag. It needs none: all
			// processes end with the namespace.
			{Resource: unix.RLIMIT_LOCKS, Most: 0},
		},
		Path: spec.Path,
		Dir:  dir,
		Argv: spec.Argv,
		Env:  append(slices.Clip(spec.Env), spec.Secrets...),
	}
}

// base returns a folder of this machine that can be mounted on.
func base() string {
	for _, dir := range [...]string{"/tmp", "/var/tmp", "/run", "/mnt", "/etc"} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
	}
	return "/tmp" // the stage will report that it is missing
}

// notApplied says which limits the kernel did not accept.
func notApplied(applied, wanted cgroup.Limits) *Reason {
	var missing []string
	if applied.Memory != wanted.Memory {
		missing = append(missing, fmt.Sprintf("memory (%d bytes)", wanted.Memory))
	}
	if applied.CPUs != wanted.CPUs {
		missing = append(missing, fmt.Sprintf("processors (%g)", wanted.CPUs))
	}
	if applied.Pids != wanted.Pids {
		missing = append(missing, fmt.Sprintf("processes (%d)", wanted.Pids))
	}
	return noCgroup("the kernel does not hold " + strings.Join(missing, ", "))
}

// errno returns the system error in an error.
func errno(err error) syscall.Errno {
	e, _ := errors.AsType[syscall.Errno](err) // zero if there is none
	return e
}
