// Package program tests Orla as a whole: it starts the program, and asks it what users,
// clients and operators ask.
package program

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/orla-project/orla/internal/app/cli"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/testing/containertest"
	"github.com/orla-project/orla/internal/testing/kubetest"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

func TestMain(m *testing.M) {
	testscript.Main(tidy{m}, map[string]func(){"orla": func() {
		os.Exit(int(cli.Run(os.Args[1:], terminal.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})))
	}})
}

// tidy removes the programs that tests have built when all have run.
type tidy struct{ *testing.M }

func (t tidy) Run() int {
	waitTogether()
	// What runs on this machine is none of the tests' business.
	for _, name := range []string{"RUNTIME_DIRECTORY", "STATE_DIRECTORY", "ORLA_SOCKET"} {
		_ = os.Unsetenv(name) // it has a name
	}
	_ = os.Setenv("XDG_RUNTIME_DIR", "/proc/none") // nobody can make it
	// Tests have homes of their own, in which nothing is compiled yet.
	if cache, err := exec.Command("go", "env", "GOCACHE").Output(); err == nil {
		_ = os.Setenv("GOCACHE", strings.TrimSpace(string(cache)))
	}
	// What stands in PATH may be a script that looks for an interpreter elsewhere, which takes ten times as long as to start one.
	if interpreter, err := python(); err == nil {
		if path := os.Getenv("PATH"); !slices.Contains(filepath.SplitList(path), filepath.Dir(interpreter)) {
			_ = os.Setenv("PATH", filepath.Dir(interpreter)+string(filepath.ListSeparator)+path)
		}
	}
	endPackages, err := containertest.WithoutPackages()
	if err != nil {
		panic(err)
	}
	if os.Getenv("GORACE") == "" {
		_ = os.Setenv("GORACE", "atexit_sleep_ms=10") // or each program with the race detector sleeps for a second at its end
	}
	defer func() {
		if theConformance != nil {
			theConformance.stop()
		}
		endPythons()
		containertest.Release()
		endPackages()
		kubetest.Release()
		for _, dir := range built {
			_ = os.RemoveAll(dir) // what is left is in the folder for temporary files
		}
	}()
	return t.M.Run()
}

// waitTogether runs more tests at a time than there are cores, unless -parallel says how many:
// these tests wait for processes more than they compute.
func waitTogether() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))) // a number
	}
}

// servingRaces is a program that looks for races where it serves. The commands that are soon over do little in several
// goroutines, and start without the race detector in a third of the CPU.
var servingRaces = sync.OnceValues(func() (string, error) {
	racing, err := racingBinary()
	if err != nil {
		return "", err
	}
	plain, err := plainBinary()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "orla-test-*")
	if err != nil {
		return "", err
	}
	buildMu.Lock()
	built = append(built, dir)
	buildMu.Unlock()
	path := filepath.Join(dir, "orla")
	script := fmt.Sprintf("#!/bin/sh\ncase $1 in serve | dev | -* | '') exec %s \"$@\" ;; esac\nexec %s \"$@\"\n", racing, plain)
	return path, testkit.WriteProgram(path, []byte(script))
})

// The scripts are the documentation of the command line and its acceptance
// test. UPDATE=1 in the environment writes what the program prints now.
func TestScript(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("NO_COLOR", "1")
			env.Setenv("GORACE", os.Getenv("GORACE"))
			env.Setenv("XDG_RUNTIME_DIR", filepath.Join(env.WorkDir, "run"))
			// Without races to look for, "orla" is this program of tests itself (see TestMain).
			var binary func() (string, error)
			if detectsRaces() {
				binary = servingRaces
				// A call without a server starts capsules and ends them, which one script has.
				if needs.More() || strings.TrimPrefix(filepath.Base(env.WorkDir), "script-") == "capsule" {
					binary = racingBinary
				}
			}
			if binary != nil {
				orla, err := binary()
				if err != nil {
					return err
				}
				env.Setenv("PATH", filepath.Dir(orla)+string(filepath.ListSeparator)+env.Getenv("PATH"))
			}
			if err := os.Mkdir(filepath.Join(env.WorkDir, "run"), 0o700); err != nil {
				return err
			}
			return os.MkdirAll(filepath.Join(env.WorkDir, "home"), 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"mkfifo":  mkfifo,
			"exits":   exits,
			"waitlog": waitlog,
		},
	})
}
