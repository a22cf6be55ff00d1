package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
)

const (
	// probePatience bounds the start of one container that reports its restrictions.
	probePatience = time.Minute
	// lookBytes bounds the output of such a container: a little for each file of probed, and 64 KiB for
	// two of them if it has this machine's network and many devices.
	lookBytes = 256 << 10
	// looseBytes bounds the message about a container whose restrictions are not in effect.
	looseBytes = 1000
)

// verdict is what a container with a plan's flags was found to have.
type verdict struct {
	applied cgroup.Limits
	command string // why the command cannot be run; "": it can, or nobody knows
}

// verified returns the limits that are enforced for a process of the plan. It starts a container
// with the same flags to find out, and keeps the answer for each tool for some time.
func (e *Engine) verified(ctx context.Context, p plan) (cgroup.Limits, error) {
	if err := p.made.limits(p.opts.Limits); err != nil {
		return cgroup.Limits{}, err
	}
	v, err := e.verdicts.get(ctx, e, p.key(), probePatience, func(ctx context.Context) (verdict, error) { return e.probe(ctx, p) })
	switch {
	case err != nil:
		return cgroup.Limits{}, err
	case v.command != "":
		return cgroup.Limits{}, fault.New(fault.UnsupportedTool, "%s cannot be run in image %s: %s", p.spec.Path, p.opts.Image, v.command)
	}
	return v.applied, nil
}

// key is the key of a plan's verdict in the cache.
func (p plan) key() string {
	o := p.opts
	return fmt.Sprintf("%q", append([]string{
		p.made.path, p.image.id, o.Image, strings.Join(searchPath(p.spec.Env), ""), o.User, o.Network, o.Runtime, fmt.Sprint(o.Limits, o.Sandboxed), p.spec.Path, p.spec.Dir,
	}, p.spec.Expose...))
}

// probe finds out the verdict of a plan.
func (e *Engine) probe(ctx context.Context, p plan) (verdict, error) {
	if err := e.canLook(p.made); err != nil {
		return verdict{}, err
	}
	own := !e.elsewhere(p.made)
	answer, err := e.look(ctx, p, own)
	if len(answer) == 0 && own && !p.trial && refusedByEngine(err) && !e.hasProber(ctx, p) {
		own = false
		answer, _ = e.look(ctx, p, own) // the error of the first attempt is reported
	}
	if len(answer) == 0 {
		return verdict{}, e.untold(ctx, p, own, err)
	}
	parts := parseProbe(answer)
	if _, told := parts[commandPart]; !told && !own {
		parts[commandPart] = e.unrunnable(ctx, p)
	}
	return judge(p, parts)
}

// canLook reports why Orla cannot check a container.
func (e *Engine) canLook(m *made) error {
	if e.elsewhere(m) || e.isStatic() {
		return nil
	}
	return fault.New(fault.IsolationUnavailable, "this Orla is not a static program, so it cannot look into a container of %s; build it with CGO_ENABLED=0", m)
}

// refusedByEngine reports whether a check failed because the engine refused to start the container.
func refusedByEngine(err error) bool {
	_, refused := errors.AsType[*errCommand](err)
	return refused
}

// hasProber reports whether the engine can run Orla's own program, by a container of an image that
// Orla made. If it can, then the program did not answer because of the tool's image or limits, and
// the image's own programs must not be trusted instead. If that cannot be found out, hasProber
// reports true.
func (e *Engine) hasProber(ctx context.Context, p plan) bool {
	image, err := e.ownImage(ctx, p.made)
	if err != nil {
		return true
	}
	defer e.discard(ctx, p.made, image)
	bare := plan{made: p.made, opts: Options{
		Engine: e, Tool: p.opts.Tool, Image: image, User: p.opts.User, Network: noNetwork, Runtime: p.opts.Runtime,
	}}
	answer, err := e.look(ctx, bare, true)
	return len(answer) > 0 || !refusedByEngine(err)
}

// untold returns the error if nothing could be found out about a container.
func (e *Engine) untold(ctx context.Context, p plan, own bool, err error) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	said := "it prints nothing"
	if err != nil {
		said = saidBy(err)
	}
	if refusedByEngine(err) && p.spec.Dir != "" { // is the folder wrong, or does the engine refuse everything?
		elsewhere := p
		elsewhere.spec.Dir = "/"
		if answer, _ := e.look(ctx, elsewhere, own); len(answer) > 0 { // the error of the first attempt is reported
			return fault.New(fault.RuntimePolicyInvalid, "%s cannot run anything in image %s, in the folder %s: %s", p.made, p.opts.Image, p.workdir(), said)
		}
	}
	return fault.New(fault.IsolationUnavailable, "%s cannot find out whether a container of image %s is isolated: %s", p.made, p.opts.Image, said)
}

