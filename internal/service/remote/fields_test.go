package remote

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/mcp/rpc"
)

// quiet takes notifications.
type quiet struct{ rpc.Handler }

func (quiet) Notified(string, json.RawMessage) {}

// The fields of messages do not count, also on a stream of the session.
func TestFieldsOfMessagesAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seconds = 3
		s := &session{shares: newShares(1 << 20), max: 1 << 20, listener: listener{conn: rpc.New(nil, rpc.Options{Handler: quiet{}})}}
		ev := "event: message\nid: 17\nretry: 1000\ndata: " + `{"jsonrpc":"2.0","method":"x"}` + "\n\n"
		began := time.Now()
		flood := strings.NewReader(strings.Repeat(ev, seconds*pace.MaxLines))
		if st := s.stream(t.Context(), &http.Response{Body: io.NopCloser(flood)}, message{}); st.events != seconds*pace.MaxLines {
			t.Errorf("%d events were read, and then %v", st.events, st.err)
		}
		if took := time.Since(began); took > seconds*time.Second {
			t.Errorf("messages for %d s were read in %v", seconds, took)
		}
	})
}
