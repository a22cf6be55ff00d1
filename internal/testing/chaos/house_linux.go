package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// module is where the program to try is built from.
const module = "github.com/orla-project/orla"

// stateSize is the size of the disk on which Orla keeps its state. It is small,
// so that it is quickly filled.
const stateSize = "8m"

// options are what a run is told.
type options struct {
	seed  uint64
	from  int
	long  time.Duration // of the whole run
	storm time.Duration // of each round's storm
	orla  string
	dir   string
	clock bool // in a kernel of its own, whose clock jumps
	jump  bool // in that kernel

	hostile bool // with the hostile tenant and the hostile capsule
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()%1e9), "what the plan follows from")
	flags.IntVar(&o.from, "from", 0, "begin with this `round` of the seed's plan")
	flags.DurationVar(&o.long, "for", 10*time.Minute, "how `long` to go on")
	flags.DurationVar(&o.storm, "storm", 20*time.Second, "how `long` each storm is")
	flags.StringVar(&o.orla, "orla", "", "the `program` to try; it is built from this module if none is given")
	flags.StringVar(&o.dir, "dir", "", "the `folder` for tools and logs; a new temporary one if none is given")
	flags.BoolVar(&o.clock, "clock", false, "run in a User Mode Linux, and set its clock back and forth")
	flags.BoolVar(&o.hostile, "hostile", true, "let a hostile tenant and a hostile capsule take part")
	flags.BoolVar(&o.jump, "jump", false, "set the clock of the kernel that -clock starts")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected: %s", strings.Join(flags.Args(), " "))
	}
	return o, nil
}

// args are what makes the same options.
func (o options) args() []string {
	return []string{
		fmt.Sprint("-jump=", o.jump), fmt.Sprint("-seed=", o.seed), fmt.Sprint("-from=", o.from), fmt.Sprint("-for=", o.long),
		fmt.Sprint("-storm=", o.storm), fmt.Sprint("-hostile=", o.hostile), "-orla=" + o.orla, "-dir=" + o.dir,
	}
}

// runOutside prepares a folder and runs all else in namespaces of its own.
func runOutside(args []string) (err error) {
	ctx := context.Background() // Ctrl-C is for the run inside
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "orla-chaos-"); err != nil {
			return err
		}
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	for _, sub := range []string{"state", "tools", "aside", "locks", "home", "run", "tmp", "log"} {
		if err := os.MkdirAll(filepath.Join(o.dir, sub), 0o700); err != nil {
			return err
		}
	}
	if o.orla == "" {
		o.orla = filepath.Join(o.dir, "orla")
		build := exec.CommandContext(ctx, "go", "build", "-o", o.orla, module+"/cmd/orla")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build: %w", err)
		}
	}
	if o.orla, err = filepath.Abs(o.orla); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if o.clock {
		return runInKernel(ctx, self, o)
	}
	jumping, stop := context.WithCancel(ctx)
	jumped := make(chan error, 1)
	go func() {
		if o.jump {
			jumped <- jump(jumping, o.seed)
		}
		close(jumped)
	}()
	defer func() {
		stop()
		err = errors.Join(err, <-jumped)
	}()
	cmd := exec.CommandContext(ctx, self, append([]string{roleInit}, o.args()...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	// Ctrl-C goes to the whole group: the run ends its round and reports.
	signal.Ignore(syscall.SIGINT)
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("%w; the log and all events are in %s", exit, filepath.Join(o.dir, "log"))
	}
	return err
}

// beInit is the first process of the namespaces: it makes the disks, starts the
// run, and reaps whatever else there is. When it ends, the kernel ends the rest.
func beInit(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGINT)
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("a /proc of its own: %w", err)
	}
	if err := syscall.Mount("tmpfs", filepath.Join(o.dir, "state"), "tmpfs", 0, "mode=0700,size="+stateSize); err != nil {
		return fmt.Errorf("a small disk: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p, err := os.StartProcess(self, append([]string{self, roleRun}, args...), &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case pid == p.Pid && status.ExitStatus() == 0:
			return nil
		case pid == p.Pid:
			return errors.New("promises were not kept")
		}
	}
}
