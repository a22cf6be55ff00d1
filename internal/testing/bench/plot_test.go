package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestAPlotIsWellFormedAndNamesItsLines(t *testing.T) {
	p := newPlots()
	small := payload{size: 64}
	relay := result{rounds: nil, cpu: cpu{own: 10}}
	p.addCall("a <b>", small, true, 1, result{cpu: cpu{own: 25}}, relay)
	p.addCall("a <b>", payload{size: 1 << 20}, false, 1, result{cpu: cpu{own: 900}}, relay)
	p.addCall("a <b>", payload{size: 1 << 20, asArgs: true}, false, 1, result{cpu: cpu{own: 900}}, relay)
	p.addCall("a <b>", payload{size: 1 << 20}, false, 16, result{cpu: cpu{own: 900}}, relay)
	if got, want := p.cpu.lines[0].points, []plotPoint{{64, 2.5}, {1 << 20, 90}}; !slices.Equal(got, want) {
		t.Errorf("got the points %v, want %v", got, want)
	}
	p.p50.lines = nil
	folder := filepath.Join(t.TempDir(), "new")
	links, err := p.write(folder, "new")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(links, "](new/cpu.svg)") || strings.Contains(links, "memory") {
		t.Errorf("the links are %q; only one plot has points", links)
	}
	text, err := os.ReadFile(filepath.Join(folder, "cpu.svg"))
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for d := xml.NewDecoder(strings.NewReader(string(text))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		if data, ok := token.(xml.CharData); ok {
			words = append(words, string(data))
		}
	}
	for _, want := range []string{"a <b>", "64 B", "1 MiB", "100×", p.cpu.x} {
		if !slices.Contains(words, want) {
			t.Errorf("the plot does not say %q but %q", want, words)
		}
	}
}

func TestDecadesHoldAllValues(t *testing.T) {
	for _, tc := range [][2]float64{{1, 1}, {0.3, 0.9}, {1.2, 45}, {15.5, 199}} {
		got := decades(tc[0], tc[1])
		if got[0] > tc[0] || got[len(got)-1] < tc[1] || len(got) < 2 || len(got) > 12 {
			t.Errorf("%v is between %v", tc, got)
		}
		for _, v := range got {
			if math.IsNaN(v) || v <= 0 {
				t.Errorf("%v has a tick at %v", tc, v)
			}
		}
	}
}
