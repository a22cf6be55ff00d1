package artifact

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// maxValues bounds the values of a manifest: a layer takes 200 times its size in memory.
const maxValues = 10_000

// Media types of manifests, of OCI and of Docker.
const (
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	dockerIndex    = "application/vnd.docker.distribution.manifest.list.v2+json"
	ociArtifact    = "application/vnd.oci.artifact.manifest.v1+json" // before OCI 1.1
)

// wasmLayers are the media types of a layer with a module.
var wasmLayers = []string{
	"application/wasm",
	"application/vnd.wasm.content.layer.v1+wasm",
	"application/vnd.module.wasm.content.layer.v1+wasm",
}

// componentLayer begins the media types of a layer with a component.
const componentLayer = "application/vnd.bytecodealliance.wasm.component."

func isManifest(d ocispec.Descriptor) bool {
	return slices.Contains([]string{ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex, dockerManifest, dockerIndex, ociArtifact}, d.MediaType)
}

// document is a manifest or an index.
type document struct {
	MediaType string               `json:"mediaType"`
	Manifests []ocispec.Descriptor `json:"manifests"`
	Layers    []ocispec.Descriptor `json:"layers"`
	Blobs     []ocispec.Descriptor `json:"blobs"` // the layers of an ociArtifact
}

// module returns the module of a manifest or index. get returns the parts, by their valid digests;
// it checks the digest and the largest size max.
func (i *image) module(top digest.Digest, get func(want ocispec.Descriptor, max int64) ([]byte, error)) ([]byte, error) {
	at := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: top}
	for range maxDepth {
		data, err := get(at, maxManifest)
		if err != nil {
			return nil, err
		}
		doc, err := parseDocument(data)
		if err != nil {
			return nil, err
		}
		if len(doc.Manifests) > 0 {
			if at, err = named(choosePlatform(doc.Manifests)); err != nil {
				return nil, err
			}
			continue
		}
		layer, err := named(chooseLayer(doc))
		if err != nil {
			return nil, err
		}
		if max := i.store.opts.MaxBytes; layer.Size > max {
			return nil, tooLarge(max)
		}
		module, err := get(layer, i.store.opts.MaxBytes)
		if err != nil {
			return nil, err
		}
		if err := checkModule(module); err != nil {
			return nil, invalid("%v", err)
		}
		return module, nil
	}
	return nil, invalid("its index holds indexes more than %d deep", maxDepth-1)
}

// named returns a choice if its digest is valid.
func named(d ocispec.Descriptor, err error) (ocispec.Descriptor, error) {
	if err == nil && d.Digest.Validate() != nil {
		err = invalid("its manifest has an invalid digest")
	}
	return d, err
}

func parseDocument(data []byte) (document, error) {
	var doc document
	if rawjson.Valid(data) && rawjson.Values(data) > maxValues {
		return doc, invalid("its manifest has more than %d values", maxValues)
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return doc, invalid("its manifest is not a manifest in JSON")
	}
	if doc.MediaType != "" && !isManifest(ocispec.Descriptor{MediaType: doc.MediaType}) {
		return doc, invalid("its manifest is of another kind than OCI's and Docker's")
	}
	doc.Layers = append(doc.Layers, doc.Blobs...)
	// Different readers would read such a document differently.
	if len(doc.Manifests) > 0 && len(doc.Layers) > 0 {
		return doc, invalid("its manifest is an index at the same time")
	}
	return doc, nil
}

// choosePlatform returns the one manifest of an index that is for WebAssembly.
func choosePlatform(all []ocispec.Descriptor) (ocispec.Descriptor, error) {
	var fit, other []ocispec.Descriptor
	for _, m := range all {
		switch {
		case !isManifest(m), m.Platform != nil && m.Platform.OS == "unknown": // an attestation
		case m.Platform != nil && strings.HasPrefix(m.Platform.Architecture, "wasm"):
			fit = append(fit, m)
		default:
			other = append(other, m)
		}
	}
	if len(fit) > 1 {
		if wasi := slices.IndexFunc(fit, func(m ocispec.Descriptor) bool { return m.Platform.OS == "wasip1" || m.Platform.OS == "wasi" }); wasi >= 0 {
			return fit[wasi], nil
		}
		return ocispec.Descriptor{}, invalid("its index has %d manifests for WebAssembly; name one by its digest", len(fit))
	}
	if len(fit) == 1 {
		return fit[0], nil
	}
	if len(other) == 1 && other[0].Platform == nil {
		return other[0], nil
	}
	return ocispec.Descriptor{}, invalid("its index has no manifest for WebAssembly (architecture wasm)")
}

// chooseLayer returns the one layer that has a module.
func chooseLayer(doc document) (ocispec.Descriptor, error) {
	var modules, components []ocispec.Descriptor
	for _, layer := range doc.Layers {
		switch {
		case slices.Contains(wasmLayers, layer.MediaType):
			modules = append(modules, layer)
		case strings.HasPrefix(layer.MediaType, componentLayer):
			components = append(components, layer)
		}
	}
	switch {
	case len(modules) == 1:
		return modules[0], nil
	case len(modules) > 1:
		return ocispec.Descriptor{}, invalid("it has %d layers that are modules; want one", len(modules))
	case len(components) > 0:
		return ocispec.Descriptor{}, invalid("it is a WebAssembly component, and not a module; build it for wasip1")
	case len(doc.Layers) != 1:
		return ocispec.Descriptor{}, invalid("it has no layer of the type %s", wasmLayers[0])
	case strings.Contains(doc.Layers[0].MediaType, ".tar"):
		return ocispec.Descriptor{}, invalid("it is a container image, and not a module: its layer is an archive; push the module itself, as a layer of the type %s", wasmLayers[0])
	}
	return doc.Layers[0], nil
}
