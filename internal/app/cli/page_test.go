package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/terminal"
)

// However long the names and large the numbers, the table fits.
func TestJ1TheTableFits(t *testing.T) {
	now := time.Now()
	var tools []control.ToolStatus
	for i := range 20 {
		tools = append(tools, control.ToolStatus{
			Name: strings.Repeat("long-name-", 6) + fmt.Sprint(i), Kind: "capsule", State: "RELOADING", Since: now.Add(-99*24*time.Hour - 23*time.Hour),
			Pid: 4194304, Restarts: 99999, Calls: 9999999, Errors: 9999999, P50: 999.9, P99: 99999,
			Memory: 999 << 30, CPU: 99 * 24 * 3600, Reason: strings.Repeat("because ", 40), Failures: 7, Next: now.Add(time.Hour),
		})
	}
	p := &page{width: terminal.TableWidth, now: now}
	p.table(tools)
	for line := range strings.Lines(p.text.String()) {
		if n := utf8.RuneCountInString(line) - 1; n > terminal.TableWidth {
			t.Errorf("%d characters: %s", n, line)
		}
	}
}
