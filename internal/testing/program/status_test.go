package program

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// mixedCapsule is a capsule of the twenty that orla status is shown for: what
// stands in its manifest, and what it does before its hello, after it, and at a
// call.
type mixedCapsule struct{ runtime, before, after, call string }

// mixed are twenty capsules in every state that lasts.
var mixed = map[string]mixedCapsule{
	"browser":    {"", "", "", ""},
	"calendar":   {"", "", "", ""},
	"contacts":   {"start: lazy", "", "", ""},
	"crm":        {"restart: {initial_ms: 3600000, max_ms: 3600000}", "echo 'no CRM_TOKEN' >&2; exit 78", "", ""},
	"documents":  {"", "", "", ""},
	"embeddings": {"startup_timeout_ms: 600000", "sleep 1000", "", ""},
	"github":     {"", "", "", "fail"},
	"invoices":   {"hot_load: {watch: []}\nrestart: {initial_ms: 1}", "", "", "[ -e crashed ] || { : > crashed; exit 1; }"},
	"issues":     {"", "", "", ""},
	"mail":       {"restart: {initial_ms: 1, max_ms: 1, max_failures: 3}", "echo 'connection refused' >&2; exit 1", "", ""},
	"maps":       {"", "", "", ""},
	"news":       {"start: lazy\nidle_timeout: 1s", "", "", ""},
	"notes":      {"", "", "", ""},
	"postgres":   {"drain_ms: 15000", "", "", "sleep 1000"},
	"search":     {"", "", "", ""},
	"speech":     {"startup_timeout_ms: 100\nrestart: {initial_ms: 3600000, max_ms: 3600000}", "sleep 1000", "", ""},
	"tickets":    {"", "", "", ""},
	"translate":  {"drain_ms: 15000", "", "", "sleep 1000"},
	"weather":    {"", "", "", ""},
	"wiki":       {"", "", "", ""},
}

// write writes the capsule as a package.
func (c mixedCapsule) write(t *testing.T, tools, name string) {
	t.Helper()
	at := filepath.Join(tools, name)
	runtime := "  mode: capsule\n"
	for line := range strings.Lines(c.runtime) {
		runtime += "  " + strings.TrimSuffix(line, "\n") + "\n"
	}
	testkit.WriteTool(t, at, "main.sh", `#!/bin/sh
`+c.before+`
echo '{"jsonrpc":"2.0","method":"orla.hello","params":{"name":"`+name+`","version":"1.0.0","capabilities":[]}}'
`+c.after+`
while read -r line; do
	id=${line#*\"id\":}; id=${id%%,*}
	case $line in
	*'"tools/call"'*)
		case '`+c.call+`' in
		'') echo '{"jsonrpc":"2.0","id":'$id',"result":"ok"}' ;;
		fail) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32000,"message":"not found"}}' ;;
		*) `+strings.ReplaceAll(strings.ReplaceAll(c.call, "fail", ":"), "'", "")+` ;;
		esac ;;
	esac
done
`)
	testkit.WriteTool(t, at, "tool.yaml", "name: "+name+"\nversion: 1.0.0\ndescription: One of twenty.\nentrypoint: main.sh\nmcp: {input_schema: {type: object}}\nruntime:\n"+runtime)
}

