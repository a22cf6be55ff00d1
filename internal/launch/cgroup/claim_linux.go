package cgroup

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// claimPrefix begins the names of the folders that Claim makes.
const claimPrefix = "orla-"

// bootedWithSystemd exists if systemd manages the cgroups.
const bootedWithSystemd = "/run/systemd/system"

// Claim makes a Root where no cgroup is delegated and nothing manages the cgroups: below this
// process's own cgroups, if they belong to its user. That is so for root on a machine with cgroup v1
// or without systemd, and for a user to whom root gave such cgroups. Orla itself stays in its
// cgroup.
//
// If that is not possible, Claim returns nil and the reason. The caller must Close the Root. What a
// killed Orla leaves is removed by the next one.
func Claim(log *slog.Logger) (root *Root, reason string) {
	folders, err := claimable()
	if err != nil {
		return nil, err.Error()
	}
	for _, dir := range folders {
		if ownerOf(dir) != os.Geteuid() {
			return nil, "Orla is not root, and no cgroup is delegated to it"
		}
	}
	r, err := claim(folders, log)
	if err != nil {
		return nil, err.Error()
	}
	return r, ""
}

// claimable returns the folder for each controller: one in each cgroup v1 hierarchy, or the same one
// for all controllers with cgroup v2.
func claimable() (map[string]string, error) {
	folders, err := legacy("/proc/self/cgroup", "/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	if len(folders) == len(controllers) {
		return folders, nil
	}
	if _, err := os.Stat(bootedWithSystemd); err == nil {
		return nil, errors.New("systemd manages the cgroups of this machine, and none is delegated to Orla")
	}
	dir, err := own("/proc/self/cgroup", "/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, "cgroup.type")); err == nil { // the root cgroup has no such file
		return nil, errors.New("Orla's cgroup is shared with other processes, and not delegated to it") //nolint:staticcheck // a name
	}
	for _, c := range controllers {
		folders[c] = dir
	}
	return folders, nil
}

// legacy returns this process's folder in the cgroup v1 hierarchy of each controller.
func legacy(cgroups, mounts string) (map[string]string, error) {
	paths := map[string]string{} // by controller
	data, err := os.ReadFile(cgroups)
	if err != nil {
		return nil, err
	}
	// ID:CONTROLLER[,CONTROLLER...]:PATH
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) < 3 || strings.HasPrefix(fields[2], "/..") {
			continue
		}
		for c := range strings.SplitSeq(fields[1], ",") {
			if slices.Contains(controllers[:], c) {
				paths[c] = fields[2]
			}
		}
	}
	if data, err = os.ReadFile(mounts); err != nil {
		return nil, err
	}
	found := map[string]string{}
	for line := range strings.Lines(string(data)) {
		mount, kind, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		fields, rest := strings.Fields(mount), strings.Fields(kind)
		if len(fields) < 5 || len(rest) < 3 || rest[0] != "cgroup" {
			continue
		}
		for c := range strings.SplitSeq(rest[2], ",") {
			below, err := filepath.Rel(unescape(fields[3]), paths[c])
			if paths[c] != "" && err == nil && filepath.IsLocal(below) {
				found[c] = filepath.Join(unescape(fields[4]), below)
			}
		}
	}
	return found, nil
}

// claim makes the folders of a Root below the given ones.
func claim(folders map[string]string, log *slog.Logger) (*Root, error) {
	r := &Root{log: log, names: map[string]bool{}, claimed: true}
	done, err := sweepAll(folders, log)
	defer done()
	if err != nil {
		return nil, err
	}
	name := claimPrefix + strings.ToLower(rand.Text()[:10])
	for _, c := range controllers {
		dir := filepath.Join(folders[c], name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { // controllers may share a folder
			return nil, errors.Join(err, r.removeClaim())
		}
		if folders["memory"] == folders["pids"] { // version 2
			r.dir = dir
			continue
		}
		if r.legacy == nil {
			r.legacy = map[string]string{}
		}
		r.legacy[c] = dir
	}
	for _, dir := range r.folders() {
		lock, err := lockFolder(dir, unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			return nil, errors.Join(err, r.removeClaim())
		}
		r.locks = append(r.locks, lock)
	}
	if r.legacy != nil {
		r.has = controllers[:]
		return r, nil
	}
	for _, c := range controllers {
		_ = write(folders[c], "cgroup.subtree_control", "+"+c) // enable finds out which controllers are available
	}
	r.enable()
	return r, nil
}

func lockFolder(dir string, how int) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close() // only read
		return nil, err
	}
	return f, nil
}

