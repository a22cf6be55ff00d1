package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/packages/origin"
)

const (
	maxServer  = 256 << 10
	maxAnswer  = 4 << 20
	maxPages   = 10
	maxFound   = 500
	perPage    = 100
	maxCursor  = 1024
	apiTimeout = 20 * time.Second // of a request, with its answer
)

// api is a service with the API of MCP registries.
type api struct {
	registries *Registries
	url        string
	cache      cache
}

// newClient returns a client that follows redirects on the same host only: nobody but the registry that was
// configured answers.
func newClient(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = origin.Transport(apiTimeout)
	}
	return &http.Client{Transport: transport, Timeout: apiTimeout, CheckRedirect: func(to *http.Request, via []*http.Request) error {
		if from := via[0].URL; len(via) > 3 || to.URL.Host != from.Host || to.URL.Scheme != from.Scheme {
			return errors.New("it redirects to another place")
		}
		return nil
	}}
}

// parseHTTP parses a URL of http or https.
func parseHTTP(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, errors.New("it is not an http or https URL")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return u, errors.New("it has a user, a query or a fragment")
	}
	return u, nil
}

// baseOf returns the base of an API, whether or not a URL has the version and the path.
func baseOf(text string) string {
	base := strings.TrimRight(text, "/")
	for _, end := range []string{"/servers", "/v0.1", "/v0"} {
		base = strings.TrimRight(strings.TrimSuffix(base, end), "/")
	}
	return base + "/v0.1/servers"
}

var errMissing = errors.New("the registry does not have it")

// statusError is an answer with another status than 200.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("it answers with status %d", int(e)) }

var errNotJSON = errors.New("the answer is not JSON")

// get returns an answer, at most an hour old, or older without a network. age is 0 for a fresh one.
func (a *api) get(ctx context.Context, path string) (data []byte, age time.Duration, err error) {
	name := digest(path)
	kept, age, there := a.cache.read(name, maxAnswer)
	if there && age < fresh {
		return kept, 0, nil
	}
	data, err = a.ask(ctx, path)
	switch {
	case err == nil:
		_ = a.cache.write(name, data) // without it, it is asked for again
		return data, 0, nil
	case there && !errors.Is(ctx.Err(), context.Canceled) && !errors.Is(err, errMissing):
		return kept, age, nil
	}
	return nil, 0, err
}

// ask makes a request.
func (a *api) ask(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, baseOf(a.url)+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", a.registries.options.UserAgent)
	resp, err := a.registries.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err // without the URL
		}
		return nil, fmt.Errorf("no answer: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusGone:
		return nil, errMissing
	case resp.StatusCode != http.StatusOK:
		return nil, statusError(resp.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the answer is cut off: %w", err)
	case len(data) > maxAnswer:
		return nil, fmt.Errorf("the answer has over %d bytes", maxAnswer)
	case !json.Valid(data):
		return nil, errNotJSON
	}
	return data, nil
}

// page is a part of a list.
type page struct {
	Servers  []json.RawMessage `json:"servers"`
	Metadata struct {
		NextCursor string `json:"nextCursor"`
	} `json:"metadata"`
}

// speaks reports whether the API is there. An error says that this is not known.
func (a *api) speaks(ctx context.Context) (bool, error) {
	data, err := a.ask(ctx, "?limit=1")
	var p page
	var status statusError
	switch {
	case errors.Is(err, errMissing), errors.Is(err, errNotJSON), errors.As(err, &status) && status < 500:
		return false, nil // hosts of repositories answer so
	case err != nil:
		return false, err
	}
	return json.Unmarshal(data, &p) == nil && p.Servers != nil, nil
}

func (a *api) find(ctx context.Context, name, version string) (Entry, error) {
	version = cmp.Or(version, "latest")
	data, age, err := a.get(ctx, "/"+url.PathEscape(name)+"/versions/"+url.PathEscape(version))
	if errors.Is(err, errMissing) {
		return Entry{}, &NotFoundError{Name: name, Nearest: a.nearest(ctx, name)}
	}
	if err != nil {
		return Entry{}, err
	}
	entry, err := ParseServer(data, a.url)
	switch {
	case err != nil:
		return Entry{}, err
	case entry.Name != name:
		return Entry{}, fmt.Errorf("it was asked for %s, and answers with %s", name, entry.Name)
	case version != "latest" && entry.Server.Version != version:
		return Entry{}, fmt.Errorf("it was asked for version %s of %s, and answers with %s", version, name, entry.Server.Version)
	}
	entry.Age = age
	return entry, nil
}

// nearest returns a name that was probably meant: one that ends in the same way.
func (a *api) nearest(ctx context.Context, name string) string {
	_, own, _ := strings.Cut(name, "/")
	entries, _, err := a.search(ctx, own)
	if err != nil {
		return ""
	}
	if best := rank(entries, own); len(best) > 0 {
		return best[0].Name
	}
	return ""
}

// search asks for the servers whose name has the longest word of a query, since the API knows no more than names.
func (a *api) search(ctx context.Context, query string) (found []Entry, oldest time.Duration, err error) {
	ask := url.Values{"limit": {fmt.Sprint(perPage)}, "version": {"latest"}}
	if words := strings.Fields(query); len(words) > 0 {
		ask.Set("search", slices.MaxFunc(words, func(a, b string) int { return cmp.Compare(len(a), len(b)) }))
	}
	seen := map[string]bool{}
	for range maxPages {
		data, age, err := a.get(ctx, "?"+ask.Encode())
		if err != nil {
			return found, oldest, err
		}
		var p page
		if err := json.Unmarshal(data, &p); err != nil || p.Servers == nil {
			return found, oldest, errors.New("the answer is not a list of servers")
		}
		oldest = max(oldest, age)
		for _, raw := range p.Servers {
			entry, err := ParseServer(raw, a.url)
			if err != nil || seen[entry.Name] {
				continue // deleted, or not valid
			}
			seen[entry.Name] = true
			entry.Age = age
			if found = append(found, entry); len(found) >= maxFound {
				return found, oldest, nil
			}
		}
		next := p.Metadata.NextCursor
		if next == "" || next == ask.Get("cursor") || len(next) > maxCursor || len(p.Servers) == 0 {
			break
		}
		ask.Set("cursor", next)
	}
	return found, oldest, nil
}
