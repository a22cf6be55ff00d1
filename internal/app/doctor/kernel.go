package doctor

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Inotify looks at whether so many folders can be watched. Watches are counted
// for each user, over all of their programs.
func (m Machine) Inotify(folders int) Finding {
	const check = "inotify"
	watches, err := strconv.Atoi(m.read("proc/sys/fs/inotify/max_user_watches"))
	instances, _ := strconv.Atoi(m.read("proc/sys/fs/inotify/max_user_instances")) // both are there, or neither
	what := strconv.Itoa(folders) + " folders"
	if folders == 1 {
		what = "1 folder"
	}
	switch {
	case err != nil:
		return ok(check, "%s to watch; this system has no limit that can be read", what)
	case folders > watches/2:
		return warn(check, "sudo sysctl fs.inotify.max_user_watches="+strconv.Itoa(max(2*watches, 4*folders)),
			"%s to watch, of %d that all programs of a user may watch; past that Orla looks for changes every few seconds instead", what, watches)
	case instances < 16:
		return warn(check, "sudo sysctl fs.inotify.max_user_instances=128", "a user may have %d inotify instances, which few programs use up", instances)
	}
	return ok(check, "%s to watch, of %d that a user may", what, watches)
}

// OpenFiles looks at how many files this process may raise its limit to.
func (m Machine) OpenFiles() Finding {
	const check, enough = "open files", 4096
	for line := range strings.Lines(m.read("proc/self/limits")) {
		rest, isIt := strings.CutPrefix(line, "Max open files")
		if fields := strings.Fields(rest); isIt && len(fields) >= 2 {
			hard, err := strconv.Atoi(fields[1])
			if err == nil && hard < enough {
				return warn(check, "ulimit -Hn 65536", "this user may have %d open; each client takes one, and each capsule three (in a unit: LimitNOFILE=65536)", hard)
			}
			return ok(check, "this user may have %s open", fields[1])
		}
	}
	return ok(check, "their limit cannot be read here")
}

// controllers are those that bound a capsule's resources.
var controllers = []string{"memory", "cpu", "pids"}

// Cgroup looks at whether capsules can be bounded and ended by cgroups. Where
// they cannot, resource limits of processes do what they can.
func (m Machine) Cgroup() Finding {
	const check = "cgroup"
	if m.read("proc/self/cgroup") == "" {
		return ok(check, "this system has none")
	}
	mount := ""
	for line := range strings.Lines(m.read("proc/self/mounts")) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[2] == "cgroup2" {
			mount = fields[1]
		}
	}
	if mount == "" {
		return warn(check, "", "there is no cgroup v2 here; runtime.resources can only be rlimits")
	}
	have := strings.Fields(m.read(path.Join(mount, "cgroup.controllers")))
	var lacks []string
	for _, c := range controllers {
		if !slices.Contains(have, c) {
			lacks = append(lacks, c)
		}
	}
	if len(lacks) > 0 {
		return warn(check, "", "cgroup v2 lacks the controllers %s, which cgroup v1 may have; runtime.resources of these can only be rlimits", strings.Join(lacks, ", "))
	}
	own := ""
	for line := range strings.Lines(m.read("proc/self/cgroup")) {
		if path, isV2 := strings.CutPrefix(strings.TrimSpace(line), "0::"); isV2 {
			own = path
		}
	}
	delegated := strings.Fields(m.read(path.Join(mount, own, "cgroup.controllers")))
	for _, c := range controllers {
		if !slices.Contains(delegated, c) {
			return ok(check, "cgroup v2 has %s; they are not delegated to this shell, as orla.service asks systemd to", strings.Join(controllers, ", "))
		}
	}
	return ok(check, "cgroup v2 has %s, and they are delegated", strings.Join(controllers, ", "))
}

// Clock looks at whether the time can be right. Certificates, tokens and the
// order of log lines hang on it.
func Clock(now, built time.Time) Finding {
	const check = "clock"
	if now.Before(built) {
		return fail(check, "sudo timedatectl set-ntp true", "it is %s, before this Orla was made (%s)", now.UTC().Format(time.DateTime), built.UTC().Format(time.DateTime))
	}
	if synchronised, known := clockState(); known && !synchronised {
		return warn(check, "sudo timedatectl set-ntp true", "the clock is not synchronised")
	}
	return ok(check, "%s", now.UTC().Format(time.RFC3339))
}
