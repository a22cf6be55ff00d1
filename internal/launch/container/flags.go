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

// plan is a container before its start.
type plan struct {
	opts  Options
	made  *made
	image image
	spec  launch.Spec
	name  string
	more  []string // flags of a probe
	trial bool     // image is one that Orla made, or any image, to try the engine with
}

// tmp is the folder that a process may write to.
const tmp = "/tmp"

// arguments returns the engine's whole command line. It needs no shell and contains no secret. Each
// flag and its value are joined by =, so that no value is read as a flag.
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

// tmpfs are the options of folders that anybody in the container may write to: an engine else gives one the mode of the image's
// folder, which may keep the user out. runc does so before version 1.2 in any case.
const tmpfs = ":rw,noexec,nosuid,nodev,size=16m,mode=1777"

// confined returns the flags that limit what a process may do (SPEC-TOOLS 7.2).
func (p plan) confined() []string {
	flags := []string{
		"--network=" + p.opts.Network,
		"--user=" + p.opts.User,
		"--cap-drop=ALL",
		"--security-opt=no-new-privileges",
		"--ipc=private",
		"--tmpfs=" + tmp + tmpfs,
		"--log-driver=" + p.made.logDriver(),
		"--no-healthcheck", // the image's health check is not needed
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
	// An image may declare volumes: folders on the disk that are writable even if the container is
	// read-only.
	for _, volume := range p.image.volumes {
		if volume != tmp {
			flags = append(flags, "--tmpfs="+volume+tmpfs)
		}
	}
	return flags
}

// bounded returns the flags that limit resources. Memory and swap have the same limit: with --memory
// alone, docker allows as much swap again.
func (p plan) bounded() []string {
	var flags []string
	l := p.opts.Limits
	if l.Memory > 0 {
		bytes := strconv.FormatInt(l.Memory, 10)
		flags = append(flags, "--memory="+bytes, "--memory-swap="+bytes)
	}
	if cpus := l.CPUs; cpus > 0 {
		if most := float64(p.made.processors); most > 0 {
			cpus = min(cpus, most) // docker refuses more than the machine has
		}
		flags = append(flags, "--cpus="+strconv.FormatFloat(cpus, 'f', -1, 64))
	}
	if l.Pids > 0 {
		flags = append(flags, "--pids-limit="+strconv.Itoa(l.Pids))
	}
	return flags
}

// peculiar returns the flags that only podman has. Most of them undo what its configuration or its
// defaults would allow.
func (p plan) peculiar() []string {
	if !p.made.podman {
		return nil
	}
	return []string{
		"--http-proxy=false", // else the container gets Orla's proxy variables, with their passwords
		"--env-host=false",
		"--systemd=false",
		"--pid=private", "--uts=private",
		"--read-only-tmpfs=false", // else /run and /var/tmp are writable
	}
}

// workdir is the working directory of the process.
func (p plan) workdir() string { return cmp.Or(p.spec.Dir, tmp) }

// entrypoint returns the flag for the command, which replaces the image's. Podman parses a value
// that looks like JSON; docker does not.
func (p plan) entrypoint() string {
	if !p.made.podman {
		return "--entrypoint=" + p.spec.Path
	}
	list, err := json.Marshal([]string{p.spec.Path})
	if err != nil {
		panic(err) // encoding a string cannot fail
	}
	return "--entrypoint=" + string(list)
}

// mounts returns the flags for the files of this machine that a process can read.
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

// mount returns the flag for a read-only file or folder. Engines parse the value of --mount as CSV
// or split it at commas, and that of --volume at colons; so mount refuses such paths.
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
