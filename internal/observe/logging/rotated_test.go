package logging_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/observe/history"
	"github.com/orla-project/orla/internal/observe/logging"
)

// SPEC J1: what logrotate has moved away and compressed is the same log, also before the last start. Other files beside it
// are not.
func TestJ1ReadBackReadsRotatedFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begin := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	lines := func(from, to int) []byte {
		var out strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&out, `{"time":%q,"level":"info","msg":"stderr","tool":"mail","text":"%d"}`+"\n", begin.Add(time.Duration(i)*time.Second).Format(time.RFC3339Nano), i)
		}
		return []byte(out.String())
	}
	write := func(name string, text []byte, last int) {
		path := filepath.Join(dir, name)
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".gz") && name != "orla.log.9.gz" {
			z := gzip.NewWriter(file)
			_, err = z.Write(text)
			err = errors.Join(err, z.Close())
		} else {
			_, err = file.Write(text)
		}
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		at := begin.Add(time.Duration(last) * time.Second)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write("orla.log-20260101.gz", lines(0, 2000), 2000)
	write("orla.log.2.gz", lines(2000, 4000), 4000)
	write("orla.log.1", lines(4000, 6000), 6000)
	write("orla.log", lines(6000, 6010), 6010)
	write("orla.log.9.gz", []byte("no gzip"), 5000)
	write("orla.log.bak", lines(1, 2), 5000)
	write("orla.log.1.old", lines(1, 2), 5000)
	write("other.log.1", lines(1, 2), 5000)
	if err := os.Symlink("other.log.1", filepath.Join(dir, "orla.log.3")); err != nil {
		t.Fatal(err)
	}
	texts := func(since, last int) (list []string) {
		q := history.Query{Tools: []string{"mail"}, Since: begin.Add(time.Duration(since) * time.Second)}
		kept := []history.Line{{Time: begin.Add(5999 * time.Second), Tool: "mail", Event: "stderr", JSON: []byte(`{"text":"twice"}`)}}
		for l := range logging.ReadBack(context.Background(), filepath.Join(dir, "orla.log"), q, last, kept) {
			var said struct{ Text string }
			if err := json.Unmarshal(l.JSON, &said); err != nil {
				t.Fatalf("%s: %v", l.JSON, err)
			}
			list = append(list, said.Text)
		}
		return list
	}
	all := make([]string, 6010)
	for i := range all {
		all[i] = fmt.Sprint(i)
	}
	for _, since := range []int{0, 1, 1999, 2000, 3999, 4001, 5999, 6000, 6005} {
		if got := texts(since, 0); !slices.Equal(got, all[since:]) {
			t.Errorf("since %d: %d lines, from %q; want %d", since, len(got), got[:min(len(got), 2)], len(all)-since)
		}
	}
	if got := texts(0, 3); !slices.Equal(got, all[6007:]) {
		t.Errorf("the last 3: %q", got)
	}
}
