package watch

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// L4: what a capsule's Watcher costs while nothing happens.
func BenchmarkRestingWatcher(b *testing.B) {
	const watchers, files = 100, 10
	var roots []string
	for range watchers {
		root := b.TempDir()
		mustDo(b, os.Mkdir(filepath.Join(root, "src"), 0o700))
		for i := range files {
			mustDo(b, os.WriteFile(filepath.Join(root, "src", fmt.Sprintf("module_%d.py", i)), []byte("pass"), 0o600))
		}
		roots = append(roots, root)
	}
	used := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	for b.Loop() {
		hub := NewHub()
		stopHub := serving(b, New(roots[0], Options{Hub: hub})) // the Hub itself is not counted
		watched := func(n int) func() bool {
			return func() bool { have, _ := kernelWatches(b); return have >= n }
		}
		eventually(b, "the first folder is watched", watched(3))
		before := used()
		var ws []*Watcher
		for _, root := range roots {
			ws = append(ws, New(root, Options{
				Hub: hub, Content: true, Gitignore: true,
				Globs: []string{"*.log", "data/**"}, Except: []string{"tool.yaml", "orla-tool.json"},
			}))
		}
		stop := serving(b, ws...)
		eventually(b, "all folders are watched", watched(2*watchers))
		b.ReportMetric(float64(used()-before)/watchers, "B/watcher")
		stop()
		stopHub()
		runtime.KeepAlive(ws)
	}
}
