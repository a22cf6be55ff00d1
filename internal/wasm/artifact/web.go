package artifact

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/service/outbound"
)

// web is a module at an https:// address.
type web struct {
	store  *Store
	key    key
	url    *url.URL
	pinned digest.Digest // "": whatever is there
	known  entry
}

// String implements source.
func (w *web) String() string { return outbound.Origin(w.url) + w.url.EscapedPath() }

// settled implements source.
func (w *web) settled(ctx context.Context) ([]byte, bool) {
	switch {
	case w.pinned != "":
		return w.store.kept.blob(ctx, w.pinned, w.store.opts.MaxBytes)
	case w.known.fresh():
		return w.store.kept.blob(ctx, w.known.Digest, w.store.opts.MaxBytes)
	}
	return nil, false
}

// kept implements source.
func (w *web) kept() bool { return w.pinned == "" && w.store.kept.has(w.known.Digest) }

// former implements source.
func (w *web) former(ctx context.Context) []byte {
	if w.pinned != "" {
		return nil
	}
	module, _ := w.store.kept.blob(ctx, w.known.Digest, w.store.opts.MaxBytes)
	return module
}

// putOff implements source.
func (w *web) putOff() { w.looked(time.Now().Add(pause - lastingFor)) }

// looked records that the address still had the same module at a time.
func (w *web) looked(at time.Time) {
	w.known.Looked = at
	w.store.kept.putEntry(w.key, w.known)
}

// look implements source.
func (w *web) look(ctx context.Context, kept bool) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url.String(), nil)
	if err != nil {
		return nil, invalid("its address is not a URL")
	}
	req.Header.Set("Accept", "application/wasm, application/octet-stream;q=0.9, */*;q=0.1")
	req.Header.Set("Accept-Encoding", "identity") // the digest and the size are those of the file
	req.Header.Set("User-Agent", w.store.opts.UserAgent)
	if kept {
		w.unlessChanged(req)
	}
	resp, err := w.store.tls().Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // everything needed was read
	if resp.StatusCode == http.StatusNotModified && kept {
		return w.unchanged(ctx)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, statusFault(resp.StatusCode, outbound.RetryAfter(resp.Header))
	}
	return w.take(ctx, resp)
}

// unchanged returns the kept module after the server said that it is unchanged.
func (w *web) unchanged(ctx context.Context) ([]byte, error) {
	former := w.former(ctx)
	if former == nil { // it was removed from the cache
		return nil, fault.New(fault.ExecutionFailed, "the kept module is gone").Again(true)
	}
	w.looked(time.Now())
	return former, nil
}

// unlessChanged makes req conditional: the server answers 304 if the module is unchanged.
func (w *web) unlessChanged(req *http.Request) {
	if w.known.ETag != "" {
		req.Header.Set("If-None-Match", w.known.ETag)
	}
	if w.known.LastModified != "" {
		req.Header.Set("If-Modified-Since", w.known.LastModified)
	}
}

// take reads the module, and keeps it if it is valid.
func (w *web) take(ctx context.Context, resp *http.Response) ([]byte, error) {
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, invalid("the server sends it with an unexpected content encoding")
	}
	module, err := readBody(ctx, resp.Body, resp.ContentLength, w.store.opts.MaxBytes)
	if err != nil {
		return nil, err
	}
	got := digest.FromBytes(module)
	if w.pinned != "" && got != w.pinned {
		return nil, invalid("its digest is %s, and not %s as the definition has it", got, w.pinned)
	}
	if err := checkModule(module); err != nil {
		return nil, invalid("%v", err)
	}
	w.store.kept.putBlob(got, module)
	if w.pinned == "" {
		w.store.kept.putEntry(w.key, entry{
			Digest: got, ETag: resp.Header.Get("ETag"), LastModified: resp.Header.Get("Last-Modified"), Looked: time.Now(),
		})
	}
	return module, nil
}

// readBody reads a body of size bytes; size is -1 if it is not known. It refuses a body over max
// bytes, and reserves memory before it reads.
func readBody(ctx context.Context, r io.Reader, size, max int64) ([]byte, error) {
	if size > max {
		return nil, tooLarge(max)
	}
	data, err := io.ReadAll(turns.AccountOf(ctx).Reader(ctx, io.LimitReader(r, max+1)))
	switch {
	case err != nil:
		return nil, err
	case int64(len(data)) > max:
		return nil, tooLarge(max)
	}
	return data, nil
}

func tooLarge(max int64) *fault.Error {
	return invalid("it is over %d MiB, which is the limit", max>>20)
}

// statusFault is the error for a status other than 200.
func statusFault(status int, after time.Duration) *fault.Error {
	code, retry := fault.RuntimePolicyInvalid, (*bool)(nil)
	switch {
	case status == http.StatusUnauthorized:
		code = fault.AuthInvalid
	case status == http.StatusForbidden:
		code = fault.AuthForbidden
	case status == http.StatusTooManyRequests:
		code = fault.RateLimited
	case status >= 500, status == http.StatusRequestTimeout:
		code, retry = fault.ExecutionFailed, new(true)
	}
	f := fault.New(code, "the server answered %d %s", status, http.StatusText(status))
	f.Retry, f.RetryAfter = retry, after
	return f
}

// tls returns a client that only uses TLS, even after a redirect.
func (s *Store) tls() *http.Client {
	client := *s.opts.Client.Following()
	client.Transport = tlsOnly{client.Transport}
	return &client
}

type tlsOnly struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t tlsOnly) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" {
		return nil, invalid("it leads to %s, which is not https", outbound.Origin(req.URL))
	}
	return t.next.RoundTrip(req)
}
