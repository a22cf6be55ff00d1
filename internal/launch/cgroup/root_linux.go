package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// ownLeaf is the cgroup that Orla itself moves to: a cgroup that has processes cannot give
	// controllers to those below it.
	ownLeaf = "orla.main"
	// groupPrefix begins the name of every Group. It distinguishes them from the kernel's files, whose
	// names begin with a controller.
	groupPrefix = "capsule-"
	// sweepPatience is how long the processes of an earlier Orla have to die.
	sweepPatience = 2 * time.Second
)

// controllers are the controllers that enforce limits.
var controllers = [...]string{"memory", "cpu", "pids"}

// Root is a cgroup that was delegated to Orla. A nil Root makes no Groups.
type Root struct {
	dir   string
	locks []*os.File // held while Orla runs
	has   []string   // the controllers that Groups have
	log   *slog.Logger
	mu    sync.Mutex // guards names
	names map[string]bool

	claimed bool              // made by Claim: Orla removes the folders
	legacy  map[string]string // the folder for each controller with cgroup v1; else nil
}

// Open takes over the cgroup that was delegated to this process: it moves the process to a leaf of
// it, and kills what an earlier Orla left. If no cgroup was delegated, it returns nil and the
// reason. The caller must Close the Root.
func Open(log *slog.Logger) (root *Root, reason string) {
	dir, err := own("/proc/self/cgroup", "/proc/self/mountinfo")
	if err != nil {
		return nil, err.Error()
	}
	if err := delegated(dir); err != nil {
		return nil, err.Error()
	}
	r, err := take(dir, os.Getpid(), log)
	if err != nil {
		return nil, err.Error()
	}
	return r, ""
}

// own returns the folder of this process's cgroup in the v2 hierarchy.
func own(cgroups, mounts string) (string, error) {
	data, err := os.ReadFile(cgroups)
	if err != nil {
		return "", err
	}
	path := ""
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			path = rest
		}
	}
	switch {
	case path == "":
		return "", errors.New("this process is in no cgroup of version 2")
	case strings.HasPrefix(path, "/.."):
		return "", errors.New("this process's cgroup is not in its namespace")
	}
	data, err = os.ReadFile(mounts)
	if err != nil {
		return "", err
	}
	// ID PARENT DEVICE ROOT MOUNTPOINT OPTIONS [TAGS...] - TYPE SOURCE ...
	for line := range strings.Lines(string(data)) {
		mount, kind, _ := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if len(fields) < 5 || !strings.HasPrefix(kind, "cgroup2 ") {
			continue
		}
		if below, err := filepath.Rel(unescape(fields[3]), path); err == nil && filepath.IsLocal(below) {
			return filepath.Join(unescape(fields[4]), below), nil
		}
	}
	return "", errors.New("no cgroup filesystem of version 2 is mounted that shows this process")
}

// unescape decodes a path in /proc/self/mountinfo, where blanks are octal escapes.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// delegated returns nil if this process may change a cgroup, else why not. It looks for systemd's
// mark (an extended attribute). Before systemd 251 only root can read that; then the owner decides:
// systemd gives the cgroup of a service to the service's user only if it delegates it. In a user's
// own session the owner decides nothing, since all cgroups belong to the user.
func delegated(dir string) error {
	for _, mark := range [...]string{"user.delegate", "trusted.delegate"} {
		value := make([]byte, 8)
		n, err := unix.Getxattr(dir, mark, value)
		if err == nil && string(value[:n]) == "1" {
			return nil
		}
	}
	uid := os.Geteuid()
	if uid != 0 && ownerOf(dir) == uid && ownerOf(filepath.Dir(dir)) != uid {
		return nil
	}
	return errors.New("the cgroup is not delegated to Orla (systemd: Delegate=yes)")
}

func ownerOf(dir string) int {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return -1
	}
	return int(st.Uid)
}

// take makes a Root of a delegated cgroup that pid is in. kept are the names of Groups that stay.
func take(dir string, pid int, log *slog.Logger, kept ...string) (*Root, error) {
	lock, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	r := &Root{dir: dir, locks: []*os.File{lock}, log: log, names: map[string]bool{}}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		r.Close()
		return nil, errors.New("another Orla uses the cgroup")
	}
	leaf := filepath.Join(dir, ownLeaf)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		r.Close()
		return nil, err
	}
	if err := write(leaf, "cgroup.procs", strconv.Itoa(pid)); err != nil {
		r.Close()
		return nil, err
	}
	r.sweep(kept)
	r.enable()
	return r, nil
}

