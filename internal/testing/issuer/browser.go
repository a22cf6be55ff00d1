package issuer

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
)

var (
	formTag  = regexp.MustCompile(`(?is)<form[^>]*action="([^"]*)"`)
	inputTag = regexp.MustCompile(`(?is)<input[^>]*>`)
	nameOf   = regexp.MustCompile(`(?i)name="([^"]*)"`)
	valueOf  = regexp.MustCompile(`(?i)value="([^"]*)"`)
)

// Browse does what a person does with the pages of an authorization server: it enters a name wherever a
// form asks for one, and agrees to everything. It returns the redirect URL that the server sends the
// browser to at the end, which it does not open.
func Browse(ctx context.Context, open, name string) (*url.URL, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	at, err := url.Parse(open)
	if err != nil {
		return nil, err
	}
	server := at.Host
	var form url.Values
	for range 20 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
		if form != nil {
			req, err = http.NewRequestWithContext(ctx, http.MethodPost, at.String(), strings.NewReader(form.Encode()))
		}
		if err != nil {
			return nil, err
		}
		if form != nil {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return nil, err
		}
		form = nil
		if to := resp.Header.Get("Location"); to != "" {
			if at, err = at.Parse(to); err != nil {
				return nil, err
			}
			if at.Host != server {
				return at, nil
			}
			continue
		}
		action := formTag.FindSubmatch(body)
		if action == nil {
			return nil, fmt.Errorf("%s answers %s without a form: %s", at, resp.Status, body)
		}
		if at, err = at.Parse(html.UnescapeString(string(action[1]))); err != nil {
			return nil, err
		}
		form = fill(body, name)
	}
	return nil, errors.New("the pages have no end")
}

// fill fills in the inputs of a form.
func fill(page []byte, name string) url.Values {
	form := url.Values{}
	for _, input := range inputTag.FindAll(page, -1) {
		key := nameOf.FindSubmatch(input)
		if key == nil {
			continue
		}
		value := name
		if given := valueOf.FindSubmatch(input); given != nil {
			value = html.UnescapeString(string(given[1]))
		}
		form.Set(string(key[1]), value)
	}
	return form
}
