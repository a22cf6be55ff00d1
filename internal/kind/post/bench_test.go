package post_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/orla-project/orla/internal/kind/post"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/manifest"
)

// BenchmarkCall compares a call of each type with the same call made directly
// with Go's own client.
func BenchmarkCall(b *testing.B) {
	args := json.RawMessage(`{"query":"enterprise AI adoption trends","limit":10}`)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		var e struct {
			ID string `json:"request_id"`
		}
		if r.URL.Path == "/external" && json.Unmarshal(body, &e) == nil {
			_, _ = fmt.Fprintf(w, `{"request_id":%q,"status":"success","result":%s}`, e.ID, args)
			return
		}
		_, _ = w.Write(body)
	}))
	b.Cleanup(s.Close)
	b.Run("direct", func(b *testing.B) {
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128}}
		b.Cleanup(client.CloseIdleConnections)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, s.URL, bytes.NewReader(args))
				if err != nil {
					b.Error(err)
					return
				}
				req.Header.Set("Content-Type", "application/json")
				resp, err := client.Do(req)
				if err != nil {
					b.Error(err)
					return
				}
				if body, err := io.ReadAll(resp.Body); err != nil || len(body) != len(args) {
					b.Errorf("%d bytes, %v", len(body), err)
				}
				_ = resp.Body.Close()
			}
		})
	})
	for _, kind := range []manifest.Kind{manifest.HTTP, manifest.External} {
		b.Run(string(kind), func(b *testing.B) {
			client := outbound.New(outbound.Options{})
			b.Cleanup(client.Close)
			tool, err := post.New(described(kind, s.URL+"/"+string(kind)), post.Options{Client: client, Auth: auth.Options{}})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if a, err := tool.Call(b.Context(), peer.Call{Args: args, Caller: "anonymous", Attempt: 1}); err != nil || a.Result == nil {
						b.Errorf("%+v, %v", a, err)
						return
					}
				}
			})
		})
	}
}