// Sweep removes the cgroups that killed Orlas had made with Claim below this process's cgroup or
// next to it.
func Sweep(log *slog.Logger) {
	folders, err := claimable()
	if err != nil {
		return // Claim was not possible
	}
	done, err := sweepAll(folders, log)
	done()
	if err != nil {
		log.Warn("look for cgroups of an earlier Orla", "err", err)
	}
}

// sweepAll sweeps places and the cgroups next to them. It keeps other Orlas from claiming there
// until done is called: a new folder that is not locked yet would be removed.
func sweepAll(folders map[string]string, log *slog.Logger) (done func(), err error) {
	var locks []*os.File
	done = func() {
		for _, lock := range locks {
			_ = lock.Close() // which unlocks it
		}
	}
	parents := slices.Compact(slices.Sorted(maps.Values(folders))) // all lock them in the same order
	for _, dir := range parents {
		lock, err := lockFolder(dir, unix.LOCK_EX)
		if err != nil {
			return done, err
		}
		locks = append(locks, lock)
	}
	for _, dir := range parents {
		sweepClaims(dir, log)
		sweepBeside(dir, log)
	}
	return done, nil
}

// sweepBeside sweeps the cgroups next to dir: where each session has its own, the next Orla is not
// in the same cgroup as the last one.
func sweepBeside(dir string, log *slog.Logger) {
	parent := filepath.Dir(dir)
	if _, err := os.Stat(filepath.Join(parent, "cgroup.procs")); err != nil {
		return // dir is the top of the mount
	}
	entries, _ := os.ReadDir(parent) // a folder that cannot be listed cannot be swept
	for _, e := range entries {
		beside := filepath.Join(parent, e.Name())
		if !e.IsDir() || beside == dir || strings.HasPrefix(e.Name(), claimPrefix) {
			continue
		}
		lock, err := lockFolder(beside, unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			continue // another Orla is claiming there, and sweeps it
		}
		sweepClaims(beside, log)
		_ = lock.Close() // only read
	}
}

// sweepClaims removes the folders of this user's Orlas in parent that have ended: they hold no lock
// on them.
func sweepClaims(parent string, log *slog.Logger) {
	entries, _ := os.ReadDir(parent) // a folder that cannot be listed cannot be swept
	for _, e := range entries {
		dir := filepath.Join(parent, e.Name())
		if !e.IsDir() || !strings.HasPrefix(e.Name(), claimPrefix) || ownerOf(dir) != os.Geteuid() {
			continue
		}
		lock, err := lockFolder(dir, unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			continue // its Orla is running
		}
		sweepGroup(dir, log)
		_ = lock.Close() // only read
	}
}

// folders lists the Root's folders, with that of memory first.
func (r *Root) folders() []string {
	if r.legacy == nil {
		return []string{r.dir}
	}
	return foldersOf(r.legacy)
}

// foldersOf lists folders in the order of their controllers, each once.
func foldersOf(legacy map[string]string) (dirs []string) {
	for _, c := range controllers {
		if dir := legacy[c]; dir != "" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// removeClaim removes the folders that Claim made. They must have no Groups.
func (r *Root) removeClaim() error {
	var all error
	for _, dir := range r.folders() {
		if dir == "" {
			continue
		}
		if err := os.Remove(dir); !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// Lost reports whether somebody has removed the folders that Claim made, so that New fails. The Root
// must be closed then.
func (r *Root) Lost() bool {
	return r != nil && r.claimed && slices.ContainsFunc(r.folders(), func(dir string) bool {
		_, err := os.Stat(dir)
		return errors.Is(err, fs.ErrNotExist)
	})
}
