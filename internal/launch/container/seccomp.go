package container

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
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
	"bpf", "perf_event_open", "userfaultfd", "fanotify_init", "io_uring_setup", "io_uring_enter", "io_uring_register",
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

// newNamespaces are the flags of clone that make namespaces, so that a mask of
// them has to be 0.
const newNamespaces = `{"index":0,"value":2114060288,"valueTwo":0,"op":"SCMP_CMP_MASKED_EQ"}`

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
	var kept []rule
	for _, r := range rules {
		r.Names = slices.DeleteFunc(r.Names, func(name string) bool { return slices.Contains(replaced, name) })
		if len(r.Names) > 0 {
			kept = append(kept, r)
		}
	}
	const eperm, enosys = 1, 38
	refuse := func(errno uint, names ...string) rule {
		return rule{Names: names, Action: "SCMP_ACT_ERRNO", ErrnoRet: &errno, Args: []json.RawMessage{}}
	}
	// Without clone3, whose flags no filter sees, programs use clone.
	kept = append(kept, refuse(eperm, forbidden...), refuse(enosys, "clone3"))
	kept = append(kept, rule{Names: []string{"clone"}, Action: "SCMP_ACT_ALLOW", Args: []json.RawMessage{json.RawMessage(newNamespaces)}})
	if base == nil {
		for flag := uint(1 << 17); flag <= 1<<30; flag <<= 1 { // what is allowed by default has to be refused flag by flag
			if flag&2114060288 == 0 {
				continue
			}
			arg, err := json.Marshal(map[string]any{"index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ"})
			if err != nil {
				return nil, err
			}
			one := refuse(eperm, "clone")
			one.Args = []json.RawMessage{arg}
			kept = append(kept, one)
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
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dir == "" {
		if e.dir, err = os.MkdirTemp("", "orla-containers-*"); err != nil {
			return "", err
		}
	}
	path := filepath.Join(e.dir, "seccomp.json")
	return path, os.WriteFile(path, profile, 0o600)
}
