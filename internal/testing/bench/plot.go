package main

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// plot is a picture of results: lines over a few values, on logarithmic axes.
// Its zero points make no picture.
type plot struct {
	file, title string
	x, y        string // what the axes show
	xText       func(int) string
	yText       func(float64) string
	lines       []plotLine
}

type plotLine struct {
	name   string
	points []plotPoint
}

type plotPoint struct {
	x int
	y float64
}

// plots are what sections draw in beside their tables.
type plots struct {
	cpu, p50, memory plot
}

func newPlots() *plots {
	factor := func(y float64) string { return fmt.Sprintf("%g×", y) }
	return &plots{
		cpu: plot{
			file: "cpu.svg", title: "CPU of a call over HTTP, one at a time, beside a relay that copies bytes",
			x: "text in the answer", y: "CPU, times the relay's", xText: kibibytes, yText: factor,
		},
		p50: plot{
			file: "p50.svg", title: "p50 of a call over HTTP with a text of 64 B, beside a relay that copies bytes",
			x: "calls in flight", y: "p50, times the relay's", xText: decimal, yText: factor,
		},
		memory: plot{
			file: "memory.svg", title: "Memory of Orla with many tools",
			x: "tools", y: "RSS, MiB", xText: decimal, yText: func(y float64) string { return fmt.Sprintf("%g", y) },
		},
	}
}

func decimal(n int) string { return fmt.Sprint(n) }

// add puts a point at the end of a line, which need not be there yet.
func (p *plot) add(line string, x int, y float64) {
	i := slices.IndexFunc(p.lines, func(l plotLine) bool { return l.name == line })
	if i < 0 {
		i = len(p.lines)
		p.lines = append(p.lines, plotLine{name: line})
	}
	p.lines[i].points = append(p.lines[i].points, plotPoint{x, y})
}

// addCall puts what a call costs beside the relay's where that belongs: results
// of one call in flight, and of the smallest payload.
func (p *plots) addCall(who string, in payload, smallest bool, inFlight int, r, relay result) {
	if !in.asArgs && inFlight == 1 {
		p.cpu.add(who, in.size, quotient(r.cpu.total(), relay.cpu.total()))
	}
	if smallest {
		p.p50.add(who, inFlight, r.against(relay))
	}
}

// write draws all that have points into a folder, and returns them as Markdown.
func (p *plots) write(folder, link string) (string, error) {
	var b strings.Builder
	for _, one := range []*plot{&p.cpu, &p.p50, &p.memory} {
		if len(one.lines) == 0 {
			continue
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(folder, one.file), []byte(one.svg()), 0o644); err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\n![%s](%s/%s)\n", one.title, link, one.file)
	}
	return b.String(), nil
}

// The picture, in pixels: the axes' corner, and the room for the names on the right.
const (
	plotWidth, plotHeight = 760, 400
	plotLeft, plotRight   = 70, 190
	plotTop, plotBottom   = 50, 55
	plotGap               = 16 // the least between two names
	plotStyle             = `text{font:13px sans-serif;fill:#24292f}.t{font-weight:bold}.g{stroke:#8b949e;stroke-opacity:.35}` +
		`.l{fill:none;stroke-width:2}@media(prefers-color-scheme:dark){text{fill:#e6edf3}}`
)

// plotColors are seen on white as on black. Whoever has none here is gray.
var plotColors = map[string]string{
	"Orla": "#3b82f6", insideSDK: "#2f9e63", "supergateway": "#e5484d", "mcp-proxy": "#d97706", "mcp-hub": "#a855f7", "mcp-go": "#0d9488",
}

// insideSDK stands for the server made with the Go SDK.
const insideSDK = "Go SDK, tool inside"

// axis maps values to pixels, by their logarithms.
type axis struct{ low, high, from, to float64 }

func (a axis) at(v float64) float64 {
	return a.from + (a.to-a.from)*(math.Log(v)-math.Log(a.low))/(math.Log(a.high)-math.Log(a.low))
}

// svg draws the plot.
func (p *plot) svg() string {
	var xs []int
	low, high := math.Inf(1), math.Inf(-1)
	for _, l := range p.lines {
		for _, point := range l.points {
			xs = append(xs, point.x)
			low, high = min(low, point.y), max(high, point.y)
		}
	}
	slices.Sort(xs)
	xs = slices.Compact(xs)
	ticks := decades(low, high)
	x := axis{float64(xs[0]), float64(max(xs[len(xs)-1], xs[0]+1)), plotLeft, plotWidth - plotRight}
	y := axis{ticks[0], ticks[len(ticks)-1], plotHeight - plotBottom, plotTop}

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img"><title>%s</title><style>%s</style>`+"\n",
		plotWidth, plotHeight, html.EscapeString(p.title), plotStyle)
	word := func(x, y float64, anchor, class, text string) {
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" text-anchor="%s" class="%s">%s</text>`+"\n", x, y, anchor, class, html.EscapeString(text))
	}
	rule := func(x1, y1, x2, y2 float64) {
		fmt.Fprintf(&b, `<line x1="%.0f" y1="%.0f" x2="%.0f" y2="%.0f" class="g"/>`+"\n", x1, y1, x2, y2)
	}
	word(plotLeft, plotTop-28, "start", "t", p.title)
	word(plotLeft, plotTop-10, "start", "", p.y+" (logarithmic)")
	word((x.from+x.to)/2, plotHeight-12, "middle", "", p.x)
	for _, v := range xs {
		rule(x.at(float64(v)), y.from, x.at(float64(v)), y.to)
		word(x.at(float64(v)), y.from+18, "middle", "", p.xText(v))
	}
	for _, v := range ticks {
		rule(x.from, y.at(v), x.to, y.at(v))
		word(x.from-8, y.at(v)+4, "end", "", p.yText(v))
	}
	p.drawLines(&b, x, y, word)
	return b.String() + "</svg>\n"
}

// drawLines draws the lines and, on the right, their names in the same order.
func (p *plot) drawLines(b *strings.Builder, x, y axis, word func(x, y float64, anchor, class, text string)) {
	lines := slices.Clone(p.lines)
	last := func(l plotLine) float64 { return l.points[len(l.points)-1].y }
	slices.SortFunc(lines, func(a, b plotLine) int { return cmp.Compare(last(b), last(a)) })
	named := float64(plotTop - plotGap)
	for _, l := range lines {
		color := cmp.Or(plotColors[l.name], "#8b949e")
		var path []string
		for _, point := range l.points {
			px, py := x.at(float64(point.x)), y.at(point.y)
			path = append(path, fmt.Sprintf("%.1f,%.1f", px, py))
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>`+"\n", px, py, color)
		}
		fmt.Fprintf(b, `<polyline points="%s" class="l" stroke="%s"/>`+"\n", strings.Join(path, " "), color)
		named = max(named+plotGap, y.at(last(l)))
		fmt.Fprintf(b, `<circle cx="%.0f" cy="%.1f" r="4" fill="%s"/>`+"\n", x.to+18, named, color)
		word(x.to+28, named+4, "start", "", l.name)
	}
}

// decades are 1, 2 and 5 of each power of ten that is needed to have all from
// low to high between them.
func decades(low, high float64) []float64 {
	var ticks []float64
	for power := math.Floor(math.Log10(low)); ; power++ {
		for _, digit := range []float64{1, 2, 5} {
			v := digit * math.Pow(10, power)
			if v*2.5 < low {
				continue
			}
			ticks = append(ticks, v)
			if v > high {
				return ticks
			}
		}
	}
}