// askShell is a shell script that prints why its first argument cannot be run, as unrunnable does.
const askShell = `command -v -- "$0" >/dev/null || case $0 in
*/*) echo "there is no such file, or it cannot be executed by the user that it would run as" ;;
*) echo "it is not in PATH, which is $PATH" ;;
esac`

// unrunnable uses a shell of the image to find out why the command cannot be run there: an init
// process does not show that by its exit code. It returns "" if the command can be run, or if the
// image has no shell.
func (e *Engine) unrunnable(ctx context.Context, p plan) string {
	if p.spec.Path == "" {
		return ""
	}
	said, _ := e.lookBy(ctx, p, nil, "sh", "-c", askShell, p.spec.Path) // without a shell the reason is unknown
	return strings.TrimSpace(string(said))
}

// look starts one container with the plan's flags, and returns its report. The report is made by
// Orla's own program, which needs nothing from the image, or else by a program of the image, which
// is trusted only if the engine does not have this machine's files.
func (e *Engine) look(ctx context.Context, p plan, own bool) ([]byte, error) {
	if !own {
		return e.lookBy(ctx, p, nil, append([]string{"head", "-n", "1000"}, probed[:]...)...)
	}
	at := "/." + e.newName() // a path that no image has
	flag, err := mount(e.opts.Prober[0], at)
	if err != nil {
		return nil, fault.Wrap(fault.IsolationUnavailable, err, "Orla's own program cannot be in a container: %s", fault.From(err).Reason)
	}
	argv := append([]string{at}, e.opts.Prober[1:]...)
	if p.spec.Path != "" {
		argv = append(argv, p.spec.Path)
	}
	return e.lookBy(ctx, p, []string{flag}, argv...)
}

// lookBy runs a command in one container with the plan's flags and more flags, and returns its
// stdout.
func (e *Engine) lookBy(ctx context.Context, p plan, flags []string, argv ...string) ([]byte, error) {
	environ := searchPath(p.spec.Env)
	for _, name := range p.proxies() {
		environ = append(environ, "--env="+name+"=")
	}
	p.name = e.newName()
	p.more = flags
	p.spec = launch.Spec{Path: argv[0], Argv: argv, Expose: p.spec.Expose, Dir: p.spec.Dir}
	args, err := p.arguments(environ)
	if err != nil {
		return nil, err
	}
	defer e.dispose(ctx, p.made, p.name)
	return e.run(ctx, order{most: lookBytes}, args...)
}

// searchPath returns the flags for the PATH of a process that sets it.
func searchPath(environ []string) []string {
	for _, kv := range slices.Backward(environ) {
		if strings.HasPrefix(kv, "PATH=") {
			return []string{"--env=" + kv}
		}
	}
	return nil
}

// dispose removes a container, however it ended.
func (e *Engine) dispose(ctx context.Context, m *made, name string) {
	ctx, cancel := e.lasting(ctx)
	defer cancel()
	if err := e.remove(ctx, m, name, 2); err != nil {
		e.opts.Log.Warn("remove a container", "container", name, "err", err)
	}
}

// elsewhere reports whether the engine is known not to have this machine's programs.
func (e *Engine) elsewhere(m *made) bool { return runtime.GOOS != "linux" || m.remote }

// isStatic reports whether there is a prober that needs nothing from an image.
func (e *Engine) isStatic() bool {
	if len(e.opts.Prober) == 0 {
		return false
	}
	f, err := os.Open(e.opts.Prober[0])
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // only read
	linker, err := launch.LinkerOf(f)
	return err == nil && linker == ""
}

// parseProbe splits the output of Probe or head into the parts, by their names.
func parseProbe(text []byte) map[string]string {
	read := map[string]*strings.Builder{}
	part := &strings.Builder{} // collects what comes before the first name
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "==> "); ok {
			if name, ok := strings.CutSuffix(strings.TrimRight(rest, "\n"), " <=="); ok {
				if part = read[name]; part == nil {
					part = &strings.Builder{}
					read[name] = part
				}
				continue
			}
		}
		part.WriteString(line)
	}
	parts := map[string]string{}
	for name, part := range read {
		parts[name] = strings.TrimSpace(part.String())
	}
	return parts
}

