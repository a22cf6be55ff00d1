package container

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
)

// plan is one container that is to be.
type plan struct {
	opts  Options
	made  *made
	image image
	spec  launch.Spec
	name  string
	more  []string // flags of a probe
	trial bool     // image is Orla's own, or one that stands for all
}

// tmp is the folder that a process may write to.
const tmp = "/tmp"

// arguments are the engine's whole command line, without a shell and with no
// secret in it. Each flag has its value behind an =, so that no value is taken
// for a flag.
func (p plan) arguments(variables []string) ([]string, error) {
	mounts, err := p.mounts()
	if err != nil {
		return nil, err
	}
	return slices.Concat(
		[]string{p.made.path, "run", "--interactive", "--init", "--name=" + p.name, "--pull=never"},
		p.opts.Engine.labels(p.opts.Tool),
		p.confined(),
		p.bounded(),
		p.peculiar(),
		mounts,
		[]string{"--workdir=" + p.workdir()},
		variables,
		p.more,
		[]string{p.entrypoint(), p.opts.Image},
		p.spec.Argv[min(1, len(p.spec.Argv)):],
	), nil
}

// confined are the flags for what a process may do (SPEC-TOOLS 7.2).
func (p plan) confined() []string {
	flags := []string{
		"--network=" + p.opts.Network,
		"--user=" + p.opts.User,
		"--cap-drop=ALL",
		"--security-opt=no-new-privileges",
		"--ipc=private",
		"--tmpfs=" + tmp + ":rw,noexec,nosuid,nodev,size=16m,mode=1777",
		"--log-driver=none", // what a tool prints is its callers' alone
		"--no-healthcheck",  // a command of the image's that nobody asked for
	}
	if p.opts.Sandboxed {
		flags = append(flags, "--read-only")
	}
	if p.made.seccomp != "" {
		flags = append(flags, "--security-opt=seccomp="+p.made.seccomp)
	}
	if p.opts.Runtime != "" {
		flags = append(flags, "--runtime="+p.opts.Runtime)
	}
	// An image may declare volumes, which are folders of the disk, and written to
	// in a container that is read-only as well.
	for _, volume := range p.image.volumes {
		if volume != tmp {
			flags = append(flags, "--tmpfs="+volume+":rw,noexec,nosuid,nodev,size=16m")
		}
	}
	return flags
}

// bounded are the flags for what it may take. Memory and swap are one limit:
// with the first alone docker gives as much swap again.
func (p plan) bounded() []string {
	var flags []string
	l := p.opts.Limits
	if l.Memory > 0 {
		bytes := strconv.FormatInt(l.Memory, 10)
		flags = append(flags, "--memory="+bytes, "--memory-swap="+bytes)
	}
	if cpus := l.CPUs; cpus > 0 {
		if most := float64(p.made.processors); most > 0 {
			cpus = min(cpus, most) // docker refuses more than there are
		}
		flags = append(flags, "--cpus="+strconv.FormatFloat(cpus, 'f', -1, 64))
	}
	if l.Pids > 0 {
		flags = append(flags, "--pids-limit="+strconv.Itoa(l.Pids))
	}
	return flags
}

// peculiar are flags that only podman has. Most undo what its configuration, or
// its defaults, would let in.
func (p plan) peculiar() []string {
	if !p.made.podman {
		return nil
	}
	return []string{
		"--http-proxy=false", // else the container has Orla's proxies, passwords included
		"--env-host=false",
		"--systemd=false",
		"--pid=private", "--uts=private",
		"--read-only-tmpfs=false", // else /run and /var/tmp can be written to
	}
}

// workdir is where a process begins.
func (p plan) workdir() string { return cmp.Or(p.spec.Dir, tmp) }

// entrypoint is the flag for the command, in place of the image's. Podman takes
// what looks like JSON for JSON; docker does not.
func (p plan) entrypoint() string {
	if !p.made.podman {
		return "--entrypoint=" + p.spec.Path
	}
	list, err := json.Marshal([]string{p.spec.Path})
	if err != nil {
		panic(err) // a string can be encoded
	}
	return "--entrypoint=" + string(list)
}

// mounts are the flags for what of this machine's files a process reads.
func (p plan) mounts() ([]string, error) {
	var flags []string
	for _, path := range p.spec.Expose {
		flag, err := mount(path, path)
		if err != nil {
			return nil, err
		}
		flags = append(flags, flag)
	}
	return flags, nil
}

// mount is the flag for a read-only file or folder. --mount is a line of CSV to
// some engines and split at its commas by others; --volume is split at colons.
func mount(from, to string) (string, error) {
	odd := func(chars string) bool { return strings.ContainsAny(from+to, chars) }
	switch {
	case !filepath.IsAbs(from), odd("\n\r\x00"), odd(`,"`) && odd(":"):
		return "", fault.New(fault.RuntimePolicyInvalid, "%q cannot be shown to a container: no engine takes such a path; rename it", from)
	case odd(`,"`):
		return "--volume=" + from + ":" + to + ":ro", nil
	}
	return "--mount=type=bind,src=" + from + ",dst=" + to + ",readonly", nil
}
