package bundle

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/orla-project/orla/internal/packages/origin"
)

const (
	downloadTime = 10 * time.Minute
	maxRedirects = 5 // the releases of a forge are at another host
)

// Fetch writes a bundle into a new file, if its digest is right and it is not larger than a package may be. transport
// makes the requests; nil is for a new one.
func Fetch(ctx context.Context, d Download, file string, limits origin.Limits, transport http.RoundTripper) (err error) {
	most := cmp.Or(limits.Bytes, 256<<20)
	ctx, cancel := context.WithTimeoutCause(ctx, downloadTime, fmt.Errorf("the bundle did not come within %s", downloadTime))
	defer cancel()
	if transport == nil {
		transport = origin.Transport(time.Minute)
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(to *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects || to.URL.Scheme != "https" || origin.MayBeThisMachine(to.URL.String()) {
			return errors.New("it redirects to a place that is not accepted")
		}
		return nil
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.URL, nil)
	if err != nil {
		return err
	}
	if req.URL.Scheme != "https" || req.URL.User != nil {
		return errors.New("the bundle is not at an https URL")
	}
	resp, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return fmt.Errorf("the bundle cannot be fetched: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the bundle cannot be fetched: status %d", resp.StatusCode)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(file)
		}
	}()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(resp.Body, most+1))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("the bundle is cut off: %w", err)
	case n > most:
		return fmt.Errorf("%w: the bundle has over %d bytes", origin.ErrTooLarge, most)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != d.SHA256 {
		return fmt.Errorf("the bundle is not the one that the registry has: its SHA-256 is %s, and not %s", got, d.SHA256)
	}
	return nil
}