// judge returns what the container has, and refuses if that is less than the plan requires.
func judge(p plan, parts map[string]string) (verdict, error) {
	v := verdict{applied: limitsIn(parts), command: printable(parts[commandPart], lastLineBytes)}
	var loose []string
	miss := func(missing bool, format string, args ...any) {
		if missing {
			loose = append(loose, fmt.Sprintf(format, args...))
		}
	}
	status := fieldsOf(parts["/proc/self/status"])
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		miss(strings.Trim(status[set], "0") != "" || status[set] == "", "its capabilities are not dropped (%s %s)", set, status[set])
	}
	miss(status["NoNewPrivs"] != "1", "it may gain privileges")
	uid, gid, _ := strings.Cut(p.opts.User, ":")
	miss(!all(status["Uid"], uid) || !all(status["Gid"], gid), "it runs as %s:%s, not as %s", status["Uid"], status["Gid"], p.opts.User)
	if p.opts.Network == noNetwork {
		devices := devicesIn(parts["/proc/net/dev"])
		miss(!slices.Equal(devices, []string{"lo"}), "it has a network (%s)", strings.Join(devices, ", "))
	}
	miss(p.opts.Sandboxed && status["Seccomp"] != "2", "no system call is filtered (seccomp)")
	miss(p.opts.Sandboxed && !rootReadOnly(parts["/proc/self/mountinfo"]), "its files can be written to")
	asked, applied := p.opts.Limits, v.applied
	miss(asked.Memory > 0 && (applied.Memory <= 0 || applied.Memory > asked.Memory), "its memory is not limited to %d bytes, swap included", asked.Memory)
	const rounding = 0.011 // of a quota, as engines round it
	miss(asked.CPUs > 0 && (applied.CPUs <= 0 || applied.CPUs > asked.CPUs+rounding), "its processors are not limited to %v", asked.CPUs)
	miss(asked.Pids > 0 && (applied.Pids <= 0 || applied.Pids > asked.Pids), "its processes are not limited to %d", asked.Pids)
	if len(loose) > 0 {
		return verdict{}, fault.New(fault.IsolationUnavailable, "%s does not isolate as it is told: in its containers %s; use another engine or OCI runtime (tool_container_engine, tool_container_runtime), or fix its configuration", p.made, printable(strings.Join(loose, "; "), looseBytes))
	}
	return v, nil
}

// fieldsOf parses lines of the form "name: value".
func fieldsOf(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = strings.TrimSpace(value)
		}
	}
	return fields
}

// all reports whether text consists of id four times: the real, effective, saved and file system id.
func all(text, id string) bool {
	ids := strings.Fields(text)
	return len(ids) == 4 && !slices.ContainsFunc(ids, func(one string) bool { return one != id })
}

// devicesIn lists the network devices in the text of /proc/net/dev.
func devicesIn(text string) []string {
	var devices []string
	for line := range strings.Lines(text) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			devices = append(devices, strings.TrimSpace(name))
		}
	}
	return devices
}

// rootReadOnly reports whether the last mount at / is read-only.
func rootReadOnly(mountinfo string) bool {
	readOnly := false
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) > 5 && fields[4] == "/" {
			readOnly = slices.Contains(strings.Split(fields[5], ","), "ro")
		}
	}
	return readOnly
}

// limitsIn reads the limits from the kernel's files.
func limitsIn(parts map[string]string) cgroup.Limits {
	const files = "/sys/fs/cgroup/"
	number := func(path string) int64 {
		n, err := strconv.ParseInt(parts[path], 10, 64)
		if err != nil {
			return -1 // "max", or not there
		}
		return n
	}
	noSwap := fieldsOf(parts["/proc/meminfo"])["SwapTotal"] == "0 kB"
	var l cgroup.Limits
	if _, unified := parts[files+"memory.max"]; unified {
		swap := number(files + "memory.swap.max")
		if noSwap {
			swap = 0
		}
		if swap >= 0 {
			l.Memory = max(0, number(files+"memory.max")+swap)
		}
	} else {
		limit, withSwap := number(files+"memory/memory.limit_in_bytes"), number(files+"memory/memory.memsw.limit_in_bytes")
		switch {
		case withSwap > 0:
			l.Memory = withSwap // it limits memory and swap together
		case noSwap:
			l.Memory = max(0, limit)
		}
	}
	quota, period, ok := strings.Cut(parts[files+"cpu.max"], " ")
	if !ok {
		quota, period = parts[files+"cpu/cpu.cfs_quota_us"], parts[files+"cpu/cpu.cfs_period_us"]
	}
	q, qErr := strconv.ParseFloat(quota, 64)
	each, eachErr := strconv.ParseFloat(period, 64)
	if qErr == nil && eachErr == nil && q > 0 && each > 0 {
		l.CPUs = q / each
	}
	if _, unified := parts[files+"pids.max"]; unified {
		l.Pids = int(max(0, number(files+"pids.max")))
	} else {
		l.Pids = int(max(0, number(files+"pids/pids.max")))
	}
	return l
}
