// Package program tests Orla as a whole: it starts the program, and asks it what users,
// clients and operators ask.
package program

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/orla-project/orla/internal/cli"
	"github.com/orla-project/orla/internal/terminal"
	"github.com/orla-project/orla/internal/testing/containertest"
)

func TestMain(m *testing.M) {
	testscript.Main(tidy{m}, map[string]func(){"orla": func() {
		os.Exit(int(cli.Run(os.Args[1:], terminal.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})))
	}})
}

// tidy removes the programs that tests have built when all have run.
type tidy struct{ *testing.M }

func (t tidy) Run() int {
	// What runs on this machine is none of the tests' business.
	for _, name := range []string{"RUNTIME_DIRECTORY", "STATE_DIRECTORY", "ORLA_SOCKET"} {
		_ = os.Unsetenv(name) // it has a name
	}
	_ = os.Setenv("XDG_RUNTIME_DIR", "/nonexistent")
	defer func() {
		if theConformance != nil {
			theConformance.stop()
		}
		containertest.Release()
		for _, dir := range built {
			_ = os.RemoveAll(dir) // what is left is in the folder for temporary files
		}
	}()
	return t.M.Run()
}

// The scripts are the documentation of the command line and its acceptance
// test. UPDATE=1 in the environment writes what the program prints now.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("NO_COLOR", "1")
			env.Setenv("XDG_RUNTIME_DIR", filepath.Join(env.WorkDir, "run"))
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
