package deps

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/deps/envfiles"
	"github.com/orla-project/orla/internal/deps/printed"
	"github.com/orla-project/orla/internal/launch"
)

const mostRead = 4 << 20 // of what an installer prints

// installer fills one folder with what one tool needs.
type installer struct {
	store    *Store
	need     Need
	part, at string // where it is built, and where it will be
	scratch  string // the home of a confined installer; "" if it is not confined
	say      func(line string)
	log      *slog.Logger

	withdrawn []printed.Withdrawal // versions that were installed or locked all the same
}

// install builds the environment.
func (i *installer) install(ctx context.Context) error {
	isConfined := i.need.source.Confined && i.store.opts.Confine != nil
	if isConfined {
		if err := i.confined(); err != nil {
			return err
		}
	}
	err := i.fill(ctx)
	if err == nil && len(i.need.source.Command) > 0 && !exists(filepath.Join(i.part, "bin", "python")) {
		_, err = i.write(noPython, nil)
	}
	if err == nil && isConfined {
		err = i.give(0) // nothing of it runs any more
	}
	if err == nil && i.isBounded() {
		err = i.bound().Check()
	}
	if err == nil && i.need.source.Language == Node {
		err = i.writeResolver()
	}
	if err != nil {
		return err
	}
	return envfiles.Relocate(i.part, i.at)
}

// fill runs the installers.
func (i *installer) fill(ctx context.Context) error {
	switch {
	case len(i.need.source.Command) > 0 && i.need.source.NoScripts:
		return errors.New("runtime.setup: an installed package may not run a command of its own")
	case len(i.need.source.Command) > 0:
		return i.custom(ctx)
	case i.need.source.Language == Node:
		return i.node(ctx)
	}
	return i.python(ctx)
}

// custom runs the command of runtime.setup.
func (i *installer) custom(ctx context.Context) error {
	command := i.need.source.Command
	dir := filepath.Dir(i.need.source.Script)
	if folders := i.need.source.Folders; len(folders) > 0 {
		dir = folders[len(folders)-1]
	}
	program := command[0]
	if strings.Contains(program, "/") && !filepath.IsAbs(program) {
		program = filepath.Join(dir, program)
	} else if program = i.find(program); program == "" {
		return fmt.Errorf("there is no %s in PATH, which runtime.setup names", command[0])
	}
	_, err := i.run(ctx, step{argv: append([]string{program}, command[1:]...), dir: dir})
	return err
}

// step is one program that is run.
type step struct {
	argv  []string // with the path of the program
	dir   string
	input []byte
}

// run runs a program to its end and returns its stdout. The error has the program's last lines.
func (i *installer) run(ctx context.Context, s step) ([]byte, error) {
	if !i.isBounded() {
		return i.runStep(ctx, s)
	}
	return i.bound().Run(ctx, func(ctx context.Context) ([]byte, error) { return i.runStep(ctx, s) })
}

// isBounded reports whether strangers chose what is installed.
func (i *installer) isBounded() bool { return i.need.source.Package != "" || i.scratch != "" }

func (i *installer) bound() envfiles.Bound {
	return envfiles.Bound{Bytes: cmp.Or(i.store.opts.MaxBytes, envfiles.DefaultBytes), Files: envfiles.Files, Part: i.part, Scratch: i.scratch, Log: i.log}
}

func (i *installer) runStep(ctx context.Context, s step) ([]byte, error) {
	name := filepath.Base(s.argv[0])
	i.log.Info("installing dependencies", "step", strings.Join(s.argv, " "))
	argv := s.argv
	if nice := i.find("nice"); nice != "" { // it becomes the program: there is no further process
		argv = slices.Concat([]string{nice, "-n", "10"}, argv)
	}
	var out bytes.Buffer
	var said printed.Lines
	said.Each = func(line string) {
		i.log.Debug("installer", "line", line)
		i.say(line)
	}
	spec := launch.Spec{
		Path: argv[0], Argv: argv, Dir: s.dir, Whole: true, Input: append([]byte{}, s.input...), Env: i.environ(),
	}
	launcher := i.store.opts.Launcher
	if i.scratch != "" {
		launcher = i.confine(&spec, s.argv[0])
	}
	p, err := launcher.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	exit := follow(ctx, p, i.log, func(b []byte) {
		if out.Len()+len(b) <= mostRead {
			out.Write(b)
		}
		said.Write(0, b)
	}, func(b []byte) { said.Write(1, b) })
	said.Flush()
	i.withdrawn = append(i.withdrawn, said.Withdrawn...)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case exit.Err != nil:
		return nil, exit.Err
	case exit.Code != 0:
		return nil, fmt.Errorf("%s failed (exit code %d): %s", name, exit.Code, cmp.Or(said.Last(), "it printed nothing"))
	}
	return out.Bytes(), nil
}

