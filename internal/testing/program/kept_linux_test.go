package program

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC L4: answers that are kept to be read as resources are not in the heap, of which garbage makes several times as
// much. All that may be kept takes no more of Orla's resident memory than as many bytes, and 60 MiB.
func TestL4KeptAnswers(t *testing.T) {
	needs.Time(t, "makes answers of many megabytes")
	t.Parallel()
	const each, most = 6, 128 // MiB
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "big", fmt.Sprintf("#!/bin/sh\nhead -c %d /dev/zero | tr '\\0' x\n", each<<20))
	o := startCommand(t, t.TempDir(), orlaBinary(t), "--config", writeConfig(t, tools, "max_output: 8MiB\n"))
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	for n := range most/each + 4 {
		if text := o.mustCall("big"); !strings.Contains(text, "orla://answers/") {
			t.Fatalf("answer %d is not kept: %.100s", n, text)
		}
	}
	if rss := statusField(t, o.cmd.Process.Pid, "VmHWM:") >> 10; rss > most+60 {
		t.Errorf("with %d MiB of kept answers it had up to %d MiB; want %d at most", most, rss, most+60)
	}
}
