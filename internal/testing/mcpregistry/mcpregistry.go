// Package mcpregistry stands in for an MCP registry: it serves the API of the official one, with a recorded list of
// one hundred real servers. Only tests import it.
//
// The list is metadata alone, from the server.json files of public repositories, without icons, with shortened
// descriptions, and with a version where a file leaves it to a release.
package mcpregistry

import (
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

//go:embed servers.jsonl
var recorded string

// Servers returns the recorded server.json files.
func Servers() []json.RawMessage {
	var list []json.RawMessage
	for line := range strings.Lines(recorded) {
		list = append(list, json.RawMessage(strings.TrimSpace(line)))
	}
	return list
}

// Handler answers as the API does: GET /v0.1/servers with limit, cursor, search and version, and
// GET /v0.1/servers/{name}/versions/{version}. status has the status of servers, by name; the others are active.
func Handler(servers []json.RawMessage, status map[string]string) http.Handler {
	type named struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	wrap := func(raw json.RawMessage) (named, json.RawMessage) {
		var n named
		if err := json.Unmarshal(raw, &n); err != nil {
			panic(err)
		}
		s := status[n.Name]
		if s == "" {
			s = "active"
		}
		return n, json.RawMessage(`{"server":` + string(raw) + `,"_meta":{"io.modelcontextprotocol.registry/official":{"status":` + strconv.Quote(s) + `,"isLatest":true}}}`)
	}
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rest, ok := strings.CutPrefix(r.URL.EscapedPath(), "/v0.1/servers/"); ok {
			parts := strings.Split(rest, "/")
			name, err := url.PathUnescape(parts[0])
			if err != nil || len(parts) != 3 || parts[1] != "versions" {
				http.NotFound(w, r)
				return
			}
			for _, raw := range servers {
				if n, wrapped := wrap(raw); n.Name == name && (parts[2] == "latest" || parts[2] == n.Version) {
					answer(w, wrapped)
					return
				}
			}
		}
		if r.URL.Path != "/v0.1/servers" {
			http.NotFound(w, r)
			return
		}
		limit, _ := strconv.Atoi(r.FormValue("limit"))
		if limit < 1 || limit > 100 {
			limit = 30
		}
		after, _ := base64.URLEncoding.DecodeString(r.FormValue("cursor"))
		var list []json.RawMessage
		next, last := "", ""
		for _, raw := range servers {
			n, wrapped := wrap(raw)
			if n.Name <= string(after) || !strings.Contains(strings.ToLower(n.Name), strings.ToLower(r.FormValue("search"))) {
				continue
			}
			if len(list) == limit {
				next = base64.URLEncoding.EncodeToString([]byte(last))
				break
			}
			list, last = append(list, wrapped), n.Name
		}
		if list == nil {
			list = []json.RawMessage{}
		}
		answer(w, map[string]any{"servers": list, "metadata": map[string]any{"count": len(list), "nextCursor": next}})
	})
}