// sweep kills and removes what an earlier Orla left, but for the Groups of some names.
func (r *Root) sweep(kept []string) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		r.log.Warn("look for cgroups of an earlier Orla", "err", err)
		return
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), groupPrefix) || slices.Contains(kept, e.Name()) {
			continue
		}
		sweepGroup(filepath.Join(r.dir, e.Name()), r.log)
	}
}

// sweepGroup kills and removes what an earlier Orla left in a cgroup.
func sweepGroup(dir string, log *slog.Logger) {
	g := &Group{dir: dir}
	left := g.Pids()
	if err := g.killWithin(sweepPatience); err != nil {
		log.Warn("a cgroup of an earlier Orla stays", "cgroup", dir, "err", err)
		return
	}
	log.Info("removed the cgroup of an earlier Orla", "cgroup", dir, "killed", len(left))
}

// enable gives the available controllers to the Groups.
func (r *Root) enable() {
	for _, c := range controllers {
		// One by one, so that a missing controller does not keep out the others. The file shows which are
		// enabled.
		_ = write(r.dir, "cgroup.subtree_control", "+"+c)
	}
	for c := range strings.FieldsSeq(read(r.dir, "cgroup.subtree_control")) {
		if slices.Contains(controllers[:], c) {
			r.has = append(r.has, c)
		}
	}
}

// Dir returns the folder of the cgroup; with cgroup v1, that of memory.
func (r *Root) Dir() string { return r.folders()[0] }

// Controllers lists the controllers that Groups have.
func (r *Root) Controllers() []string { return r.has }

// Close releases the cgroup. Orla stays in its leaf: it cannot move back while other processes are
// in cgroups next to it.
func (r *Root) Close() {
	if r == nil {
		return
	}
	if r.claimed {
		if err := r.removeClaim(); err != nil {
			r.log.Warn("remove a cgroup", "cgroup", r.Dir(), "err", err)
		}
	}
	for _, lock := range r.locks {
		_ = lock.Close() // which unlocks it
	}
}

// New makes a Group with limits. name is what it is for. Group.Applied returns the limits that are in
// effect. A nil Root returns nil.
func (r *Root) New(name string, limits Limits) (*Group, error) {
	if r == nil {
		return nil, nil
	}
	g := &Group{root: r}
	if err := r.mkdir(g, groupPrefix+escape(name)); err != nil {
		return nil, err
	}
	if r.legacy != nil {
		if err := g.newLegacy(); err != nil {
			return nil, errors.Join(err, g.Remove())
		}
		g.boundLegacy(limits)
		return g, nil
	}
	g.bound(limits)
	dir, err := os.Open(g.dir)
	if err != nil {
		return nil, errors.Join(err, g.Remove())
	}
	g.file = dir
	return g, nil
}

// mkdir makes the folder of a Group. It adds a number if the name is taken: a process and the one
// that will replace it run at the same time.
func (r *Root) mkdir(g *Group, name string) error {
	const most = 100
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := 1; i <= most; i++ {
		g.name = name
		if i > 1 {
			g.name = fmt.Sprintf("%s~%d", name, i)
		}
		g.dir = filepath.Join(r.folders()[0], g.name)
		if r.names[g.name] {
			continue
		}
		err := os.Mkdir(g.dir, 0o755)
		if err == nil {
			r.names[g.name] = true
			return nil
		}
		if !errors.Is(err, fs.ErrExist) { // else the folder could not be removed
			return err
		}
	}
	return fmt.Errorf("%d cgroups %s are there already", most, name)
}

// escape turns a name into the name of a folder. Different names stay different; names of tools are
// unchanged.
func escape(name string) string {
	var out strings.Builder
	for _, c := range []byte(name) {
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-'
		if plain {
			out.WriteByte(c)
			continue
		}
		fmt.Fprintf(&out, "%%%02x", c)
	}
	return out.String()
}

func write(dir, file, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// read returns a file's text, or "" if it cannot be read.
func read(dir, file string) string {
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(data))
}
