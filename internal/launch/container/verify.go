package container

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/cgroup"
	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/internal/launch"
)

// probePatience bounds a look into a container.
const probePatience = time.Minute

// verdict is what a container with a plan's flags has.
type verdict struct {
	held    cgroup.Limits
	command string // why the command cannot be run; "": it can, or nobody knows
}

// verified returns the limits that hold for a process of the plan. It is found
// out by a container that has the same flags, once in a while for each tool.
func (e *Engine) verified(ctx context.Context, p plan) (cgroup.Limits, error) {
	if err := p.made.limits(p.opts.Limits); err != nil {
		return cgroup.Limits{}, err
	}
	o := p.opts
	v, err := e.verdicts.get(ctx, e, p.key(), probePatience, func(ctx context.Context) (verdict, error) { return e.probe(ctx, p) })
	switch {
	case err != nil:
		return cgroup.Limits{}, err
	case v.command != "":
		return cgroup.Limits{}, fault.New(fault.UnsupportedTool, "%s cannot be run in image %s: %s", p.spec.Path, o.Image, v.command)
	}
	return v.held, nil
}

// key tells the verdicts of plans apart.
func (p plan) key() string {
	o := p.opts
	return fmt.Sprintf("%q", append([]string{
		p.made.path, p.image.id, o.Image, strings.Join(searchPath(p.spec.Env), ""), o.User, o.Network, o.Runtime, fmt.Sprint(o.Limits, o.Sandboxed), p.spec.Path, p.spec.Dir,
	}, p.spec.Expose...))
}

// probeAt is where the prober is in a container.
const probeAt = "/.orla-probe"

// probe looks into a container with the plan's flags.
func (e *Engine) probe(ctx context.Context, p plan) (verdict, error) {
	var first error
	for _, look := range e.looks(p) {
		answer, err := e.look(ctx, p, look)
		if len(answer) > 0 {
			parts := parseProbe(answer)
			if _, told := parts[commandPart]; !told {
				parts[commandPart] = e.unrunnable(ctx, p)
			}
			return judge(p, parts)
		}
		if f, ok := errors.AsType[*fault.Error](err); ok {
			return verdict{}, f
		}
		first = cmp.Or(first, err)
	}
	if first != nil && p.spec.Dir != "" { // is it the folder that is wrong, or the engine?
		elsewhere := p
		elsewhere.spec.Dir = "/"
		for _, look := range e.looks(elsewhere) {
			if answer, _ := e.look(ctx, elsewhere, look); len(answer) > 0 { // why the first one failed is told
				return verdict{}, fault.New(fault.RuntimePolicyInvalid, "%s cannot run anything in image %s, in the folder %s: %s", p.made, p.opts.Image, p.workdir(), saidBy(first))
			}
		}
	}
	said := "it prints nothing"
	if first != nil {
		said = saidBy(first)
	}
	return verdict{}, fault.New(fault.IsolationUnavailable, "%s cannot start a container of image %s that says whether it is isolated: %s", p.made, p.opts.Image, said)
}

// askShell says why its first argument cannot be run, as unrunnable does.
const askShell = `command -v -- "$0" >/dev/null || case $0 in
*/*) echo "there is no such file, or it cannot be executed by the user that it would run as" ;;
*) echo "it is not in PATH, which is $PATH" ;;
esac`

// unrunnable asks a shell of the image why the command cannot be run there, for an
// init process does not say so by its exit code. It returns "" if the command can be
// run, and if the image has no shell.
func (e *Engine) unrunnable(ctx context.Context, p plan) string {
	said, _ := e.look(ctx, p, look{argv: []string{"sh", "-c", askShell, p.spec.Path}}) // without a shell nobody knows
	return strings.TrimSpace(string(said))
}

// look starts one container with the plan's flags, and returns what the look says
// of it.
func (e *Engine) look(ctx context.Context, p plan, look look) ([]byte, error) {
	environ := searchPath(p.spec.Env)
	p.name = e.newName()
	p.more = look.flags
	p.spec = launch.Spec{Path: look.argv[0], Argv: look.argv, Expose: p.spec.Expose, Dir: p.spec.Dir}
	args, err := p.arguments(environ)
	if err != nil {
		return nil, err
	}
	defer e.dispose(ctx, p.made, p.name)
	return e.command(ctx, nil, args...)
}

// searchPath are the flags for the PATH of a process that has one of its own.
func searchPath(environ []string) []string {
	for _, kv := range slices.Backward(environ) {
		if strings.HasPrefix(kv, "PATH=") {
			return []string{"--env=" + kv}
		}
	}
	return nil
}

// dispose removes a container in any case, however it ended.
func (e *Engine) dispose(ctx context.Context, m *made, name string) {
	ctx, cancel := e.lasting(ctx)
	defer cancel()
	if err := e.remove(ctx, m, name, 2); err != nil {
		e.opts.Log.Warn("remove a container", "container", name, "err", err)
	}
}

// look is one way to read what a container is.
type look struct{ flags, argv []string }

