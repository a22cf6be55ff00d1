package browser

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// What is compared of a view: so many fields, each with the mean of its colours. Letters of another font make few fields
// differ; a style that is missing, another scheme or a part at another place makes many. In a narrow window the font decides where
// each line ends, so only wide ones are compared: TestConsole looks at what is wider than a narrow one.
const (
	across, down = 48, 30
	tolerance    = 10   // of 255, in one field
	mayDiffer    = 0.06 // of the fields
)

// TestO4Looks compares views with pictures of how they are to look, with a tolerance. LOOKS=write writes the pictures again.
func TestO4Looks(t *testing.T) {
	b := newTab(t)
	o := newOrla(t, folder(t, map[string]string{
		"alpha": "#!/bin/sh\necho alpha\n", "beta": "#!/bin/sh\necho beta\n",
		"gamma/main.py": faults("gamma", ""), "gamma/tool.yaml": toolFile("gamma", ""),
	}), "version: 1\n")
	b.do(chromedp.Navigate(o.run("console", "--no-browser")))
	b.wait(`document.querySelectorAll('.tools .tr:not(.head)').length === 3 && [...document.querySelectorAll('.tools .badge')].some((e) => e.textContent === 'Ready')`)
	o.run("call", "alpha")
	for _, view := range []struct{ name, hash, ready string }{
		{"tools", "#/tools", `document.querySelectorAll('.tools .tr:not(.head)').length === 3`},
		{"tool", "#/tool/gamma", `document.querySelector('.story strong')`},
		{"try", "#/try/gamma", `document.querySelector('.go .primary')`},
		{"approvals", "#/approvals", `document.querySelector('.passkeys button')`},
	} {
		b.visit(view.hash)
		b.wait(view.ready)
		for _, scheme := range []string{"light", "dark"} {
			b.look(1440, 900, scheme)
			b.js("(document.activeElement.blur(), 1)")
			compare(t, filepath.Join("looks", view.name+"-"+scheme+".png"), b.fields())
		}
	}
	b.fine()
}

// fields returns what is compared of what the tab shows, when it does not change any more.
func (b *tab) fields() *image.NRGBA {
	b.t.Helper()
	var last *image.NRGBA
	for range 20 {
		shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			b.t.Fatal(err)
		}
		whole, err := png.Decode(bytes.NewReader(shot))
		if err != nil {
			b.t.Fatal(err)
		}
		now := means(whole)
		if last != nil && differing(last, now, 2) == 0 {
			return now
		}
		last = now
	}
	return last
}

// means returns a small picture of a large one.
func means(whole image.Image) *image.NRGBA {
	small, size := image.NewNRGBA(image.Rect(0, 0, across, down)), whole.Bounds().Size()
	for y := range down {
		for x := range across {
			var sum [3]uint64
			n := uint64(0)
			for v := y * size.Y / down; v < (y+1)*size.Y/down; v++ {
				for u := x * size.X / across; u < (x+1)*size.X/across; u++ {
					r, g, b, _ := whole.At(u, v).RGBA()
					sum[0], sum[1], sum[2], n = sum[0]+uint64(r>>8), sum[1]+uint64(g>>8), sum[2]+uint64(b>>8), n+1
				}
			}
			small.SetNRGBA(x, y, color.NRGBA{uint8(sum[0] / n), uint8(sum[1] / n), uint8(sum[2] / n), 255})
		}
	}
	return small
}

// differing counts the fields whose colours are further apart than most.
func differing(a, b *image.NRGBA, most int) (n int) {
	for i := 0; i < len(a.Pix); i += 4 {
		for c := range 3 {
			if d := int(a.Pix[i+c]) - int(b.Pix[i+c]); d > most || -d > most {
				n++
				break
			}
		}
	}
	return n
}

// compare reports a view that does not look as it is to look.
func compare(t *testing.T, file string, now *image.NRGBA) {
	t.Helper()
	var out bytes.Buffer
	if err := png.Encode(&out, now); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("LOOKS") == "write" {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
		return
	}
	kept, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := means(kept)
	n := differing(want, now, tolerance)
	t.Logf("%s: %.1f %% of the fields differ", file, 100*float64(n)/(across*down))
	if float64(n) > mayDiffer*across*down {
		t.Errorf("%s: %d of %d fields differ. If it is to look so, LOOKS=write writes the pictures again", file, n, across*down)
	}
}