// lastWords bounds the reading of what a process has printed that is gone.
const lastWords = 2 * time.Second

// follow passes on the output of a process, and returns when nothing of its tree is left. It ends the process when
// ctx ends.
func follow(ctx context.Context, p launch.Process, log *slog.Logger, stdout, stderr func([]byte)) launch.Exit {
	_, out, errs := p.Streams()
	var readers sync.WaitGroup
	for stream, take := range map[*os.File]func([]byte){out: stdout, errs: stderr} {
		readers.Go(func() {
			defer recovered.To(log, "read what an installer prints", func(any) { p.Kill() })
			defer func() { _ = stream.Close() }() // it was only read
			buf := make([]byte, 16<<10)
			for {
				n, err := stream.Read(buf)
				take(buf[:n])
				if err != nil {
					return
				}
			}
		})
	}
	select {
	case <-p.Exited(): // the launcher ends what it leaves
	case <-ctx.Done():
		p.Stop()
	}
	<-p.Gone()
	last := time.Now().Add(lastWords)
	for _, stream := range []*os.File{out, errs} {
		_ = stream.SetReadDeadline(last) // a process that could not be ended may hold it
	}
	readers.Wait()
	if !launch.IsClosed(p.Exited()) {
		return launch.Exit{Code: -1}
	}
	return p.Exit()
}

// environ is the environment of the installers.
func (i *installer) environ() []string {
	own := []string{
		"PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_INPUT=1", "PIP_PROGRESS_BAR=off", "PYTHONUNBUFFERED=1",
		"UV_NO_PROGRESS=1", "UV_COMPILE_BYTECODE=1", "NO_COLOR=1", "CI=1",
		"ORLA_ENV=" + i.part,
	}
	list := slices.Clone(i.store.opts.Environ)
	if i.need.source.NoScripts {
		own = slices.DeleteFunc(own, func(kv string) bool { return kv == "UV_COMPILE_BYTECODE=1" }) // that runs the environment's Python
		list = careful(list)
		if filepath.Base(i.need.Lock) == "pnpm-lock.yaml" {
			list = append(list, carefulPNPM...)
		}
	}
	if home := variable(list, "HOME"); home == "" || !isFolder(home) { // of a service
		cache := filepath.Join(i.store.opts.Dir, cacheFolder)
		own = append(own, "HOME="+cache, "UV_CACHE_DIR="+filepath.Join(cache, "uv"), "PIP_CACHE_DIR="+filepath.Join(cache, "pip"), "npm_config_cache="+filepath.Join(cache, "npm"))
	}
	list = slices.DeleteFunc(list, func(kv string) bool { // they are about another environment
		name, _, _ := strings.Cut(kv, "=")
		return name == "VIRTUAL_ENV" || name == "PYTHONHOME" || name == "PYTHONPATH" || name == "CONDA_PREFIX" || name == "NODE_PATH" || name == "NODE_OPTIONS"
	})
	return append(list, own...)
}

// cacheFolder has the caches of the installers if the user has no home.
const cacheFolder = "cache"

func variable(environ []string, name string) (value string) {
	for _, kv := range environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}

// find finds a program in the PATH of the installers; "" if it is not there.
func (i *installer) find(program string) string {
	return findIn(i.store.opts.Environ, program)
}

func findIn(environ []string, program string) string {
	for _, dir := range filepath.SplitList(variable(environ, "PATH")) {
		at := filepath.Join(dir, program)
		if info, err := os.Stat(at); filepath.IsAbs(at) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return at
		}
	}
	return ""
}
