// Command soak lets a real Orla go through a week's worth of events in an hour (SPEC Q3), and says whether its
// memory, descriptors, goroutines, disk and latency stay flat.
//
// Clients of both eras call capsules and simple tools all the time, with and without sessions. Meanwhile files are
// saved, processes crash, tools come and go, and the configuration is read again. Every call that should succeed has to.
//
// It exits with 0 if everything stayed flat and no such call failed.
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
	"time"
)

// The same file is the harness, and the tools of the Orla that it tries.
const (
	roleCapsule = "__capsule"
	roleSimple  = "__simple"
)

func main() {
	if err := act(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	long    time.Duration
	every   time.Duration // between two samples
	clients int
	chart   string // a file; "" for none
	orla    string // the program; "" to build it
}

func act(args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case roleCapsule:
			return beCapsule(args[1], os.Stdin, os.Stdout)
		case roleSimple:
			return beSimple(os.Stdin, os.Stdout)
		}
	}
	var o options
	set := flag.NewFlagSet("soak", flag.ContinueOnError)
	set.DurationVar(&o.long, "for", time.Hour, "how long")
	set.DurationVar(&o.every, "every", 0, "time between two samples (default: a 240th of the whole)")
	set.IntVar(&o.clients, "clients", 8, "how many clients call at once")
	set.StringVar(&o.chart, "chart", "", "write a chart (SVG) to this file")
	set.StringVar(&o.orla, "orla", "", "the program to try (default: it is built)")
	if err := set.Parse(args); err != nil {
		return err
	}
	if o.every == 0 {
		o.every = max(o.long/240, 100*time.Millisecond)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return run(ctx, o)
}

// run does it all, in a folder of its own.
func run(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "orla-soak-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.orla == "" {
		o.orla = filepath.Join(dir, "orla")
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", o.orla, "./cmd/orla")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("go build ./cmd/orla, in the root of the repository: %w\n%s", err, out)
		}
	}
	w, err := newWorld(dir, o.orla)
	if err != nil {
		return err
	}
	if err := w.start(ctx); err != nil {
		return err
	}
	fmt.Printf("%v with %d clients against pid %d\n", o.long, o.clients, w.cmd.Process.Pid)
	samples, counts, err := w.soak(ctx, o)
	if ended := w.stop(); err == nil {
		err = ended
	}
	if err != nil {
		return err
	}
	report, flat := judge(samples)
	fmt.Print(counts.String(), report)
	if o.chart != "" {
		if err := os.WriteFile(o.chart, []byte(chart(samples, o.long)), 0o644); err != nil {
			return err
		}
	}
	if counts.failed() > 0 {
		return fmt.Errorf("%d calls failed that should have succeeded: %s", counts.failed(), counts.firstFailure())
	}
	if !flat {
		return errors.New("not everything stayed flat")
	}
	return nil
}
