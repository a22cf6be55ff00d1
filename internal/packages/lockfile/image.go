package lockfile

import (
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/keys"
)

// PinImage makes the tool of an installed package run in the image that it was installed with: the tag that the package names may
// be moved. A lock that was written before it had digests of images leaves the tag as it is.
func (p *Package) PinImage(t *manifest.Tool) {
	if t.Isolation.Image != "" && p.Image != "" {
		t.Isolation.Image = keys.PinnedImage(t.Isolation.Image, p.Image)
	}
}
