package program

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// dashboard is what this test needs of a dashboard of Grafana's.
type dashboard struct {
	UID, Title string
	Panels     []panel
	Templating struct {
		List []struct{ Name, Definition string }
	}
	Annotations struct{ List []struct{ Expr string } }
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               struct{ UID string }
	GridPos                  struct{ X, Y, W, H int }
	Targets                  []struct {
		Expr       string
		Datasource struct{ UID string }
	}
}

func readDashboard(t *testing.T) (d dashboard, queries []string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "grafana", "orla.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			queries = append(queries, target.Expr)
		}
	}
	for _, a := range d.Annotations.List {
		queries = append(queries, a.Expr)
	}
	return d, queries
}

// The dashboard is one that Grafana can take: ids once, panels side by side, and
// no data source but the one that is asked for.
func TestTheDashboardIsInOrder(t *testing.T) {
	t.Parallel()
	d, queries := readDashboard(t)
	if d.UID == "" || d.Title == "" || len(queries) < 20 {
		t.Fatalf("%q %q has %d queries", d.UID, d.Title, len(queries))
	}
	ids := map[int]bool{}
	taken := map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d %q: its id is taken, or it has no title", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, is := taken[[2]int{x, y}]; is || x >= 24 {
					t.Fatalf("panel %q lies over %q, or outside", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Description == "" || p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %q: no query, no description, or a data source of its own", p.Title)
		}
		for _, target := range p.Targets {
			if target.Datasource.UID != "${datasource}" {
				t.Errorf("panel %q asks %q", p.Title, target.Datasource.UID)
			}
		}
	}
}

// Every metric, and every label of it, that the dashboard and the alerts ask for
// is one that a running Orla has.
func TestWhatIsAskedForIsThere(t *testing.T) {
	t.Parallel()
	d, queries := readDashboard(t)
	for _, v := range d.Templating.List {
		queries = append(queries, v.Definition)
	}
	alerts, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "prometheus", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	queries = append(queries, regexp.MustCompile(`(?m)#.*$`).ReplaceAllString(string(alerts), ""))

	tools := t.TempDir()
	testkit.WriteTool(t, tools, "greet", "#!/bin/sh\n")
	newPack(t, tools, "cap", "", map[string]string{"answer.py": says("'hi'")})
	o := serveOrla(t, tools)
	o.mustCall("cap")
	text := o.wantMetrics(`orla_calls_total{code="ok",tool="cap"} 1`, `orla_capsule_memory_bytes{tool="cap"} `)
	there := map[string]string{} // the labels of each metric
	for _, m := range regexp.MustCompile(`(?m)^(\w+)(\{.*\})? `).FindAllStringSubmatch(text, -1) {
		there[m[1]] = m[2]
	}
	asked := regexp.MustCompile(`\b((?:orla|go|process)_\w+)(?:\{([^}]*)\})?`)
	matcher := regexp.MustCompile(`(\w+) ?[=!]~?"`)
	known := 0
	for _, q := range queries {
		for _, m := range asked.FindAllStringSubmatch(q, -1) {
			labels, is := there[m[1]]
			if !is {
				t.Errorf("Orla has no metric %s, which is asked for by %.100s", m[1], q)
				continue
			}
			known++
			for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
				if l[1] != "job" && l[1] != "instance" && !strings.Contains(labels, l[1]+`="`) {
					t.Errorf("%s has no label %s, which is asked for by %.100s", m[1], l[1], q)
				}
			}
		}
	}
	if known < 50 {
		t.Errorf("only %d metrics were found in the queries", known)
	}
	for name := range exported(t) {
		if !slices.ContainsFunc(queries, func(q string) bool { return strings.Contains(q, name) }) {
			t.Errorf("neither the dashboard nor an alert shows %s", name)
		}
	}
}

// Prometheus's own tool finds every query in order, and the alerts fire when
// they are to.
func TestPromtoolLikesTheRules(t *testing.T) {
	needs.Time(t, "starts promtool")
	t.Parallel()
	needs.Programs(t, "promtool")
	_, queries := readDashboard(t)
	rules := "groups:\n  - name: dashboard\n    rules:\n"
	variables := strings.NewReplacer("$__rate_interval", "1m", "$instance", "i", "$tool", "t")
	for i, q := range queries {
		quoted, err := json.Marshal(variables.Replace(q))
		if err != nil {
			t.Fatal(err)
		}
		rules += fmt.Sprintf("      - record: query:%d\n        expr: %s\n", i, quoted)
	}
	dir := t.TempDir()
	testkit.WriteTool(t, dir, "dashboard.yaml", rules)
	for name, from := range map[string]string{
		"alerts.yaml":      filepath.Join("..", "..", "..", "deploy", "prometheus", "alerts.yaml"),
		"alerts_test.yaml": filepath.Join("testdata", "alerts_test.yaml"),
	} {
		raw, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		testkit.WriteTool(t, dir, name, string(raw))
	}
	for _, args := range [][]string{
		{"check", "rules", "dashboard.yaml"},
		{"check", "rules", "alerts.yaml"},
		{"test", "rules", "alerts_test.yaml"},
	} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
