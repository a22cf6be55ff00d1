// Command bench measures what Orla costs, as ratios (SPEC L).
//
// Each number stands beside a baseline that was measured in the same run, in
// turns with it, since times on a shared machine say little by themselves. It
// builds Orla and what it needs, reports whether each target is met, and exits
// with 0 either way: it measures, a person judges.
//
// It is not a test: bench_test.go only checks that it still runs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// patience bounds a whole run, which takes some two thirds of it: as long as
// slow peers may take, none is to keep a run for ever.
const patience = 40 * time.Minute

// section is one group of measurements.
type section struct {
	name string // for -only
	run  func(context.Context, *bench) ([]table, error)
}

// sections are in the order in which they run.
func sections() []section {
	return []section{
		{"calls", measureCalls},
		{"capsule", measureCapsuleCalls},
		{"peers", measurePeers},
		{"kinds", measureKinds},
		{"isolation", measureIsolation},
		{"live", measureLive},
		{"hundred", measureHundred},
		{"tools", measureTools},
		{"start", measureStart},
		{"growth", measureGrowth},
		{"memory", measureMemory},
		{"load", measureLoad},
		{"tenants", measureTenants},
		{"install", measureInstall},
		{"audit", measureAudit},
		{"rules", measureRules},
		{"before", measureBefore},
	}
}

// run is the program without its process. Tables go to stdout, news of the
// progress to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var names []string
	for _, s := range sections() {
		names = append(names, s.name)
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	quick := flags.Bool("quick", false, "measure next to nothing, to see that everything runs")
	out := flags.String("out", "", "rewrite the part of this Markdown `file` between its two markers, and draw the plots next to it")
	only := flags.String("only", "", "run these `sections` alone: "+strings.Join(names, ","))
	before := flags.String("before", "", "an older build of orla, a `file`, to compare calls with")
	short := flags.Bool("brief", false, "measure fewer calls, in five minutes with -only before")
	most := flags.Float64("fail-above", 0, "fail if a call takes more than this `ratio` of the CPU that it takes with the older build, in three comparisons")
	same := flags.Bool("same", false, "let audit and rules compare servers that are the same, to see how much two of those differ")
	idle := flags.Duration("idle", 0, "watch an idle Orla for so `long`, in place of some seconds")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(*only, names)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if *only == "before" && *before == "" {
		return errNoBefore
	}
	scale := full
	switch {
	case *quick:
		scale = smoke
	case *short:
		scale = brief
	}
	b, err := prepare(ctx, scale)
	if err != nil {
		return err
	}
	defer b.close()
	b.before, b.same, b.most = *before, *same, *most
	if *idle > 0 {
		b.scale.idle, b.scale.idleCapsules = *idle, *idle
	}
	var tables []table
	var failed []error
	for _, s := range sections() {
		if !slices.Contains(chosen, s.name) {
			continue
		}
		fmt.Fprintln(stderr, "bench: measuring", s.name)
		found, err := s.run(ctx, b)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
		}
		for _, t := range found {
			fmt.Fprintln(stdout, t.text())
		}
		tables = append(tables, found...)
	}
	if len(b.slower) > 0 {
		failed = append(failed, slowerError(b.slower))
	}
	if *out == "" || failed != nil {
		return errors.Join(failed...)
	}
	pictures, err := b.plots.write(filepath.Dir(*out), ".")
	if err != nil {
		return err
	}
	return rewrite(*out, b.conditions()+"\n"+strings.TrimSuffix(pictures, "\n"), tables)
}

// choose returns the sections that only names, or all of them.
func choose(only string, names []string) ([]string, error) {
	if only == "" {
		return names, nil
	}
	chosen := strings.Split(only, ",")
	for _, name := range chosen {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("-only: there is no section %q; there are %s", name, strings.Join(names, ", "))
		}
	}
	return chosen, nil
}
