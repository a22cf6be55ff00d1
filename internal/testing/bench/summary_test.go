package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// results are the tables of docs/benchmarks/results.md. Tables are found by the
// beginning of their title, rows by their first cells.
type results []resultTable

type resultTable struct {
	title  string
	header []string
	rows   [][]string
}

// cells splits a row of a Markdown table.
func cells(line string) []string {
	parts := strings.Split(strings.Trim(line, "|"), "|")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

func parseResults(text string) (all results) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch last := len(all) - 1; {
		case strings.HasPrefix(line, "### "):
			all = append(all, resultTable{title: strings.TrimPrefix(line, "### ")})
		case !strings.HasPrefix(line, "|") || last < 0:
		case all[last].header == nil:
			all[last].header = cells(line)
		case !strings.HasPrefix(line, "| -"):
			all[last].rows = append(all[last].rows, cells(line))
		}
	}
	return all
}

// get returns a cell of the row that begins so, or "?" for none.
func (r results) get(title, column string, row ...string) string {
	for _, table := range r {
		if !strings.HasPrefix(table.title, title) {
			continue
		}
		for _, cells := range table.rows {
			if len(cells) < len(row) || strings.Join(cells[:len(row)], "|") != strings.Join(row, "|") {
				continue
			}
			for i, name := range table.header {
				if name == column {
					return cells[i]
				}
			}
		}
	}
	return "?"
}

// met says what became of a target.
func (r results) met(title string, row ...string) string {
	return r.get(title, "target", row...) + ", " + strings.ReplaceAll(r.get(title, "verdict", row...), "MISSED", "missed")
}

const (
	bareCalls  = "A simple call against a bare fork and exec"
	relayCalls = "A capsule call against a relay"
	sdkCalls   = "A capsule call against the SDK"
	peerCalls  = "A call of the same MCP server on stdio"
)

// summaries are the tables of the pages in docs.
func summaries(r results) map[string][]table {
	simple := table{header: []string{"tool", "transport", "p50", "CPU", "target"}}
	for _, row := range [][3]string{
		{"static C program", "static C program, 1", "HTTP, session"},
		{"static C program", "static C program, 1", "stdio"},
		{"`/bin/sh` script", "/bin/sh script, 1", "HTTP, session"},
		{"Python script", "python3 script, 1", "HTTP, session"},
	} {
		transport, _, _ := strings.Cut(row[2], ",")
		simple.add(row[0], transport, r.get(bareCalls, "p50", row[1:]...), r.get(bareCalls, "CPU", row[1:]...), r.met(bareCalls, row[1:]...))
	}

	capsule := table{header: []string{"transport, calls in flight", "p50 to relay", "CPU to relay", "target", "p50 to SDK", "CPU to SDK", "target"}}
	for _, over := range []string{"HTTP, session", "stdio"} {
		transport, _, _ := strings.Cut(over, ",")
		for _, inFlight := range []string{"1", "16", "64"} {
			row := []string{"64 B, " + inFlight, over}
			capsule.add(transport+", "+inFlight,
				r.get(relayCalls, "p50", row...), r.get(relayCalls, "CPU", row...), r.met(relayCalls, row...),
				r.get(sdkCalls, "p50", row...), r.get(sdkCalls, "CPU", row...), r.met(sdkCalls, row...))
		}
	}

	peers := table{header: []string{"gateway", "p50, 1 in flight", "CPU, 1 in flight", "p50, 16 in flight", "CPU, 16 in flight"}}
	for _, peer := range [][3]string{
		{"supergateway", "HTTP, session", "supergateway"},
		{"mcp-proxy", "HTTP, session", "mcp-proxy"},
		{"mcp-hub (by its REST endpoint)", "HTTP, REST", "mcp-hub"},
	} {
		row := []string{peer[0]}
		for _, inFlight := range []string{"64 B, 1", "64 B, 16"} {
			row = append(row, r.get(peerCalls, "p50 of Orla", inFlight, peer[1], peer[2]), r.get(peerCalls, "CPU of Orla", inFlight, peer[1], peer[2]))
		}
		peers.add(row...)
	}

	rest := table{header: []string{"what", "result", "target"}}
	for _, row := range []struct {
		what, title, column string
		of                  []string
	}{
		{"call of a `/bin/sh` tool over HTTP: CPU to a bare fork and exec", bareCalls, "CPU", []string{"/bin/sh script, 1", "HTTP, session"}},
		{"call of a capsule over HTTP, answer of 64 B: CPU to a relay that copies bytes", relayCalls, "CPU", []string{"64 B, 1", "HTTP, session"}},
		{"the same over stdio", relayCalls, "CPU", []string{"64 B, 1", "stdio"}},
		{"the same over HTTP: CPU to a server made with the Go SDK", sdkCalls, "CPU", []string{"64 B, 1", "HTTP, session"}},
		{"an MCP server behind Orla, over HTTP: CPU to the same server behind mcp-proxy", peerCalls, "CPU of Orla", []string{"64 B, 1", "HTTP, session", "mcp-proxy"}},
		{"p50 of a capsule call over HTTP, answer of 64 B", relayCalls, "p50 Orla", []string{"64 B, 1", "HTTP, session"}},
		{"p50 of a capsule call over stdio, answer of 64 B", relayCalls, "p50 Orla", []string{"64 B, 1", "stdio"}},
		{"RSS of Orla after the start, with 3 tools", "Memory, descriptors", "RSS", []string{"after the start"}},
		{"RSS for each capsule (100 capsules)", "Orla's own memory for its capsules", "RSS per capsule", []string{"100 capsules"}},
		{"CPU of an idle Orla, of one core", "Idle for", "of one core", []string{"after the start"}},
		{"`tools/list` of 1000 tools, CPU", "tools/list", "CPU per 1 000", []string{"1000", "HTTP, session"}},
		{"p50 of a call with 10 000 tools, to one tool", "A call with many tools", "p50 to 1 tool", []string{"10000"}},
		{"from a save to the new code, Python, beyond debounce, stop and start", "From a save", "beyond", []string{"python"}},
		{"from a crash to READY, Python, beyond the interpreter's start", "From kill -9", "beyond", []string{"python"}},
		{"call in a native sandbox, beyond a bare fork and exec", "A process of this machine in each place", "over bare", []string{"Orla, native sandbox"}},
		{"call in a container, to `podman run` with the same flags", "A container for each call", "p50 ratio", []string{"Orla, container"}},
		{"1000 clients that call a capsule without a pause: slower than 16 clients", "Many active clients", "slower", []string{"capsule calls"}},
		{"RSS of each of 10 000 idle sessions", "Many idle clients", "RSS each", []string{"session"}},
	} {
		target := r.met(row.title, row.of...)
		switch {
		case row.column == "p50 Orla", row.title == peerCalls:
			target = ""
		case strings.HasPrefix(target, "?"):
			target = r.get(row.title, "target each", row.of...) + ", " + r.get(row.title, "verdict", row.of...)
		}
		if targets := r.get(row.title, "targets", row.of...); targets != "?" {
			target = targets + ", " + r.get(row.title, "verdict", row.of...)
		}
		rest.add(row.what, r.get(row.title, row.column, row.of...), target)
	}
	return map[string][]table{"BENCHMARKS.md": {rest}, "benchmarks/calls.md": {simple, capsule, peers}}
}

