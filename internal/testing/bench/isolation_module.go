package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/orla-project/orla/internal/wasm"
	"github.com/orla-project/orla/internal/wasm/wasmfuel"
)

// maxFuel is the target of a numeric loop that counts its fuel (SPEC-TOOLS 3.7).
const maxFuel = 1.3

// measureModules compares calls of a module with a process of the same source,
// and a first call with one of a module that was compiled before.
func (b *bench) measureModules(ctx context.Context) ([]table, error) {
	t := table{
		title:  "A WebAssembly module, against a fork and exec of the same program (SPEC-TOOLS 3.7)",
		header: []string{"place", "p50", "over bare", "p50 ratio", "CPU", "target", "verdict"},
		note:   "The program is the echo of the contract in Go, which brings 3 MiB of its own runtime. All in one process, without Orla's endpoint.",
	}
	echo, module, err := b.buildModule(ctx)
	if err != nil {
		t.add("module", "-", "-", "-", "-", "-", "not measured: "+oneLine(err))
		return []table{t}, nil
	}
	log := slog.New(slog.DiscardHandler)
	warm := wasm.NewRuntime(wasm.Options{Log: log})
	defer warm.Close()
	anew := func(folder string) subject {
		return inTurn(func() error {
			r := wasm.NewRuntime(wasm.Options{CacheDir: folder, Log: log})
			defer r.Close()
			return runModule(ctx, r, module)
		})
	}
	rows := []*place{
		{what: "bare fork and exec", subject: inTurn(func() error {
			cmd := exec.CommandContext(ctx, echo)
			cmd.Stdin = strings.NewReader(moduleInput)
			out, err := cmd.Output()
			if err != nil {
				return err
			}
			return checkModule(out)
		})},
		{what: "module, warm", subject: inTurn(func() error { return runModule(ctx, warm, module) })},
	}
	if err := b.comparePlaces(ctx, &t, rows); err != nil || b.scale.quick { // a compilation takes a second
		return []table{t}, err
	}
	first := table{
		title:  "A module's first call, which compiles it",
		header: []string{"place", "p50", "over none", "p50 ratio", "CPU", "target", "verdict"},
		note:   "Kept on disk is what Orla does: it compiled the module in an earlier life.",
	}
	rows = []*place{
		{what: "no copy", subject: anew("")},
		{what: "kept on disk", subject: anew(filepath.Join(b.dir, "modules"))},
	}
	return []table{t, first}, b.comparePlaces(ctx, &first, rows)
}

// moduleInput is a request of the contract.
const moduleInput = `{"contract_version":"v1","tool":"echo","input":"{\"text\":\"hello\"}"}`

func checkModule(answer []byte) error {
	if !bytes.Contains(answer, []byte("hello")) {
		return fmt.Errorf("not the answer of the module: %.200s", answer)
	}
	return nil
}

func runModule(ctx context.Context, r *wasm.Runtime, module []byte) error {
	m, err := r.Compile(ctx, module, wasm.Limits{MaxMemory: 64 << 20, Fuel: 10_000_000, WASI: true, Entrypoint: "run"})
	if err != nil {
		return err
	}
	out, err := m.Run(ctx, []byte(moduleInput), 1<<20)
	if err != nil {
		return err
	}
	return checkModule(out.Stdout)
}

// inTurn is work of this process.
func inTurn(work func() error) subject {
	return subject{
		shared: true, cpu: ownCPU,
		load: func(n, inFlight int) ([]time.Duration, error) {
			return lanes(n, inFlight, func(int) error { return work() })
		},
	}
}

// buildModule builds the echo of the contract, as a program and as a module.
func (b *bench) buildModule(ctx context.Context) (program string, module []byte, err error) {
	root, err := output(ctx, "go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return "", nil, err
	}
	const source = "./internal/wasm/testdata/echo"
	program = filepath.Join(b.dir, "bin", "contract")
	if err := goBuild(ctx, root, program, source); err != nil {
		return "", nil, err
	}
	path := filepath.Join(b.dir, "echo.wasm")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, source)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("build a module: %w %s", err, text)
	}
	module, err = os.ReadFile(path)
	return program, module, err
}

