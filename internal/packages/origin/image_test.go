package origin_test

import (
	"testing"

	"github.com/orla-project/orla/internal/packages/origin"
)

// SPEC M7: an image at an address of this machine, or of the network next to it, is told from one elsewhere.
func TestM7ImagesOnThisMachine(t *testing.T) {
	for image, want := range map[string]bool{
		"169.254.169.254:80/latest/meta:1": true, "127.0.0.1/x": true, "localhost:5000/x": true, "localhost/x": true, "[::1]:5000/x": true,
		"alpine": false, "library/alpine:3": false, "ghcr.io/x/y@sha256:0": false, "docker.io/library/alpine": false, "": false, "localhost:5000": false,
	} {
		if got := origin.ImageMayBeThisMachine(image); got != want {
			t.Errorf("%s: %v", image, got)
		}
	}
}
