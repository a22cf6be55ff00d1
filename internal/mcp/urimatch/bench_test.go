package urimatch_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/mcp/urimatch"
)

// BenchmarkFind compares ordinary URIs with ordinary templates, and the costliest ones.
func BenchmarkFind(b *testing.B) {
	ordinary := []string{
		"file:///{+path}", "note://{id}", "note://{id}/parts/{part}", "db://main/{table}{?limit,offset}",
		"git://h/{owner}/{repo}/issues/{n}", "git://h/{owner}/{repo}/pulls/{n}", "git://h/{owner}/{repo}/blob/{ref}/{+path}",
	}
	cases := map[string]benched{
		"note":   {"note://1234", ordinary},
		"file":   {"file:///home/someone/projects/orla/README.md", ordinary},
		"git":    {"git://h/orla-project/orla/blob/main/internal/mcp/urimatch/index.go", ordinary},
		"query":  {"db://main/users?limit=10&offset=20", ordinary},
		"none":   {"git://h/orla-project/orla/tags/1", ordinary},
		"file4K": {"file:///" + strings.Repeat("abcdefg/", 500), ordinary},
	}
	for name, c := range costliest() {
		for _, n := range []int{400, 1000, 8000} {
			cases[fmt.Sprint(name, n)] = benched{c.uri(n), c.templates}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		c := cases[name]
		b.Run(name, func(b *testing.B) {
			var x urimatch.Index[int]
			for i, text := range c.templates {
				t, err := urimatch.Compile(text)
				if err != nil {
					b.Fatal(err)
				}
				x.Add(t, i)
			}
			x.Sort()
			b.ReportAllocs()
			for b.Loop() {
				x.Find(c.uri)
			}
		})
	}
}

// benched is a URI, and the templates that it is compared with.
type benched struct {
	uri       string
	templates []string
}
