package program

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// bareNames serves Orla's URL with the tools and prompts of an McpServer under their own
// names, as the suite calls them. Orla calls them SERVER--TOOL, with dashes for "_", and
// all of these have "_" only.
func bareNames(t *testing.T, server, orla string) string {
	t.Helper()
	target, err := url.Parse(orla)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL = target
			lengthen(server, r.Out)
		},
		ModifyResponse: func(r *http.Response) error {
			r.Header.Del("Content-Length")
			r.ContentLength = -1
			r.Body = &bareAnswer{server: server, body: r.Body, lines: bufio.NewReader(r.Body)}
			return nil
		},
	})
	t.Cleanup(h.Close)
	return h.URL
}

// lengthen puts the server's name before that of the tool or prompt that a request is for.
func lengthen(server string, r *http.Request) {
	long := func(name string) string { return server + "--" + strings.ReplaceAll(name, "_", "-") }
	if name := r.Header.Values("Mcp-Name"); len(name) == 1 && name[0] != "" && !strings.Contains(name[0], ":") {
		r.Header["Mcp-Name"] = []string{long(name[0])}
	}
	if r.Body == nil {
		return
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	var message map[string]any
	if json.Unmarshal(raw, &message) == nil {
		params, _ := message["params"].(map[string]any)
		ref, _ := params["ref"].(map[string]any)
		for _, of := range []map[string]any{params, ref} {
			if name, ok := of["name"].(string); ok && name != "" {
				of["name"] = long(name)
			}
		}
		raw, _ = json.Marshal(message) // it was JSON
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
}

// bareAnswer is an answer without the server's name. It is read by lines, which are
// events of a stream or all of the answer.
type bareAnswer struct {
	server string
	body   io.Closer
	lines  *bufio.Reader
	ready  []byte
}

func (s *bareAnswer) Read(p []byte) (int, error) {
	if len(s.ready) == 0 {
		line, err := s.lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) || len(line) == 0 {
			return 0, err
		}
		s.ready = regexp.MustCompile(`\b`+s.server+`--[\w-]+`).ReplaceAllFunc(line, func(name []byte) []byte {
			return bytes.ReplaceAll(name[len(s.server)+2:], []byte("-"), []byte("_"))
		})
	}
	n := copy(p, s.ready)
	s.ready = s.ready[n:]
	return n, nil
}

func (s *bareAnswer) Close() error { return s.body.Close() }
