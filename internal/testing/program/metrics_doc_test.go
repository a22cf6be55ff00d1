package program

import (
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/observe/telemetry"
)

// exported are the metrics that a Telemetry has that is asked for all of them:
// their names, each with its labels.
func exported(t *testing.T) map[string]string {
	t.Helper()
	tel := telemetry.New(telemetry.Options{
		Tools:    func() []string { return nil },
		Lives:    func() map[string]peer.Life { return map[string]peer.Life{"cap": {State: "READY", Since: time.Now()}} },
		Usage:    func() map[string]telemetry.Usage { return map[string]telemetry.Usage{"cap": {}} },
		Sessions: func() int { return 0 },
		Queued:   func() int { return 0 },
		Waiting:  func() int { return 0 },
		Dropped:  func() int64 { return 0 },
		Log:      slog.New(slog.DiscardHandler),
	})
	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	sample := regexp.MustCompile(`(?m)^(orla_\w+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? \S+$`)
	label := regexp.MustCompile(`(\w+)="`)
	found := map[string]string{}
	for _, m := range sample.FindAllStringSubmatch(w.Body.String(), -1) {
		var labels []string
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			if l[1] != "le" {
				labels = append(labels, l[1])
			}
		}
		slices.Sort(labels)
		found[m[1]] = strings.Join(labels, ",")
	}
	return found
}

// docs/METRICS.md says what each metric means, and of no other.
func TestEachMetricIsExplained(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "METRICS.md"))
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(orla_\\w+)(?:\\{([\\w,]+)\\})?` \\| \\S").FindAllStringSubmatch(string(text), -1) {
		labels := strings.Split(m[2], ",")
		slices.Sort(labels)
		explained[m[1]] = strings.Join(labels, ",")
	}
	if got := exported(t); !maps.Equal(got, explained) {
		t.Errorf("Orla exports\n%v\ndocs/METRICS.md explains\n%v", got, explained)
	}
}
