package discovery

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/packages/lockfile"
)

// manyPackages makes a folder of n packages, a folder each.
func manyPackages(t testing.TB, n int) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		one := filepath.Join(dir, fmt.Sprintf("tool%05d", i))
		if err := os.Mkdir(one, 0o700); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("name: tool%05d\nversion: 1.0.0\ndescription: Reads its arguments, as number %d of many.\nentrypoint: run.sh\n", i, i)
		for name, data := range map[string]string{"tool.yaml": text, "run.sh": "#!/bin/sh\ncat\n"} {
			if err := os.WriteFile(filepath.Join(one, name), []byte(data), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// SPEC S1, M7: a search looks for records of installations only in packages that it has not found as they were when an earlier one
// read them, and so still sees each record.
func TestS1NoRecordIsLookedForWherePackagesAreUnchanged(t *testing.T) {
	const n = 40
	dir := manyPackages(t, n)
	cfg := &config.Loaded{}
	cfg.ToolsDir = dir
	var seen Seen
	seen.tools.Now = func() time.Time { return time.Now().Add(time.Hour) } // everything is old
	search := func(served, asked int) {
		t.Helper()
		p := readPackages(cfg, "")
		found, _ := Search{Seen: &seen}.find(cfg, "", p)
		if len(found.Tools) != served {
			t.Errorf("%d tools are served, want %d; %v", len(found.Tools), served, found.Problems)
		}
		in := 0
		for folder := range p.records {
			if filepath.Dir(folder) == dir {
				in++
			}
		}
		if in != asked {
			t.Errorf("records were looked for in %d packages, want %d", in, asked)
		}
	}
	search(n, n) // what was just read may have come from another folder than what was listed
	search(n, 0)
	search(n, 0)
	record := filepath.Join(dir, "tool00003", lockfile.RecordName)
	if err := os.WriteFile(record, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	search(n-1, 1)
	search(n-1, 1)
	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}
	search(n, 1)
	search(n, 0)
	cfg.Only = filepath.Join(dir, "tool00004") // is read apart from the others
	search(1, 1)
}

// BenchmarkS1AgainManyPackages is the search of a reload of 10 000 packages, none of which has changed.
func BenchmarkS1AgainManyPackages(b *testing.B) {
	dir := manyPackages(b, 10_000)
	cfg := &config.Loaded{}
	cfg.ToolsDir = dir
	var seen Seen
	seen.tools.Now = func() time.Time { return time.Now().Add(time.Hour) } // everything is old
	Search{Seen: &seen}.Find(cfg, "")
	b.ReportAllocs()
	for b.Loop() {
		if found := (Search{Seen: &seen}).Find(cfg, ""); len(found.Tools) != 10_000 {
			b.Fatal(len(found.Tools), found.Problems)
		}
	}
}
