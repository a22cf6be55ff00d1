package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Targets of SPEC-TOOLS 7.
const (
	maxSandbox   = 8 * time.Millisecond // over a bare exec
	maxContainer = 1.1                  // against the same flags, direct
)

// measureIsolation compares what each place for a tool's processes costs.
func measureIsolation(ctx context.Context, b *bench) ([]table, error) {
	dir := filepath.Join(b.dir, "isolation")
	for _, mode := range [...]string{"none", "sandboxed", "container"} {
		if err := b.isolatedEcho(filepath.Join(dir, mode), mode); err != nil {
			return nil, err
		}
	}
	native, err := b.measureNative(ctx, dir)
	if err != nil {
		return nil, err
	}
	contained, err := b.measureContained(ctx, dir)
	if err != nil {
		return nil, err
	}
	modules, err := b.measureModules(ctx)
	if err != nil {
		return nil, err
	}
	fuel, err := b.measureFuel(ctx)
	if err != nil {
		return nil, err
	}
	return append(append([]table{native, contained}, modules...), fuel), nil
}

// isolatedEcho makes a package of the smallest program there can be.
func (b *bench) isolatedEcho(dir, mode string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	program, err := os.ReadFile(b.path("echo"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "echo"), program, 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("name: %s\nversion: 1.0.0\ndescription: Prints its input.\nentrypoint: echo\nruntime: {isolation_mode: %s}\n", mode, mode)
	return os.WriteFile(filepath.Join(dir, "tool.yaml"), []byte(text), 0o600)
}

// measureNative compares processes of this machine.
func (b *bench) measureNative(ctx context.Context, dir string) (table, error) {
	t := table{
		title:  "A process of this machine in each place, against a bare fork and exec (SPEC-TOOLS 7)",
		header: []string{"place", "p50", "over bare", "p50 ratio", "CPU", "target", "verdict"},
		note: "A call of the smallest program there can be, one at a time, through Orla's MCP endpoint where it is Orla's. bubblewrap directly has the namespaces and the mounts, but no cgroup, " +
			"no filter of system calls and no uid of its own. CPU is that of the starting process and of all that it reaps.",
	}
	fronts := map[string]*front{}
	defer func() {
		for _, f := range fronts {
			f.close()
		}
	}()
	for _, mode := range [...]string{"none", "sandboxed"} { // an Orla each, whose CPU is of this mode alone
		s, err := b.startOrla(ctx, dir)
		if err != nil {
			return t, err
		}
		if fronts[mode], err = openHTTP(ctx, s, withSession, 1); err != nil {
			delete(fronts, mode)
			s.stop()
			return t, err
		}
	}
	bare := b.bare(program{name: "echo"}) //nolint:contextcheck // a bare call has none, as it says there
	rows := []*place{
		{what: "bare fork and exec", subject: bare},
		{what: "Orla, isolation none", subject: fronts["none"].subject("none")},
		{what: "Orla, native sandbox", subject: fronts["sandboxed"].subject("sandboxed"), most: maxSandbox},
		{what: "bubblewrap directly", subject: b.bubblewrap(ctx)},
	}
	return t, b.comparePlaces(ctx, &t, rows)
}

// place is one row of a table: somewhere that a process can live.
type place struct {
	what    string
	subject subject
	most    time.Duration // over the baseline; 0 for no such target
	times   float64       // the baseline; 0 for no such target
}

// comparePlaces measures what can be measured here, and says of the rest why not.
func (b *bench) comparePlaces(ctx context.Context, t *table, rows []*place) error {
	var subjects []subject
	missing := map[*place]error{}
	for _, row := range rows {
		if _, err := row.subject.load(1, 1); err != nil {
			missing[row] = err
			continue
		}
		subjects = append(subjects, row.subject)
	}
	if missing[rows[0]] != nil { // there is nothing to compare with
		subjects = nil
	}
	var results []result
	if subjects != nil {
		var err error
		if results, err = compare(ctx, b.scale.isolationCell, 2, 1, subjects); err != nil {
			return err
		}
	}
	next := 0
	for _, row := range rows {
		if err := cmp.Or(missing[row], missing[rows[0]]); err != nil {
			t.add(row.what, "-", "-", "-", "-", "-", "not measured: "+oneLine(err))
			continue
		}
		base := results[0]
		r := results[next]
		next++
		target, met := "-", "-"
		over := r.p50 - base.p50
		switch {
		case row.most > 0:
			target, met = "≤ bare + "+millis(row.most), verdict(check{"p50", float64(over), float64(row.most)})
		case row.times > 0:
			target, met = "≤ "+times(row.times), verdict(check{"p50", r.ratio, row.times})
		}
		t.add(row.what, millis(r.p50), millis(over), times(r.ratio), millis(r.cpu.total()), target, met)
	}
	return nil
}

// oneLine is as much of an error as a cell has room for: of a call what its
// answer says, and else the end, where the cause stands.
func oneLine(err error) string {
	const most = 160
	text := err.Error()
	if _, said, ok := strings.Cut(text, `"text":"`); ok {
		text, _, _ = strings.Cut(said, `"`)
	}
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "|", "/")), " ")
	if runes := []rune(text); len(runes) > most {
		return "…" + string(runes[len(runes)-most+1:])
	}
	return text
}

// subject is a front as the caller of one tool.
func (f *front) subject(tool string) subject {
	return subject{
		name: tool,
		load: func(n, inFlight int) ([]time.Duration, error) { return f.load(tool, n, inFlight) },
		cpu:  func() (cpu, error) { return cpuOf(f.server.pid()) },
	}
}

// bubblewrap is the program in a sandbox as people make it themselves.
func (b *bench) bubblewrap(ctx context.Context) subject {
	return b.byHand(ctx, "bwrap", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
		"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", b.path("echo"), b.path("echo"),
		"--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--", b.path("echo"))
}

// byHand is a command that echoes its input, run by os/exec.
func (b *bench) byHand(ctx context.Context, name string, args ...string) subject {
	run := func(int) error {
		cmd := exec.CommandContext(ctx, name, append(args, argumentFlags()...)...)
		cmd.Stdin = strings.NewReader(argument)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%w %s", err, &stderr)
		}
		if stdout.String() != argument {
			return fmt.Errorf("%s printed %q and %q", name, &stdout, &stderr)
		}
		return nil
	}
	return subject{
		name: name, shared: true, cpu: ownCPU,
		load: func(n, inFlight int) ([]time.Duration, error) { return lanes(n, inFlight, run) },
	}
}