// looks are those that may work, the best first: Orla itself needs nothing of
// the image, where its program is static and on the engine's machine.
func (e *Engine) looks(p plan) []look {
	var all []look
	if own := e.opts.Prober; e.probesAnywhere(p.made) {
		if flag, err := mount(own[0], probeAt); err == nil {
			all = append(all, look{[]string{flag}, slices.Concat([]string{probeAt}, own[1:], []string{p.spec.Path})})
		}
	}
	return append(all, look{nil, append([]string{"head", "-n", "1000"}, probed[:]...)})
}

// probesAnywhere reports whether the prober needs nothing of an image.
func (e *Engine) probesAnywhere(m *made) bool {
	own := e.opts.Prober
	return len(own) > 0 && runtime.GOOS == "linux" && !m.remote && isStatic(own[0])
}

func isStatic(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // only read
	linker, err := linkerOf(f)
	return err == nil && linker == ""
}

// parseProbe reads what Probe or head printed: the parts by their names.
func parseProbe(text []byte) map[string]string {
	parts := map[string]string{}
	name := ""
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "==> "); ok {
			if found, ok := strings.CutSuffix(strings.TrimRight(rest, "\n"), " <=="); ok {
				name = found
				continue
			}
		}
		parts[name] += line
	}
	for name, part := range parts {
		parts[name] = strings.TrimSpace(part)
	}
	return parts
}

// judge says what holds, and refuses if that is less than was asked for.
func judge(p plan, parts map[string]string) (verdict, error) {
	v := verdict{held: limitsIn(parts), command: parts[commandPart]}
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
	asked, held := p.opts.Limits, v.held
	miss(asked.Memory > 0 && (held.Memory <= 0 || held.Memory > asked.Memory), "its memory is not limited to %d bytes, swap included", asked.Memory)
	const rounding = 0.011 // of a quota, as engines round
	miss(asked.CPUs > 0 && (held.CPUs <= 0 || held.CPUs > asked.CPUs+rounding), "its processors are not limited to %v", asked.CPUs)
	miss(asked.Pids > 0 && (held.Pids <= 0 || held.Pids > asked.Pids), "its processes are not limited to %d", asked.Pids)
	if len(loose) > 0 {
		return verdict{}, fault.New(fault.IsolationUnavailable, "%s does not isolate as it is told: in its containers %s; use another engine or OCI runtime (tool_container_engine, tool_container_runtime), or mend its configuration", p.made, strings.Join(loose, "; "))
	}
	return v, nil
}

// fieldsOf reads lines of the form "name: value".
func fieldsOf(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = strings.TrimSpace(value)
		}
	}
	return fields
}

// all reports whether text is id, four times: the real one and the others.
func all(text, id string) bool {
	ids := strings.Fields(text)
	return len(ids) == 4 && !slices.ContainsFunc(ids, func(one string) bool { return one != id })
}

// devicesIn lists the network's, as /proc/net/dev has them.
func devicesIn(text string) []string {
	var devices []string
	for line := range strings.Lines(text) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			devices = append(devices, strings.TrimSpace(name))
		}
	}
	return devices
}

// rootReadOnly reports whether what is mounted last at / is read-only.
func rootReadOnly(mountinfo string) bool {
	readOnly := false
	lines := bufio.NewScanner(strings.NewReader(mountinfo))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 5 && fields[4] == "/" {
			readOnly = slices.Contains(strings.Split(fields[5], ","), "ro")
		}
	}
	return readOnly
}

// limitsIn reads the limits from where the kernel keeps them.
func limitsIn(parts map[string]string) cgroup.Limits {
	const v2, v1 = "/sys/fs/cgroup/", "/sys/fs/cgroup/"
	number := func(path string) int64 {
		n, err := strconv.ParseInt(parts[path], 10, 64)
		if err != nil {
			return -1 // "max", or not there
		}
		return n
	}
	noSwap := fieldsOf(parts["/proc/meminfo"])["SwapTotal"] == "0 kB"
	var l cgroup.Limits
	if _, unified := parts[v2+"memory.max"]; unified {
		swap := parts[v2+"memory.swap.max"]
		if swap == "0" || noSwap {
			l.Memory = max(0, number(v2+"memory.max"))
		} else if extra := number(v2 + "memory.swap.max"); extra >= 0 {
			l.Memory = max(0, number(v2+"memory.max")+extra)
		}
	} else {
		limit, withSwap := number(v1+"memory/memory.limit_in_bytes"), number(v1+"memory/memory.memsw.limit_in_bytes")
		switch {
		case withSwap > 0:
			l.Memory = withSwap // which bounds both
		case noSwap:
			l.Memory = max(0, limit)
		}
	}
	quota, period, ok := strings.Cut(parts[v2+"cpu.max"], " ")
	if !ok {
		quota, period = parts[v1+"cpu/cpu.cfs_quota_us"], parts[v1+"cpu/cpu.cfs_period_us"]
	}
	q, qErr := strconv.ParseFloat(quota, 64)
	each, eachErr := strconv.ParseFloat(period, 64)
	if qErr == nil && eachErr == nil && q > 0 && each > 0 {
		l.CPUs = q / each
	}
	if _, unified := parts[v2+"pids.max"]; unified {
		l.Pids = int(max(0, number(v2+"pids.max")))
	} else {
		l.Pids = int(max(0, number(v1+"pids/pids.max")))
	}
	return l
}
