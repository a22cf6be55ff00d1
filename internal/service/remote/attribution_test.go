package remote_test

import (
	"net/http"
	"testing"
)

// named is a client of a name, who answers with it.
type named struct {
	teller
	name string
}

func (c *named) Session() string { return c.name }

// SPEC N2: what a server asks and logs on the stream of a request's answer is for the
// client that made the request, although several are served; what it asks elsewhere
// is refused then.
func TestN2TheStreamSaysWhomAQuestionIsFor(t *testing.T) {
	replies := make(chan asked, 1)
	strangers := script(t, func(w http.ResponseWriter, _ *http.Request, m asked) bool {
		switch {
		case m.Method == "" && string(m.ID) == "77":
			replies <- m
			return false
		case m.Method != "tools/call" || m.Params.Name != "t":
			return false
		}
		// "_meta" that names another client's request is not believed.
		send := sse(w)
		send(`data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x","_meta":{"orla/c\u0061ll":1,"orla/call":1}}}`)
		send(`data: {"jsonrpc":"2.0","id":77,"method":"elicitation/create","params":{"_meta":{"orla/call":1}}}`)
		<-replies
		send(`data: {"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result("called"))
		return true
	})
	l := connect(t, strangers.URL)
	l.offers(1)
	for _, name := range []string{"a", "b", "a"} {
		c := &named{name: name}
		if got, err := l.call("far--t", `{}`, c); got != "called" || err != nil {
			t.Errorf("%s: %s, %v", name, got, err)
		}
		if len(c.told) != 1 {
			t.Errorf("%s was told %q", name, c.told)
		}
	}
}

// SPEC N2: a server of the official SDK asks each client about its own request.
func TestN2EachClientIsAskedAboutItsOwnCall(t *testing.T) {
	_, h := sdkServer(t, nil)
	l := connect(t, h.URL)
	l.offers(4)
	for _, name := range []string{"a", "b", "a"} {
		if got, err := l.call("far--ask", `{}`, &named{name: name}); got != "Ada" || err != nil {
			t.Errorf("%s: ask answers %s, %v", name, got, err)
		}
	}
}
