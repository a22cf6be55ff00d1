package resources_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/cluster/resources"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/discover"
)

// SPEC P2: of a resource that is served little more is in memory than of the same in a file: neither its text, nor all of what a
// tool may have, nor what was written of it before.
func TestP2ManyResourcesInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, more = 1000, 1000 // bytes of each: the object, its status, and what it declares
		dir := t.TempDir()
		facts := resources.Facts{Served: map[string]string{}}
		var items strings.Builder
		for n := range many {
			name := fmt.Sprintf("tool-%04d", n)
			facts.Served["Tool/"+name] = name
			file, object := manyItem(name)
			if n > 0 {
				items.WriteByte(',')
			}
			items.WriteString(object)
			if err := os.WriteFile(filepath.Join(dir, name+".json"), []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		a := &api{lists: map[string]string{"tools": items.String()}}
		r := a.open(t, io.Discard)
		var folder, cluster manifest.Result
		before := inUse()
		folder = discover.Tools(discover.Options{ToolsDir: dir})
		disk := inUse() - before

		before = inUse()
		stop := r.Start(t.Context(), func() resources.Facts { return facts })
		defer stop()
		r.Await(t.Context(), time.Minute)
		cluster = discover.Tools(discover.Options{ToolsDir: filepath.Join(dir, "none"), Cluster: r.Snapshot()})
		r.Applied()
		time.Sleep(10 * time.Second) // the statuses were looked at
		if len(folder.Tools) != many || len(cluster.Tools) != many {
			t.Fatalf("%d and %d tools: %v, %v", len(folder.Tools), len(cluster.Tools), folder.Problems, cluster.Problems)
		}
		if requests, _ := a.asked(); len(requests) != 0 {
			t.Fatalf("%.200q", requests)
		}
		took := inUse() - before
		t.Logf("of each: %d bytes from files, %d from a cluster", disk/many, took/many)
		if took > disk+more*many {
			t.Errorf("%d tools of a cluster take %d bytes, and those of a folder %d", many, took, disk)
		}
		runtime.KeepAlive(folder)
		runtime.KeepAlive(cluster)
	})
}

// manyItem is one of many Tools: as a file, and as the API server has it.
func manyItem(name string) (file, object string) {
	about := strings.Repeat("What it is good for. ", 30)
	spec := fmt.Sprintf(`"spec":{"endpoint":"http://127.0.0.1/%s","description":%q,"input_schema":{"type":"object","properties":{"a":{"type":"string","description":%q}}}}`, name, about, about)
	file = fmt.Sprintf(`{"apiVersion":"orloj.dev/v1","kind":"Tool","metadata":{"name":%q,"namespace":"ops"},%s}`, name, spec)
	object = fmt.Sprintf(`{"apiVersion":"orloj.dev/v1","kind":"Tool",
		"metadata":{"name":%q,"namespace":"ops","uid":"9b3f3c9e-0000-4000-8000-00000000%s","generation":7,"resourceVersion":"1","managedFields":[%s]},%s,
		"status":{"conditions":[{"type":"Ready","status":"True","reason":"served","message":"","observedGeneration":7,"lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`,
		name, strings.TrimPrefix(name, "tool-"), strings.Repeat("{},", 200)+"{}", spec)
	return file, object
}

// inUse is how many bytes are in use.
func inUse() int {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc) //nolint:gosec // it is far from so much
}
