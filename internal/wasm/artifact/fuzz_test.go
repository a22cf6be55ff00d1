package artifact

import (
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// What a registry gives as a manifest leads to a layer or to a reason, and never
// asks for something without a digest that holds.
func FuzzManifest(f *testing.F) {
	for _, seed := range []string{
		`{"layers":[{"mediaType":"application/wasm","digest":"sha256:0000000000000000000000000000000000000000000000000000000000000000","size":10}]}`,
		`{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:../..","platform":{"os":"wasip1","architecture":"wasm"}}]}`,
		`{"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[null,{}]}`,
		`{"layers":[{"size":-1}],"blobs":[{"size":9223372036854775807}]}`, `[]`, `{`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		i := &image{store: New(Options{})}
		asked := 0
		module, err := i.module(digest.FromBytes(data), func(want ocispec.Descriptor, max int64) ([]byte, error) {
			if asked++; asked == 1 {
				return data, nil
			}
			if err := want.Digest.Validate(); err != nil || max > i.store.opts.MaxBytes {
				t.Errorf("%q with %d bytes is asked for: %v", want.Digest, max, err)
			}
			return nil, errNotKept
		})
		if err == nil {
			t.Errorf("%q is a module: %q", data, module)
		}
	})
}
