package container

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/orla-project/orla/internal/file/wholefile"
)

// forbidden are system calls that no tool may make, in addition to those that the engine's own
// profile forbids. Podman's profile lets a process make user namespaces, in which it has all
// capabilities, and use the keyrings of its uid. The native sandbox forbids the same calls.
var forbidden = []string{
	"unshare", "setns", "mount", "umount", "umount2", "pivot_root", "chroot", "mount_setattr", "move_mount", "open_tree", "open_tree_attr",
	"fsopen", "fsconfig", "fsmount", "fspick",
	"ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd",
	"add_key", "keyctl", "request_key",
	"bpf", "perf_event_open", "userfaultfd", "fanotify_init", "io_setup", "io_uring_setup", "io_uring_enter", "io_uring_register",
	"open_by_handle_at", "name_to_handle_at", "lookup_dcookie", "syslog", "vhangup", "acct", "quotactl", "quotactl_fd", "swapon", "swapoff", "reboot",
	"kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "sethostname", "setdomainname",
}

// rule is a rule of a seccomp profile, in the format of the engines.
type rule struct {
	Names    []string          `json:"names"`
	Action   string            `json:"action"`
	ErrnoRet *uint             `json:"errnoRet,omitempty"`
	Errno    string            `json:"errno,omitempty"`
	Args     []json.RawMessage `json:"args"`
	Includes json.RawMessage   `json:"includes,omitempty"`
	Excludes json.RawMessage   `json:"excludes,omitempty"`
	Comment  string            `json:"comment,omitempty"`
}

// newNamespaces are the flags of clone that make namespaces.
const newNamespaces = 2114060288

// hugePages are the calls that allocate huge pages, and the flag that does it. Huge pages that a
// machine has reserved do not count towards the memory limit.
var hugePages = []struct {
	call        string
	index, flag uint
}{
	{"mmap", 3, 0x40000}, {"mmap2", 3, 0x40000}, // MAP_HUGETLB
	{"memfd_create", 1, 4}, // MFD_HUGETLB
	{"shmget", 2, 0o4000},  // SHM_HUGETLB
}

// setLimits are the calls that set a resource limit, and the index of the argument that names the
// limit. RLIMIT_LOCKS is refused: outside the container it is the tag by which Orla finds the
// processes that tools leave (package launch/trees), and a process in a container must not be able
// to forge one.
var setLimits = []struct {
	call  string
	index uint
}{{"prlimit64", 1}, {"setrlimit", 0}}

const (
	limitLocks = 10  // RLIMIT_LOCKS
	limitMask  = 0xf // covers all limits
)

// masked is a condition: an argument, masked, equals a value.
func masked(index, mask, value uint) []json.RawMessage {
	return []json.RawMessage{fmt.Appendf(nil, `{"index":%d,"value":%d,"valueTwo":%d,"op":"SCMP_CMP_MASKED_EQ"}`, index, mask, value)}
}

// stricter returns a seccomp profile that also forbids the calls above. If base is nil, it allows
// all other calls.
func stricter(base []byte) ([]byte, error) {
	profile := map[string]json.RawMessage{"defaultAction": json.RawMessage(`"SCMP_ACT_ALLOW"`)}
	var rules []rule
	if base != nil {
		clear(profile)
		if err := json.Unmarshal(base, &profile); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(profile["syscalls"], &rules); err != nil {
			return nil, err
		}
	}
	replaced := append([]string{"clone", "clone3"}, forbidden...)
	for _, huge := range hugePages {
		replaced = append(replaced, huge.call)
	}
	for _, set := range setLimits {
		replaced = append(replaced, set.call)
	}
	var kept []rule
	for _, r := range rules {
		r.Names = slices.DeleteFunc(r.Names, func(name string) bool { return slices.Contains(replaced, name) })
		if len(r.Names) > 0 {
			kept = append(kept, r)
		}
	}
	const eperm, enomem, enosys = 1, 12, 38
	refuse := func(errno uint, args []json.RawMessage, names ...string) rule {
		return rule{Names: names, Action: "SCMP_ACT_ERRNO", ErrnoRet: &errno, Args: args}
	}
	allow := func(args []json.RawMessage, name string) rule {
		return rule{Names: []string{name}, Action: "SCMP_ACT_ALLOW", Args: args}
	}
	// clone3 has its flags in memory, where no filter can check them. Without it, programs use clone.
	always := []json.RawMessage{}
	kept = append(kept, refuse(eperm, always, forbidden...), refuse(enosys, always, "clone3"))
	kept = append(kept, allow(masked(0, newNamespaces, 0), "clone"))
	for _, huge := range hugePages {
		kept = append(kept, allow(masked(huge.index, huge.flag, 0), huge.call))
		kept = append(kept, refuse(enomem, masked(huge.index, huge.flag, huge.flag), huge.call))
	}
	for _, set := range setLimits {
		for bit := uint(1); bit < limitMask; bit <<= 1 { // another limit differs in at least one bit
			kept = append(kept, allow(masked(set.index, bit, ^uint(limitLocks)&bit), set.call))
		}
		kept = append(kept, refuse(eperm, masked(set.index, limitMask, limitLocks), set.call))
	}
	if base == nil {
		for flag := uint(1 << 17); flag <= 1<<30; flag <<= 1 { // calls that the base allows have to be refused for each flag
			if flag&newNamespaces != 0 {
				kept = append(kept, refuse(eperm, masked(0, flag, flag), "clone"))
			}
		}
		kept = slices.DeleteFunc(kept, func(r rule) bool { return r.Action == "SCMP_ACT_ALLOW" })
	}
	syscalls, err := json.Marshal(kept)
	if err != nil {
		return nil, err
	}
	profile["syscalls"] = syscalls
	return json.Marshal(profile)
}

// filter writes the profile for an engine whose own profile is at a path, and returns its path; ""
// if the engine's own is as strict, or cannot be replaced.
func (e *Engine) filter(m *made, own string) (string, error) {
	if m.remote || !m.podman && m.filtered {
		return "", nil
	}
	var base []byte
	if own != "" {
		base, _ = os.ReadFile(own) // if it cannot be read, only these calls are forbidden
	}
	profile, err := stricter(base)
	if err != nil {
		if profile, err = stricter(nil); err != nil {
			return "", err
		}
	}
	dir, err := e.temp()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "seccomp.json")
	return path, wholefile.Write(path, profile) // another start may be reading the file
}
