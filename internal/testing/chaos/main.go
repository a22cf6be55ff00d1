// Command chaos lets a real Orla run through storms of faults, and judges what
// it does meanwhile (SPEC D, E, F, H): every call's answer, every change of a
// capsule's state in the log, the processes that there are, and what is left
// when a storm is over.
//
// A run is a row of rounds. A round is a storm, whose plan follows from the seed
// alone, and then a calm in which everything has to be whole again. All happens
// in namespaces of its own for users, mounts and processes: its disk can be
// filled, its inotify exhausted and its processes killed without harm to anybody.
//
// It exits with 0 if nothing was violated.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

// What this program is, by its first argument: the same file is the harness, the
// first process of its kernel and of its namespaces, and the tools of the Orla that it tries.
const (
	roleKernel  = "__kernel"
	roleInit    = "__init"
	roleRun     = "__run"
	roleCapsule = "__capsule"
	roleSimple  = "__simple"
	roleChild   = "__child"
	roleHostile = "__hostile"
)

func main() {
	err := act(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func act(args []string) error {
	role, rest := "", args
	if len(args) > 0 {
		role, rest = args[0], args[1:]
	}
	switch role {
	case roleCapsule:
		return beCapsule(rest[0])
	case roleSimple:
		return beSimple(rest[0])
	case roleHostile:
		return beHostile(rest[0])
	case roleChild:
		pause(3600_000)
		return nil
	case roleKernel:
		return beKernel(rest)
	case roleInit:
		return beInit(rest)
	case roleRun:
		return runInside(rest)
	default:
		return runOutside(args)
	}
}
