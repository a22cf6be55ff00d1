package passed

import (
	"context"
	"net/http"

	"github.com/orla-project/orla/mcpbridge/sessionlog"
)

// Elsewhere is the other replicas that serve the same clients (SPEC P4).
type Elsewhere interface {
	// ID returns an id for a new session, and Opened what is in the id of one that this process may go on with; nil for others.
	ID(*sessionlog.Record) string
	Opened(id string) *sessionlog.Record
	// Ended says that a session is over.
	Ended(id string)
	sessionlog.Setter
	// Set adds what the client of a session has set on other replicas.
	Set(ctx context.Context, id string, to *sessionlog.Record)
	// Home returns which replica has a session, or any other one for "", and NamedBy which one gave a name; "" for this one.
	Home(ctx context.Context, id string) (replica string)
	NamedBy(name string) (replica string)
	// Pass passes a request on. If the replica cannot be reached, again answers it.
	Pass(w http.ResponseWriter, r *http.Request, to string, by *Caller, again http.Handler)
}
