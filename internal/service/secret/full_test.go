//go:build !race

package secret_test

import (
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/service/secret"
)

func allocated() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}

// SPEC S2: to search for a long value does not take thousands of times its size.
func TestS2ALongValueTakesLittle(t *testing.T) {
	const size, most = secret.MaxValue, 600
	value := strings.Repeat("a<\"&\\/+é%", size/10)
	r := secret.NewRedactor(secret.NewValue(value))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := r.Redact("it says " + url.QueryEscape(value) + ".")
	runtime.ReadMemStats(&after)
	if got != "it says [redacted]." {
		t.Errorf("%.100s", got)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > most*size {
		t.Errorf("it took %d bytes for each of the value; want %d at most", took/size, most)
	}
}

// SPEC S2: many short values cost no more than one long value.
func TestS2ManyValuesTakeLittle(t *testing.T) {
	const size, most = secret.MaxValues, 1500
	var values []secret.Value
	for i := range size / 64 {
		values = append(values, secret.NewValue(fmt.Sprintf("%016d", i)+strings.Repeat("a<\"&\\/+é%", 5)[:48]))
	}
	if err := secret.CheckSize(values); err != nil {
		t.Fatal(err)
	}
	var last secret.Last
	r := last.Redactor(values...)
	before := allocated()
	got := r.Redact("it says " + url.QueryEscape(values[7].Reveal()) + ".")
	if took := allocated() - before; took > most*size {
		t.Errorf("it took %d bytes for each of the values; want %d at most", took/size, most)
	}
	if got != "it says [redacted]." {
		t.Errorf("%.100s", got)
	}
	if last.Redactor(values...) != r {
		t.Error("the same values are searched for by another Redactor")
	}
	if last.Redactor(values[1:]...) == r {
		t.Error("other values are searched for by the same Redactor")
	}
	if err := secret.CheckSize(append(values, secret.NewValue("x"))); err == nil {
		t.Error("more than 64 KiB of values are allowed")
	}
}
