package launch

import (
	"fmt"
	"strings"

	"github.com/orla-project/orla/internal/launch/cgroup"
)

// Text describes for operators which limits are in effect. loose lists the wanted limits that are
// not; it is never nil.
func (h Applied) Text(wanted cgroup.Limits) (text string, loose []string) {
	loose = []string{}
	var holds []string
	for _, limit := range []struct {
		name       string
		wanted     bool
		tree, each bool
		text       string
	}{
		{"memory", wanted.Memory > 0, h.Tree.Memory > 0, h.Each.Memory > 0, "memory " + BytesText(max(h.Tree.Memory, h.Each.Memory))},
		{"cpus", wanted.CPUs > 0, h.Tree.CPUs > 0, false, fmt.Sprint("cpus ", h.Tree.CPUs)},
		{"pids", wanted.Pids > 0, h.Tree.Pids > 0, false, fmt.Sprint("pids ", h.Tree.Pids)},
	} {
		switch {
		case !limit.wanted:
		case limit.tree:
			holds = append(holds, limit.text)
		case limit.each:
			holds = append(holds, limit.text+" for each process")
		default:
			loose = append(loose, limit.name)
		}
	}
	text = strings.Join(holds, ", ")
	if len(loose) > 0 {
		if text != "" {
			text += "; "
		}
		text += "not bounded: " + strings.Join(loose, ", ")
	}
	return text, loose
}

// BytesText formats a number of bytes for people.
func BytesText(n int64) string {
	for _, unit := range []struct {
		name  string
		bytes int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n%unit.bytes == 0 {
			return fmt.Sprintf("%d %s", n/unit.bytes, unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
