package protocol

import (
	"testing"

	"github.com/orla-project/orla/internal/call/trace"
)

func TestTheTraceStandsInMeta(t *testing.T) {
	const parent, other = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	for _, c := range []struct{ parent, state, meta, want string }{
		{"", "", "", ""},
		{"", "", `{"traceparent":"no"}`, `{"traceparent":"no"}`},
		{parent, "", "", `{"traceparent":"` + parent + `"}`},
		{parent, "a=b", `{}`, `{"traceparent":"` + parent + `","tracestate":"a=b"}`},
		{parent, "", `{"n":1.0, "traceparent":"` + other + `","tracestate":"c=d","x":{"y":[]}}`, `{"traceparent":"` + parent + `","n":1.0,"x":{"y":[]}}`},
		{parent, `q="\"`, `{ "traceparent" : "` + parent + `", "tracestate":"as it came" }`, `{ "traceparent" : "` + parent + `", "tracestate":"as it came" }`},
		{parent, `q="\"`, `{"traceparent":5}`, `{"traceparent":"` + parent + `","tracestate":"q=\"\\\""}`},
	} {
		ctx := t.Context()
		if c.parent != "" {
			of, ok := trace.Parse(c.parent, c.state)
			if !ok {
				t.Fatal(c.parent)
			}
			ctx = trace.With(ctx, of)
		}
		var meta []byte
		if c.meta != "" {
			meta = []byte(c.meta)
		}
		if got := Traced(ctx, meta); string(got) != c.want {
			t.Errorf("%+v gave %s", c, got)
		}
	}
}
