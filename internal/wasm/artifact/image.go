package artifact

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/outbound"
)

const (
	maxManifest = 4 << 20 // the size that registries have to accept
	maxDepth    = 3       // nesting of indexes
	maxLogged   = 300     // bytes of a library's error message in the log
)

// image is a module at an oci:// address.
type image struct {
	store  *Store
	key    key
	ref    registry.Reference // with a tag or a digest
	pinned digest.Digest      // of the manifest or index; "": whatever the tag names
	known  entry              // what the tag had

	repo *remote.Repository // set when a request is needed
	// challenged says that the registry asked for credentials.
	challenged bool
}

// String implements source.
func (i *image) String() string { return i.key.address }

// settled implements source.
func (i *image) settled(ctx context.Context) ([]byte, bool) {
	switch {
	case i.pinned != "":
		return i.find(ctx, i.pinned)
	case i.known.fresh():
		return i.find(ctx, i.known.Digest)
	}
	return nil, false
}

// kept implements source. A manifest and its module are kept together.
func (i *image) kept() bool { return i.store.kept.has(i.known.Digest) }

// former implements source.
func (i *image) former(ctx context.Context) []byte {
	if i.known.Digest == "" {
		return nil
	}
	module, _ := i.find(ctx, i.known.Digest)
	return module
}

// putOff implements source.
func (i *image) putOff() { i.looked(i.known.Digest, time.Now().Add(pause-lastingFor)) }

// looked records which manifest the tag named at a time.
func (i *image) looked(manifest digest.Digest, at time.Time) {
	i.store.kept.putEntry(i.key, entry{Digest: manifest, Looked: at})
}

// errNotKept is the error of a lookup without the network.
var errNotKept = errors.New("not kept")

// find returns the module of a manifest if both are kept.
func (i *image) find(ctx context.Context, manifest digest.Digest) ([]byte, bool) {
	module, err := i.module(manifest, func(want ocispec.Descriptor, max int64) ([]byte, error) {
		if data, ok := i.store.kept.blob(ctx, want.Digest, max); ok {
			return data, nil
		}
		return nil, errNotKept
	})
	return module, err == nil
}

// look implements source.
func (i *image) look(ctx context.Context, _ bool) ([]byte, error) {
	module, err := i.pull(ctx)
	if err != nil {
		return nil, i.why(ctx, err)
	}
	return module, nil
}

func (i *image) pull(ctx context.Context) ([]byte, error) {
	if err := i.connect(ctx); err != nil {
		return nil, err
	}
	manifest := i.pinned
	if manifest == "" {
		desc, err := i.repo.Resolve(ctx, i.ref.Reference)
		if err != nil {
			return nil, err
		}
		manifest = desc.Digest
	}
	module, err := i.module(manifest, func(want ocispec.Descriptor, max int64) ([]byte, error) {
		return i.blob(ctx, want, max)
	})
	if err != nil {
		return nil, err
	}
	if i.pinned == "" { // only now, when it is known to be a module
		i.looked(manifest, time.Now())
	}
	return module, nil
}

// connect sets repo, with the credentials for its host. oras sends them to that host only, and to
// the token service that the registry names, which must use TLS: the registry decides who may check
// its credentials.
func (i *image) connect(ctx context.Context) error {
	cred, err := i.store.credential(ctx, i.key.pull, i.ref.Registry)
	if err != nil {
		return err
	}
	client := &auth.Client{
		Client: i.store.tls(),
		Cache:  auth.NewSingleContextCache(), // a cache that is discarded with repo
		Credential: func(_ context.Context, host string) (auth.Credential, error) {
			i.challenged = true
			if host != i.ref.Host() {
				return auth.EmptyCredential, nil
			}
			return cred, nil
		},
		ClientID: "orla",
	}
	client.SetUserAgent(i.store.opts.UserAgent)
	i.repo = &remote.Repository{Client: client, Reference: i.ref, MaxMetadataBytes: maxManifest}
	return nil
}

// blob returns the blob with the digest of want, from the cache or the registry.
func (i *image) blob(ctx context.Context, want ocispec.Descriptor, max int64) ([]byte, error) {
	if data, ok := i.store.kept.blob(ctx, want.Digest, max); ok {
		return data, nil
	}
	var data []byte
	var err error
	if isManifest(want) {
		data, err = i.fetchManifest(ctx, want.Digest)
	} else {
		data, err = i.fetchLayer(ctx, want)
	}
	if err != nil {
		return nil, err
	}
	if got := want.Digest.Algorithm().FromBytes(data); got != want.Digest {
		return nil, invalid("the registry returned %s instead of %s", got, want.Digest)
	}
	i.store.kept.putBlob(want.Digest, data)
	return data, nil
}

func (i *image) fetchManifest(ctx context.Context, d digest.Digest) ([]byte, error) {
	desc, body, err := i.repo.Manifests().FetchReference(ctx, d.String())
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }() // everything needed was read
	return readBody(ctx, body, desc.Size, maxManifest)
}

func (i *image) fetchLayer(ctx context.Context, want ocispec.Descriptor) ([]byte, error) {
	body, err := i.repo.Blobs().Fetch(ctx, want)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }() // everything needed was read
	return readBody(ctx, body, want.Size, i.store.opts.MaxBytes)
}

// specified are the error codes of the OCI specification; registries may return others of their own.
var specified = []string{
	errcode.ErrorCodeBlobUnknown, errcode.ErrorCodeManifestUnknown, errcode.ErrorCodeNameUnknown, errcode.ErrorCodeNameInvalid,
	errcode.ErrorCodeUnauthorized, errcode.ErrorCodeDenied, errcode.ErrorCodeUnsupported, "TOOMANYREQUESTS",
}

// why returns the error for a failed request to a registry. The library's message quotes the
// registry, and goes only to the log.
func (i *image) why(ctx context.Context, err error) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if refused, ok := errors.AsType[*errcode.ErrorResponse](err); ok {
		f := statusFault(refused.StatusCode, 0)
		for _, e := range refused.Errors {
			if slices.Contains(specified, e.Code) {
				f.Reason += " (" + e.Code + ")"
				break
			}
		}
		f.Reason += i.hint(f.Code)
		return f
	}
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		return invalid("the registry does not have it")
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		return fault.New(fault.AuthInvalid, "the registry requires authentication%s", i.hint(fault.AuthInvalid))
	case errors.Is(err, content.ErrMismatchedDigest):
		return invalid("the registry's answer does not match the digest")
	}
	code, reason := fault.ExecutionFailed, "the registry gave an answer that cannot be used"
	if i.challenged {
		code, reason = fault.AuthInvalid, "the registry cannot be logged in to"
	}
	f := fault.New(code, "%s", reason)
	f.Err = errors.New(outbound.Words(queries.ReplaceAllString(err.Error(), ""), maxLogged))
	return f
}

// queries matches the query parts of URLs, which may contain a secret.
var queries = regexp.MustCompile(`\?[^\s"]*`)

// hint says what to do about a registry that refuses access.
func (i *image) hint(code fault.Code) string {
	switch {
	case code != fault.AuthInvalid && code != fault.AuthForbidden:
		return ""
	case i.key.pull.IsZero():
		return "; is it private? Then name a secret in image_pull_secret"
	}
	return "; it does not accept the secret " + i.key.pull.String()
}
