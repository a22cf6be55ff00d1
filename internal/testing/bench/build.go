package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// bench is what all sections share. All that it makes is below dir.
type bench struct {
	dir      string // temporary; removed by close
	root     string // of the module
	orla     string
	hello    string // a bare HTTP server
	capsule  string // answers calls with texts
	relay    string // stands between a client and a capsule
	sdk      string // a server with its tool inside
	flood    string // a client that takes what it can get
	services string // answers calls of every type of tool
	toolsDir string // holds the programs, as tools
	programs []program
	scale    scale
	plots    *plots
	compared
}

// compared is what calls are compared with, and what came of it.
type compared struct {
	before string   // an older orla; "" is none
	same   bool     // audit and rules compare a server with one that is the same
	most   float64  // how much of its CPU a call may take; 0 is any
	slower []string // calls that take more
}

// program is a tool that is measured.
type program struct {
	name string // the tool's name, and its file's
	what string
}

// prepare builds Orla and the programs. The caller closes what it returns.
func prepare(ctx context.Context, scale scale) (*bench, error) {
	dir, err := os.MkdirTemp("", "orla-bench-")
	if err != nil {
		return nil, err
	}
	b := &bench{dir: dir, toolsDir: filepath.Join(dir, "tools"), scale: scale, plots: newPlots()}
	if err := b.build(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) close() { _ = os.RemoveAll(b.dir) } // a temporary folder is all that can be left

func (b *bench) build(ctx context.Context) error {
	if err := os.MkdirAll(b.toolsDir, 0o755); err != nil {
		return err
	}
	root, err := output(ctx, "go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return err
	}
	b.root = root
	b.orla = filepath.Join(b.dir, "orla")
	if err := goBuild(ctx, root, b.orla, "./cmd/orla"); err != nil {
		return err
	}
	bin := filepath.Join(b.dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	var packages []string
	for name, path := range map[string]*string{"hello": &b.hello, "capsule": &b.capsule, "relay": &b.relay, "sdk": &b.sdk, "flood": &b.flood, "services": &b.services} {
		*path = filepath.Join(bin, name)
		packages = append(packages, "./internal/testing/bench/testdata/"+name)
	}
	if err := goBuild(ctx, root, bin, packages...); err != nil { // into that folder
		return err
	}
	if err := b.buildEcho(ctx, root); err != nil {
		return err
	}
	if err := b.script("shell", "/bin/sh script", "#!/bin/sh\ncat\n"); err != nil {
		return err
	}
	if b.scale.quick {
		return nil
	}
	python, err := realPython(ctx)
	if err != nil {
		return nil //nolint:nilerr // no Python, no measurement of it
	}
	return b.script("python", "python3 script",
		"#!"+python+"\nimport sys\nsys.stdout.write(sys.stdin.read())\n")
}

// realPython is the interpreter itself: what stands first in PATH may be a
// script that looks for it.
func realPython(ctx context.Context) (string, error) {
	return output(ctx, "python3", "-c", "import sys; print(sys.executable)")
}

func (b *bench) script(name, what, text string) error {
	b.programs = append(b.programs, program{name, what})
	return os.WriteFile(b.path(name), []byte(text), 0o755)
}

// path is where a program stands.
func (b *bench) path(name string) string { return filepath.Join(b.toolsDir, name) }

// buildEcho builds the smallest tool there can be: in C where that is possible.
func (b *bench) buildEcho(ctx context.Context, root string) error {
	source := filepath.Join(root, "internal/testing/bench/testdata/echo.c")
	if _, err := output(ctx, "cc", "-O2", "-static", "-o", b.path("echo"), source); err == nil {
		b.programs = append(b.programs, program{"echo", "static C program"})
		return nil
	}
	b.programs = append(b.programs, program{"echo", "static Go program"})
	return goBuild(ctx, root, b.path("echo"), "./internal/testing/bench/testdata/echo")
}

// goBuild builds commands as a release is built.
func goBuild(ctx context.Context, root, to string, packages ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", to}, packages...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", strings.Join(packages, " "), err, text)
	}
	return nil
}

// output runs a command and returns what it prints, trimmed.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// manyTools makes a folder of n small scripts that describe themselves.
func (b *bench) manyTools(n int) (string, error) {
	dir := filepath.Join(b.dir, fmt.Sprintf("tools-%d", n))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for i := range n {
		text := fmt.Sprintf(describedTool, i)
		if err := os.WriteFile(filepath.Join(dir, toolName(i)), []byte(text), 0o755); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// describedTool is about as large a description as tools have.
const describedTool = `#!/bin/sh
# /// tool
# description: Reads its arguments and prints them again, as number %d of many that do the same.
# mcp:
#   input_schema:
#     type: object
#     properties:
#       text: {type: string, description: What to print.}
#       count: {type: integer, description: How often to print it.}
# ///
cat
`

// toolName is the name of the ith of many tools.
func toolName(i int) string { return fmt.Sprintf("tool_%05d", i) }

// conditions says what a reader has to know of the machine.
func (b *bench) conditions() string {
	return fmt.Sprintf("Measured on %s/%s with %d cores and %s. Times are those of one run; the ratios are what carries over.",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
}
