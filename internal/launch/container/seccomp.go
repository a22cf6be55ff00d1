package container

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/orla-project/orla/internal/file/wholefile"
)

// forbidden are system calls that no tool is to make, whatever the engine's own
// profile says: podman's lets a process make user namespaces, where it has all
// capabilities anew, and use the keyrings of its uid. The native sandbox
// forbids the same.
var forbidden = []string{
	"unshare", "setns", "mount", "umount", "umount2", "pivot_root", "chroot", "mount_setattr", "move_mount", "open_tree", "open_tree_attr",
	"fsopen", "fsconfig", "fsmount", "fspick",
	"ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd",
	"add_key", "keyctl", "request_key",
	"bpf", "perf_event_open", "userfaultfd", "fanotify_init", "io_setup", "io_uring_setup", "io_uring_enter", "io_uring_register",
	"open_by_handle_at", "name_to_handle_at", "lookup_dcookie", "syslog", "vhangup", "acct", "quotactl", "quotactl_fd", "swapon", "swapoff", "reboot",
	"kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "sethostname", "setdomainname",
}

// rule is one of a seccomp profile, as engines read it.
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

// hugePages are the calls that take huge pages, and the flag by which they do. Where
// a machine has set some aside, the limit of memory does not count them.
var hugePages = []struct {
	call        string
	index, flag uint
}{
	{"mmap", 3, 0x40000}, {"mmap2", 3, 0x40000}, // MAP_HUGETLB
	{"memfd_create", 1, 4}, // MFD_HUGETLB
	{"shmget", 2, 0o4000},  // SHM_HUGETLB
}

// setLimits are the calls that set a resource limit, and the argument that names it.
// RLIMIT_LOCKS is refused: outside it is the tag by which Orla finds what tools leave
// (package launch), and a process in a container must not be able to forge another's.
var setLimits = []struct {
	call  string
	index uint
}{{"prlimit64", 1}, {"setrlimit", 0}}

const (
	limitLocks = 10  // RLIMIT_LOCKS
	limitMask  = 0xf // of all limits that there are
)

// masked is a condition: what a mask leaves of an argument is a value.
func masked(index, mask, value uint) []json.RawMessage {
	return []json.RawMessage{fmt.Appendf(nil, `{"index":%d,"value":%d,"valueTwo":%d,"op":"SCMP_CMP_MASKED_EQ"}`, index, mask, value)}
}

// stricter returns a seccomp profile without what is forbidden. A base that is
// nil allows all the rest.
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
	// Without clone3, whose flags no filter sees, programs use clone.
	always := []json.RawMessage{}
	kept = append(kept, refuse(eperm, always, forbidden...), refuse(enosys, always, "clone3"))
	kept = append(kept, allow(masked(0, newNamespaces, 0), "clone"))
	for _, huge := range hugePages {
		kept = append(kept, allow(masked(huge.index, huge.flag, 0), huge.call))
		kept = append(kept, refuse(enomem, masked(huge.index, huge.flag, huge.flag), huge.call))
	}
	for _, set := range setLimits {
		for bit := uint(1); bit < limitMask; bit <<= 1 { // another limit differs in one of them
			kept = append(kept, allow(masked(set.index, bit, ^uint(limitLocks)&bit), set.call))
		}
		kept = append(kept, refuse(eperm, masked(set.index, limitMask, limitLocks), set.call))
	}
	if base == nil {
		for flag := uint(1 << 17); flag <= 1<<30; flag <<= 1 { // what is allowed by default has to be refused flag by flag
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

// filter writes the profile for an engine whose own is at a path, and returns
// where it is; "" where the engine's own is as strict, or cannot be replaced.
func (e *Engine) filter(m *made, own string) (string, error) {
	if m.remote || !m.podman && m.filtered {
		return "", nil
	}
	var base []byte
	if own != "" {
		base, _ = os.ReadFile(own) // without it what is forbidden is, and no more
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
	return path, wholefile.Write(path, profile) // another start may read it now
}