// SPEC J1: orla status of twenty capsules in mixed states, as docs/OPERATING.md shows it.
func TestJ1StatusOfTwentyCapsules(t *testing.T) {
	needs.Time(t, "starts twenty capsules")
	t.Parallel()
	dir := t.TempDir()
	tools := filepath.Join(dir, "tools")
	for name, c := range mixed {
		if name == "postgres" || name == "translate" { // as long as the call that they work on
			c.runtime += "\nstop_grace_ms: 100\ntimeout: 10m"
		}
		c.write(t, tools, name)
	}
	testkit.WriteTool(t, tools, "hello.sh", "#!/bin/sh\necho hello\n")
	testkit.WriteTool(t, tools, "zz/tool.yaml", "name: wiki\nversion: 1.0.0\ndescription: The same name again.\nentrypoint: main.sh\nruntime: {mode: capsule}\n")
	testkit.WriteTool(t, tools, "zz/main.sh", "#!/bin/sh\n")
	o := serveThere(t, dir)
	state := func(name, want string) {
		t.Helper()
		o.waitLog("state", is(name, want))
	}
	for _, name := range []string{"browser", "calendar", "documents", "github", "invoices", "issues", "maps", "notes", "postgres", "search", "tickets", "translate", "weather", "wiki"} {
		state(name, "READY")
	}
	for _, name := range []string{"crm", "speech"} {
		state(name, "CRASHED")
	}
	state("mail", "STOPPED")
	o.waitLog("ended", func(l map[string]any) bool { return l["tool"] == "speech" })
	o.mustCall("news") // first: its idle time passes meanwhile
	for range 7 {
		o.mustCall("weather")
	}
	for _, name := range []string{"github", "github", "hello", "invoices"} {
		if _, err := o.call(name, "{}"); err != nil {
			t.Fatal(err)
		}
	}
	// Its process ended during the call, and there is another.
	o.follow().next("state", func(l map[string]any) bool { return l["tool"] == "invoices" && l["from"] == "CRASHED" })
	o.mustOrla("start", "invoices")
	state("news", "STOPPED")
	o.mustOrla("stop", "search", "wiki")
	o.mustOrla("restart", "tickets")
	var inFlight sync.WaitGroup
	for _, name := range []string{"postgres", "translate"} {
		inFlight.Go(func() { _, _ = o.call(name, "{}") }) // it is ended with Orla
	}
	testkit.Eventually(t, "both calls are in flight", func() bool { return o.toolStatus("postgres").InFlight+o.toolStatus("translate").InFlight == 2 })
	testkit.WriteTool(t, filepath.Join(tools, "postgres"), "more.sh", "#!/bin/sh\n")
	state("postgres", "RELOADING")
	stopping := o.command("stop", "translate")
	if err := stopping.Start(); err != nil {
		t.Fatal(err)
	}
	state("translate", "STOPPING")

	got := o.mustOrla("status")
	t.Cleanup(func() {
		_ = o.cmd.Process.Kill()
		inFlight.Wait()
		_ = stopping.Wait() // it ends with Orla
	})
	for line := range strings.Lines(got) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 && !strings.Contains(line, "tools") { // a path is as long as it is
			t.Errorf("a line of %d characters: %s", n, line)
		}
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "OPERATING.md"))
	if err != nil {
		t.Fatal(err)
	}
	for command, got := range map[string]string{"orla status": got, "orla logs mail": o.mustOrla("logs", "mail"), "orla status crm": o.mustOrla("status", "crm")} {
		var shown string
		for _, block := range indented(string(page)) {
			if step, ok := strings.CutPrefix(block, "$ "+command+"\n"); ok {
				shown = step
			}
		}
		if a, b := masked(got), masked(shown); a != b {
			t.Errorf("%s prints:\n%s\nthe page says, and this is masked:\n%s\nprinted, masked:\n%s", command, got, b, a)
		}
	}
	s := o.status()
	if len(s.Tools) != 21 || len(s.Problems) != 1 || !strings.Contains(fmt.Sprint(s.Problems), "wiki") {
		t.Errorf("%d tools, problems %+v", len(s.Tools), s.Problems)
	}
}

var masks = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?`), "WHEN"},
	{regexp.MustCompile(`(pid|lasted_ms|next_start_ms)=\d+`), "$1=N"},
	{regexp.MustCompile(`^ +pid +\d+$`), "pid P"},
	{regexp.MustCompile(`Orla \S+ serves \S+ at \S+`), "Orla V serves DIR at URL"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ms|[smhd])(\d+[smh])?\b`), "T"},
	{regexp.MustCompile(`\b\d+(\.\d+)?[BKMG]\b`), "M"},
	{regexp.MustCompile(`pid \d+`), "pid P"},
	{regexp.MustCompile(`(T|-) +\d{2,} `), "T P "},
	{regexp.MustCompile(`[^\s=]*/tools\b/?`), "tools/"},
	{regexp.MustCompile(` +- *$`), " -"},
	{regexp.MustCompile(` (T|-)$`), " C"},
	{regexp.MustCompile(`  +`), " "},
}

// masked leaves out of a status what differs from run to run.
func masked(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		for _, m := range masks {
			line = m.pattern.ReplaceAllString(line, m.with)
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}
