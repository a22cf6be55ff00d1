package mcpbridge_test

import (
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// SPEC-TOOLS 3.4: what is added to the front is asked for no token and no Host,
// and what its pattern leaves open is not in the log.
func TestHandleServesBesideTheProtocol(t *testing.T) {
	log := &syncBuffer{}
	w := newWorld(t, func(o *mcpbridge.Options) {
		o.Log = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	f := w.front(t, httpfront.Settings{Verify: tokens}, func(h *httpfront.Front) {
		h.Handle("/callbacks/{request_id}", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "of "+r.PathValue("request_id"))
		}))
	})
	for _, headers := range [][]string{nil, {"Host", "orla.example"}} {
		if r := f.send(t, http.MethodPost, "/callbacks/s3cret", "{}", headers...); r.status != http.StatusOK || r.raw != "of s3cret" {
			t.Errorf("%v: status %d, %q", headers, r.status, r.raw)
		}
	}
	if r := f.send(t, http.MethodPost, "/callbacks/s3cret/more", "{}"); r.status != http.StatusNotFound {
		t.Errorf("what was not added: status %d", r.status)
	}
	var paths []any
	eventually(t, "three requests are in the log", func() bool {
		paths = nil
		for _, line := range log.lines(t, "request") {
			paths = append(paths, line["path"])
		}
		return len(paths) == 3
	})
	if paths[0] != "/callbacks/{request_id}" || paths[1] != paths[0] {
		t.Errorf("the log has the paths %q", paths)
	}
}