// loop is a module that exports f: a hash of so many rounds, which does nothing
// but count. lead shifts where the compiler puts it, on which the speed of so
// small a loop hangs.
func loop(lead int) []byte {
	section := func(id byte, body ...byte) []byte { return append([]byte{id, byte(len(body))}, body...) }
	code := bytes.Repeat([]byte{0x41, 0, 0x1a}, lead) // i32.const 0, drop
	code = append(code, 0x41, 1, 0x21, 1, 0x03, 0x40,
		0x20, 1, 0x41, 0x8d, 0xcc, 0xe5, 0x00, 0x6c, 0x41, 0xdf, 0xe6, 0xbb, 0xe3, 0x03, 0x6a, 0x22, 1, // x = x*1664525 + 1013904223
		0x41, 16, 0x76, 0x20, 2, 0x73, 0x21, 2, // h ^= x>>16
		0x20, 0, 0x41, 1, 0x6b, 0x22, 0, 0x0d, 0, 0x0b, 0x20, 2, 0x0b)
	body := append([]byte{1, 2, 0x7f}, code...) // two locals of i32
	module := []byte("\x00asm\x01\x00\x00\x00")
	for _, s := range [][]byte{
		section(1, 1, 0x60, 1, 0x7f, 1, 0x7f), section(3, 1, 0), section(7, 1, 1, 'f', 0, 0),
		section(10, append([]byte{1, byte(len(body))}, body...)...),
	} {
		module = append(module, s...)
	}
	return module
}

// loopRounds take some milliseconds.
const loopRounds = 2_000_000

// measureFuel compares a numeric loop with the same one that counts its fuel.
func (b *bench) measureFuel(ctx context.Context) (table, error) {
	t := table{
		title:  "What counting fuel costs a numeric loop (SPEC-TOOLS 3.7)",
		header: []string{"loop", "p50", "over plain", "p50 ratio", "CPU", "target", "verdict"},
		note:   "Seventeen instructions a round, two million rounds, at eight places in memory each, since the speed of so small a loop hangs on its place.",
	}
	r := wazero.NewRuntime(ctx)
	defer func() { _ = r.Close(ctx) }() // all of it is in memory
	yield := r.NewHostModuleBuilder(wasmfuel.Host)
	yield.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(context.Context, []uint64) {}), nil, nil).Export(wasmfuel.Yield)
	if _, err := yield.Instantiate(ctx); err != nil {
		return t, err
	}
	var plain, metered []api.Function
	for lead := range 8 {
		module := loop(lead)
		counting, _, err := wasmfuel.Instrument(module, wasmfuel.Options{})
		if err != nil {
			return t, err
		}
		for i, code := range [][]byte{module, counting} {
			m, err := r.InstantiateWithConfig(ctx, code, wazero.NewModuleConfig().WithName("").WithStartFunctions())
			if err != nil {
				return t, err
			}
			if i == 0 {
				plain = append(plain, m.ExportedFunction("f"))
				continue
			}
			fuel, ok := m.ExportedGlobal(wasmfuel.Fuel).(api.MutableGlobal)
			if !ok {
				return t, fmt.Errorf("a metered module has no fuel")
			}
			fuel.Set(wasmfuel.Steps(wasmfuel.MaxFuel))
			metered = append(metered, m.ExportedFunction("f"))
		}
	}
	run := func(all []api.Function) subject {
		return inTurn(func() error {
			for _, f := range all {
				if _, err := f.Call(ctx, loopRounds); err != nil {
					return err
				}
			}
			return nil
		})
	}
	rows := []*place{{what: "plain", subject: run(plain)}, {what: "counting", subject: run(metered), times: maxFuel}}
	return t, b.comparePlaces(ctx, &t, rows)
}