// plain lays a table out in Markdown without padding.
func plain(t table) string {
	var b strings.Builder
	for _, row := range append([][]string{t.header, make([]string, len(t.header))}, t.rows...) {
		if row[0] == "" {
			b.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
			continue
		}
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	return strings.ReplaceAll(b.String(), "|  |", "| |")
}

// Pages in docs show rows of docs/benchmarks/results.md. UPDATE=1 copies them, after
// a run with -out.
func TestTheSummaryIsOfTheResults(t *testing.T) {
	docs := filepath.Join("..", "..", "..", "docs")
	all, err := os.ReadFile(filepath.Join(docs, "benchmarks", "results.md"))
	if err != nil {
		t.Fatal(err)
	}
	for page, tables := range summaries(parseResults(string(all))) {
		checkPage(t, filepath.Join(docs, filepath.FromSlash(page)), string(all), tables)
	}
}

// checkPage compares the tables of a page with those of the results, or replaces them.
func checkPage(t *testing.T, path, all string, tables []table) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	update := os.Getenv("UPDATE") != ""
	for _, want := range tables {
		now := plain(want)
		if strings.Contains(now, "?") {
			t.Errorf("results.md lacks rows for\n%s", now)
		}
		head, _, _ := strings.Cut(now, "\n")
		shown := regexp.MustCompile("(?m)^" + regexp.QuoteMeta(head) + "\n(?:\\|.*\n)+").FindString(page)
		switch {
		case shown == "":
			t.Errorf("%s has no table %s", path, head)
		case shown != now && update:
			page = strings.Replace(page, shown, now, 1)
		case shown != now:
			t.Errorf("%s shows\n%s\nthe results are (UPDATE=1 writes them)\n%s", path, shown, now)
		}
	}
	machine := regexp.MustCompile(`on \w+/\w+ with \d+ cores and go[\d.]*\d`)
	if now, shown := machine.FindString(all), machine.FindString(page); now != shown || now == "" {
		if !update {
			t.Errorf("%s says %q, the results say %q", path, shown, now)
		}
		page = strings.Replace(page, shown, now, 1)
	}
	if update && page != string(text) {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
