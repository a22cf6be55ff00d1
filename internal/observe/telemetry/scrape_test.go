package telemetry_test

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/observe/telemetry"
)

// left is a response whose writes fail.
type left struct {
	*httptest.ResponseRecorder
	err error
}

func (l left) Write([]byte) (int, error) { return 0, l.err }

// SPEC N2: a client that leaves while it scrapes writes nothing into the log. Other errors are logged.
func TestN2AScrapeThatIsBrokenOffIsNotLogged(t *testing.T) {
	for _, c := range []struct {
		err    error
		logged bool
	}{
		{&net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}, false},
		{errors.New("something else"), true},
	} {
		var lines strings.Builder
		tel := telemetry.New(telemetry.Options{
			Tools: func() []string { return nil },
			Log:   slog.New(slog.NewTextHandler(&lines, nil)),
		})
		r := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
		tel.Handler().ServeHTTP(left{httptest.NewRecorder(), c.err}, r)
		if logged := lines.Len() > 0; logged != c.logged {
			t.Errorf("%v: logged %.300q", c.err, lines.String())
		}
	}
}
