package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// process is one line of a census.
type process struct {
	pid, parent int
	dead        bool   // a zombie
	role        string // of ours: the second word of its command line
	tool        string // whose process it is: ORLA_TOOL in its environment
	command     string
}

// census lists the processes of the harness's own namespace, less the harness:
// Orla, and all that it started. One that ends meanwhile may be missing.
func census() (all []process) {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good
	own := os.Getpid()
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == 1 || pid == own {
			continue
		}
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue
		}
		// The second field is the command in parentheses, which may hold anything.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		p := process{pid: pid, dead: string(fields[0]) == "Z"}
		p.parent, _ = strconv.Atoi(string(fields[1]))
		args, _ := os.ReadFile(dir + "/cmdline") // empty for a zombie
		words := strings.Split(string(args), "\x00")
		p.command = strings.TrimSpace(strings.Join(words, " "))
		if len(words) > 1 && strings.HasPrefix(words[1], "__") {
			p.role = words[1]
		}
		environ, _ := os.ReadFile(dir + "/environ") // as cmdline
		for entry := range strings.SplitSeq(string(environ), "\x00") {
			if tool, ok := strings.CutPrefix(entry, "ORLA_TOOL="); ok {
				p.tool = tool
			}
		}
		all = append(all, p)
	}
	return all
}

// of returns the living processes of a tool; a role narrows them.
func of(tool, role string) (pids []int) {
	for _, p := range census() {
		if p.tool == tool && !p.dead && (role == "" || p.role == role) {
			pids = append(pids, p.pid)
		}
	}
	return pids
}
