//go:build !race

package logging_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/observe/history"
	"github.com/orla-project/orla/internal/observe/logging"
	"github.com/orla-project/orla/internal/testing/needs"
)

// SPEC J1, S2: the newest lines come from the newest files, in order, and no more than 16 MiB of them are held.
func TestJ1TheNewestLinesAreBounded(t *testing.T) {
	needs.Time(t, "reads files of many megabytes")
	path := filepath.Join(t.TempDir(), "orla.log")
	at := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	n := 0
	write := func(name string, lines, size int) {
		var text strings.Builder
		for range lines {
			n++
			fmt.Fprintf(&text, "{\"time\":%q,\"msg\":\"x\",\"n\":%d,\"text\":%q}\n", at.Add(time.Duration(n)*time.Second).Format(time.RFC3339Nano), n, strings.Repeat("a", size))
		}
		if err := os.WriteFile(name, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, at, at.Add(time.Duration(n)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	write(path+".2", 40, 500<<10)
	write(path+".1", 40, 500<<10)
	write(path, 3, 10)
	read := func(last int) (first string, count, size int) {
		for line := range logging.ReadBack(context.Background(), path, history.Query{Since: at}, last, nil) {
			if count == 0 {
				_, first, _ = strings.Cut(string(line.JSON), `"n":`)
				first, _, _ = strings.Cut(first, ",")
			}
			count, size = count+1, size+len(line.JSON)
		}
		return first, count, size
	}
	for last, want := range map[int]string{1: "83", 3: "81", 4: "80", 20: "64"} {
		if first, count, _ := read(last); first != want || count != last {
			t.Errorf("the last %d are %d and begin with %s, want %s", last, count, first, want)
		}
	}
	if first, count, size := read(1000); size > 16<<20 || size < 15<<20 || first != fmt.Sprint(83-count+1) {
		t.Errorf("%d lines with %d bytes are held, from %s on", count, size, first)
	}
	if first, count, _ := read(0); first != "1" || count != 83 {
		t.Errorf("all are %d, from %s on", count, first)
	}
}
