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
	maxManifest = 4 << 20 // what registries have to accept
	maxDepth    = 3       // indexes in an index
	maxLogged   = 300     // bytes of a library's own words
)

// image is a module at an oci:// address.
type image struct {
	store  *Store
	key    key
	ref    registry.Reference // to a tag, or to a digest
	pinned digest.Digest      // of the manifest or index; "": whatever the tag names
	known  entry              // of the tag

	repo *remote.Repository // once somebody has to be asked
	// challenged: the registry wanted to know who asks.
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

// kept implements source. A module is kept as long as its manifest.
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

// looked remembers that the tag named a manifest at the time.
func (i *image) looked(manifest digest.Digest, at time.Time) {
	i.store.kept.putEntry(i.key, entry{Digest: manifest, Looked: at})
}

// errNotKept is why something is not found without asking the registry.
var errNotKept = errors.New("not kept")

// find returns the module of a manifest if all of it is kept.
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
	if i.pinned == "" { // only now: it is known to be a module
		i.looked(manifest, time.Now())
	}
	return module, nil
}

// connect makes the repository, with the credentials that are meant for its host.
// No others are ever given to it, and oras gives these to nobody else but the
// token service that the registry names, which has to speak TLS: it is the registry
// that they are a secret of, and so its own matter who checks them.
func (i *image) connect(ctx context.Context) error {
	cred, err := i.store.credential(ctx, i.key.pull, i.ref.Registry)
	if err != nil {
		return err
	}
	client := &auth.Client{
		Client: i.store.tls(),
		Cache:  auth.NewSingleContextCache(), // what it learns is forgotten with it
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

// blob returns what has the digest of want, which is kept or else fetched.
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
		return nil, invalid("the registry gave %s where %s was asked for", got, want.Digest)
	}
	i.store.kept.putBlob(want.Digest, data)
	return data, nil
}

func (i *image) fetchManifest(ctx context.Context, d digest.Digest) ([]byte, error) {
	desc, body, err := i.repo.Manifests().FetchReference(ctx, d.String())
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }() // what was needed of it was read
	return readBody(ctx, body, desc.Size, maxManifest)
}

func (i *image) fetchLayer(ctx context.Context, want ocispec.Descriptor) ([]byte, error) {
	body, err := i.repo.Blobs().Fetch(ctx, want)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }() // what was needed of it was read
	return readBody(ctx, body, want.Size, i.store.opts.MaxBytes)
}

// specified are the codes of errors that registries may give; others are their
// own words.
var specified = []string{
	errcode.ErrorCodeBlobUnknown, errcode.ErrorCodeManifestUnknown, errcode.ErrorCodeNameUnknown, errcode.ErrorCodeNameInvalid,
	errcode.ErrorCodeUnauthorized, errcode.ErrorCodeDenied, errcode.ErrorCodeUnsupported, "TOOMANYREQUESTS",
}

// why is why a registry did not give what it was asked for. What the library says
// quotes what the registry has said, and stays in the log.
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
		return fault.New(fault.AuthInvalid, "the registry wants to know who asks%s", i.hint(fault.AuthInvalid))
	case errors.Is(err, content.ErrMismatchedDigest):
		return invalid("what the registry gave is not what its digest says")
	}
	code, reason := fault.ExecutionFailed, "the registry gave an answer that cannot be used"
	if i.challenged {
		code, reason = fault.AuthInvalid, "the registry cannot be logged in to"
	}
	f := fault.New(code, "%s", reason)
	f.Err = errors.New(outbound.Words(queries.ReplaceAllString(err.Error(), ""), maxLogged))
	return f
}

// queries are the parts of URLs that may hold a secret.
var queries = regexp.MustCompile(`\?[^\s"]*`)

// hint is what to do about a registry that does not let us in.
func (i *image) hint(code fault.Code) string {
	switch {
	case code != fault.AuthInvalid && code != fault.AuthForbidden:
		return ""
	case i.key.pull.IsZero():
		return "; is it private? Then name a secret in image_pull_secret"
	}
	return "; it does not accept the secret " + i.key.pull.String()
}
