// Command scale says what Orla needs on one machine and on many: processors, memory, the load of the API server, what
// is full first, and what the loss of a zone costs (SPEC P5; docs/SCALING.md).
//
//	go run ./internal/testing/scale
//	go run ./internal/testing/scale -replicas 50 -sessions 200000 -capsules 300
//
// It simulates calls one by one, in the order of their events, with the costs of costs.go. A seed makes it repeatable.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// sizes are those of docs/SCALING.md.
var sizes = []Size{
	{Replicas: 1, Cores: 2, Sessions: 1_000, Capsules: 10, Tools: 100, Rate: 0.05},
	{Replicas: 10, Cores: 2, Sessions: 50_000, Capsules: 100, Tools: 1_000, Rate: 0.05},
	{Replicas: 100, Cores: 2, Sessions: 1_000_000, Capsules: 1_000, Tools: 1_000, Rate: 0.05},
	{Replicas: 1_000, Cores: 2, Sessions: 1_000_000, Capsules: 1_000, Tools: 1_000, Rate: 0.05},
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.SetOutput(out)
	own := sizes[1]
	flags.IntVar(&own.Replicas, "replicas", own.Replicas, "replicas of Orla")
	flags.IntVar(&own.Cores, "cores", own.Cores, "processors of each replica")
	flags.IntVar(&own.Sessions, "sessions", own.Sessions, "sessions of clients")
	flags.IntVar(&own.Capsules, "capsules", own.Capsules, "capsules that are Pods, each held by one replica")
	flags.IntVar(&own.Tools, "tools", own.Tools, "Tool resources")
	flags.Float64Var(&own.Rate, "rate", own.Rate, "calls of each session in a second")
	seed := flags.Uint64("seed", 1, "makes a run repeatable")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NFlag() == 0 {
		_, err := io.WriteString(out, report(sizes, *seed))
		return err
	}
	if err := own.check(); err != nil {
		return err
	}
	_, err := io.WriteString(out, report([]Size{own}, *seed))
	return err
}

// Size is a number of replicas, and what they have to do.
type Size struct {
	Replicas, Cores int
	Sessions        int
	Capsules, Tools int
	Rate            float64 // calls of each session in a second
}

// check refuses what the simulation cannot hold, or what has no meaning.
func (s Size) check() error {
	for what, n := range map[string]int{"replicas": s.Replicas, "cores": s.Cores, "sessions": s.Sessions, "capsules": s.Capsules} {
		if n < 1 || n > 10_000_000 {
			return fmt.Errorf("-%s is %d; it must be from 1 to 10000000", what, n)
		}
	}
	if s.Tools < 0 || s.Rate <= 0 {
		return fmt.Errorf("-tools must not be below 0, and -rate must be above 0")
	}
	if calls := s.calls(); calls > 1e6 {
		return fmt.Errorf("these are %.0f calls a second; at most 1000000 are simulated", calls)
	}
	return nil
}

// calls is how many calls come in a second.
func (s Size) calls() float64 { return float64(s.Sessions) * s.Rate }

// length is how long the simulation observes: some hundred thousand calls, and at least a second.
func (s Size) length() time.Duration {
	const calls = 200_000
	return min(max(time.Duration(calls/s.calls()*float64(time.Second)), time.Second), time.Minute).Round(time.Second)
}
