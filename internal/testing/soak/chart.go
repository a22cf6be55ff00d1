package main

import (
	"fmt"
	"strings"
	"time"
)

// The chart, in pixels: one strip for each curve.
const (
	chartWidth, stripHeight = 760, 90
	chartLeft, chartRight   = 150, 20
	chartTop                = 30
	chartStyle              = `text{font:13px sans-serif;fill:#24292f}.t{font-weight:bold}.g{stroke:#8b949e;stroke-opacity:.35}` +
		`polyline{fill:none;stroke:#3b82f6;stroke-width:1.5}@media(prefers-color-scheme:dark){text{fill:#e6edf3}}`
)

// chart draws the samples: each number over time, from 0.
func chart(all []sample, long time.Duration) string {
	var b strings.Builder
	height := chartTop + stripHeight*len(curves) + 30
	title := fmt.Sprintf("Orla during %s of a week's events", long)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img"><title>%s</title><style>%s</style>`+"\n", chartWidth, height, title, chartStyle)
	fmt.Fprintf(&b, `<text x="10" y="18" class="t">%s</text>`+"\n", title)
	for i, c := range curves {
		top := float64(chartTop + stripHeight*i)
		c.strip(&b, all, long, top)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d">0</text><text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", chartLeft, height-10, chartWidth-chartRight, height-10, long)
	return b.String() + "</svg>\n"
}

// strip draws one of them below top.
func (c curve) strip(b *strings.Builder, all []sample, long time.Duration, top float64) {
	bottom, most := top+stripHeight-15, 0.0
	for _, s := range all {
		most = max(most, c.of(s)/c.per)
	}
	if most == 0 {
		return
	}
	fmt.Fprintf(b, `<line x1="%d" y1="%.0f" x2="%d" y2="%.0f" class="g"/>`+"\n", chartLeft, bottom, chartWidth-chartRight, bottom)
	fmt.Fprintf(b, `<text x="10" y="%.0f">%s</text><text x="10" y="%.0f">max %.3g %s</text>`+"\n", top+30, c.name, top+48, most, c.unit)
	var points []string
	for _, s := range all {
		v := c.of(s) / c.per
		if v == 0 {
			continue
		}
		x := chartLeft + float64(chartWidth-chartLeft-chartRight)*s.at.Seconds()/long.Seconds()
		points = append(points, fmt.Sprintf("%.1f,%.1f", x, bottom-v/most*(stripHeight-25)))
	}
	fmt.Fprintf(b, `<polyline points="%s"/>`+"\n", strings.Join(points, " "))
}
