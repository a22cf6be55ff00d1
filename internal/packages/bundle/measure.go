package bundle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/orla-project/orla/internal/packages/origin"
)

const (
	measureTime  = time.Minute
	mostManifest = 4 << 20 // that registries have to accept
	mostVariants = 16      // of one image for one platform
	mostLayers   = 1000
)

// imageManifest is the manifest of an image, or an index of several.
type imageManifest struct {
	Manifests []ocispec.Descriptor `json:"manifests"`
	Config    ocispec.Descriptor   `json:"config"`
	Layers    []ocispec.Descriptor `json:"layers"`
}

// Measure asks the registry of the image, without a login, how many bytes it sends for this platform. Image and the resource name
// the digest of what was measured from then on, so that it is also what is pulled. transport makes the requests; nil is for a new one.
func (m *Made) Measure(ctx context.Context, transport http.RoundTripper) (size int64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, measureTime, fmt.Errorf("its registry did not answer within %s", measureTime))
	defer cancel()
	ref, err := referenceOf(m.Image)
	if err != nil {
		return 0, err
	}
	if transport == nil {
		transport = origin.Transport(measureTime)
	}
	client := &auth.Client{Client: &http.Client{Transport: onlyAway{ref.Host(), transport}}, Cache: auth.NewSingleContextCache(), ClientID: "orla"}
	repo := &remote.Repository{Client: client, Reference: ref, MaxMetadataBytes: mostManifest}
	top, body, err := fetch(ctx, repo, ref.Reference)
	if err != nil && origin.OnThisMachine("https://"+ref.Host()) { // engines try that there too
		repo.PlainHTTP = true
		top, body, err = fetch(ctx, repo, ref.Reference)
	}
	if err == nil {
		size, err = total(ctx, repo, body)
	}
	if err != nil {
		return 0, said(ctx, err)
	}
	m.pin(top.Digest)
	return size, nil
}

// referenceOf reads the name of an image as engines do.
func referenceOf(image string) (registry.Reference, error) {
	if origin.ImageHost(image) == "" {
		image = "docker.io/" + image
	}
	ref, err := registry.ParseReference(image)
	if err != nil {
		return ref, fmt.Errorf("%q is not the name of an image", line(image, 100))
	}
	if ref.Registry == "docker.io" && !strings.Contains(ref.Repository, "/") {
		ref.Repository = "library/" + ref.Repository
	}
	ref.Reference = cmp.Or(ref.Reference, "latest")
	return ref, nil
}

// onlyAway sends requests to a host, and otherwise only to others that are not this machine: a registry says where its
// tokens are, and may redirect.
type onlyAway struct {
	host string
	by   http.RoundTripper
}

func (o onlyAway) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != o.host && (req.URL.Scheme != "https" || origin.MayBeThisMachine(req.URL.String())) {
		return nil, errors.New("it names a place that is not accepted")
	}
	return o.by.RoundTrip(req)
}

// fetch fetches a manifest, and checks its digest.
func fetch(ctx context.Context, repo *remote.Repository, reference string) (of ocispec.Descriptor, text []byte, err error) {
	of, body, err := repo.Manifests().FetchReference(ctx, reference)
	if err != nil {
		return of, nil, err
	}
	defer func() { _ = body.Close() }() // all that is needed was read
	if of.Size > mostManifest {
		return of, nil, fmt.Errorf("%w: its manifest has over %d bytes", origin.ErrTooLarge, mostManifest)
	}
	text, err = content.ReadAll(body, of)
	return of, text, err
}

// total returns the bytes of an image: of its largest variant for this platform, since an engine may choose any.
func total(ctx context.Context, repo *remote.Repository, text []byte) (size int64, err error) {
	var top imageManifest
	if err := json.Unmarshal(text, &top); err != nil {
		return 0, err
	}
	if len(top.Manifests) == 0 {
		return top.size()
	}
	variants := 0
	for _, one := range top.Manifests {
		if p := one.Platform; p != nil && (p.OS != "linux" || p.Architecture != runtime.GOARCH) {
			continue
		}
		if variants++; variants > mostVariants {
			return 0, fmt.Errorf("it has over %d variants for this platform", mostVariants)
		}
		if err := one.Digest.Validate(); err != nil {
			return 0, err
		}
		_, text, err := fetch(ctx, repo, one.Digest.String())
		if err != nil {
			return 0, err
		}
		var variant imageManifest
		if err := json.Unmarshal(text, &variant); err != nil {
			return 0, err
		}
		n, err := variant.size()
		if err != nil {
			return 0, err
		}
		size = max(size, n)
	}
	if variants == 0 {
		return 0, fmt.Errorf("it is not for linux/%s", runtime.GOARCH)
	}
	return size, nil
}

// size returns the bytes of what a manifest names.
func (m *imageManifest) size() (n int64, err error) {
	if len(m.Manifests) > 0 || len(m.Layers) == 0 || len(m.Layers) > mostLayers || m.Config.Size < 0 {
		return 0, errors.New("its manifest is not one of an image")
	}
	n = m.Config.Size
	for _, layer := range m.Layers {
		const most = 1 << 50 // so that the sum has room
		if layer.Size < 0 || layer.Size > most {
			return 0, errors.New("its manifest has a layer without a size")
		}
		n += layer.Size
	}
	return n, nil
}

// said is an error in words that a terminal may be shown: registries write parts of them.
func said(ctx context.Context, err error) error {
	refused, isRefused := errors.AsType[*errcode.ErrorResponse](err)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case isRefused && (refused.StatusCode == http.StatusUnauthorized || refused.StatusCode == http.StatusForbidden), errors.Is(err, auth.ErrBasicCredentialNotFound):
		return errors.New("its registry does not say it without a login")
	case isRefused:
		return fmt.Errorf("its registry answers with status %d", refused.StatusCode)
	case errors.Is(err, errdef.ErrNotFound):
		return errors.New("its registry does not have it")
	}
	return errors.New(line(err.Error(), 300))
}
