package container

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/file/diskroom"
	"github.com/orla-project/orla/internal/launch/cgroup"
)

// made is an engine, as its info command describes it.
type made struct {
	path       string
	podman     bool // else docker, or an engine that is compatible with it
	version    string
	remote     bool // the engine runs on another machine or in a VM
	rootless   bool
	cgroups    string // its version, 1 or 2; "" if it does not say
	lacks      []string
	processors int    // the largest number that it accepts; 0 means any
	filtered   bool   // its own seccomp profile forbids new user namespaces
	seccomp    string // the file of a profile in its place; "": its own
	room       diskroom.Engine
}

// String returns the name of the engine for messages.
func (m *made) String() string { return filepath.Base(m.path) + " " + m.version }

// logDriver returns what an engine is to do with the output of a process. It must not store it. With "none", podman's
// monitor (conmon) passes it on to the command line, and loses the output of a process that ends before the monitor has
// accepted the connection of the command line: once in a hundred calls on a busy machine. Since version 4, podman can give
// the streams of its command line to the process, where they are not a terminal and the engine is on this machine.
func (m *made) logDriver() string {
	major, _, _ := strings.Cut(m.version, ".")
	if n, err := strconv.Atoi(major); m.podman && !m.remote && err == nil && n >= 4 {
		return "passthrough"
	}
	return "none"
}

// said is the answer of an engine to info: podman has host, docker the other fields.
type said struct {
	Host *struct {
		CgroupVersion     string   `json:"cgroupVersion"`
		CgroupControllers []string `json:"cgroupControllers"`
		ServiceIsRemote   bool     `json:"serviceIsRemote"`
		Security          struct {
			Rootless           bool   `json:"rootless"`
			SeccompEnabled     bool   `json:"seccompEnabled"`
			SeccompProfilePath string `json:"seccompProfilePath"`
		} `json:"security"`
	} `json:"host"`
	Version struct{ Version string }                    `json:"version"`
	Store   struct{ GraphRoot, ImageCopyTmpDir string } `json:"store"`

	ServerVersion   string
	CgroupVersion   string
	MemoryLimit     bool
	CPUCfsQuota     bool `json:"CpuCfsQuota"`
	PidsLimit       bool
	NCPU            int
	SecurityOptions []string
	DockerRootDir   string
	ServerErrors    []string
}

// ask runs the info command of a program, and reports whether the engine is usable.
func (e *Engine) ask(ctx context.Context, path string) (*made, error) {
	out, err := e.command(ctx, nil, path, "info", "--format", "{{json .}}")
	var s said
	if jsonErr := json.Unmarshal(out, &s); jsonErr == nil && (s.Host != nil || s.ServerVersion != "") {
		return e.made(path, s)
	}
	switch {
	case len(s.ServerErrors) > 0:
		return nil, fmt.Errorf("%s: %s", filepath.Base(path), lastLine([]byte(s.ServerErrors[0])))
	case err != nil:
		return nil, fmt.Errorf("%s: %s", filepath.Base(path), saidBy(err))
	}
	return nil, fmt.Errorf("%s does not answer as podman and docker do", path)
}

func (e *Engine) made(path string, s said) (*made, error) {
	m := s.made(path)
	if !m.remote {
		m.room = diskroom.Engine{Store: cmp.Or(s.Store.GraphRoot, s.DockerRootDir), Copies: s.Store.ImageCopyTmpDir}
	}
	own := ""
	if s.Host != nil {
		if own = s.Host.Security.SeccompProfilePath; !s.Host.Security.SeccompEnabled {
			return m, nil // verified refuses sandboxes for that later
		}
	}
	var err error
	if m.seccomp, err = e.filter(m, own); err != nil {
		return nil, fmt.Errorf("%s: its seccomp profile cannot be written: %w", m, err)
	}
	return m, nil
}

func (s said) made(path string) *made {
	m := &made{path: path, podman: s.Host != nil}
	if m.podman {
		m.version, m.remote, m.rootless = s.Version.Version, s.Host.ServiceIsRemote, s.Host.Security.Rootless
		m.cgroups = strings.TrimPrefix(s.Host.CgroupVersion, "v")
		for _, controller := range []string{"memory", "cpu", "pids"} {
			if !slices.Contains(s.Host.CgroupControllers, controller) {
				m.lacks = append(m.lacks, controller)
			}
		}
		return m
	}
	m.version, m.cgroups, m.processors = s.ServerVersion, s.CgroupVersion, s.NCPU
	m.filtered = slices.ContainsFunc(s.SecurityOptions, func(o string) bool {
		return strings.HasPrefix(o, "name=seccomp") && (strings.HasSuffix(o, "profile=builtin") || strings.HasSuffix(o, "profile=default"))
	})
	m.rootless = slices.ContainsFunc(s.SecurityOptions, func(o string) bool { return strings.HasPrefix(o, "name=rootless") })
	for controller, has := range map[string]bool{"memory": s.MemoryLimit, "cpu": s.CPUCfsQuota, "pids": s.PidsLimit} {
		if !has {
			m.lacks = append(m.lacks, controller)
		}
	}
	slices.Sort(m.lacks)
	return m
}

// limits reports why the engine cannot enforce limits, by its own account. verified checks what it
// really enforces.
func (m *made) limits(wanted cgroup.Limits) error {
	if wanted == (cgroup.Limits{}) {
		return nil
	}
	switch {
	case m.rootless && m.cgroups == "1":
		return fault.New(fault.IsolationUnavailable, "%s runs without root on cgroups of version 1, where it ignores the limits of memory, processors and processes; boot with systemd.unified_cgroup_hierarchy=1, or run Orla and its engine as root", m)
	case m.lacks == nil:
		return nil
	}
	fix := "enable them in the kernel"
	if m.rootless {
		fix = "delegate them to this user (systemd: Delegate=cpu memory pids for user@.service)"
	}
	return fault.New(fault.IsolationUnavailable, "%s has no cgroup controller for %s; %s", m, strings.Join(m.lacks, ", "), fix)
}
