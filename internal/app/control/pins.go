package control

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// PinList tells which definitions are pinned.
type PinList struct {
	Providers []PinnedProvider `json:"providers" jsonschema:"Every provider whose definitions are pinned, sorted by name."`
}

// PinnedProvider tells of the definitions of one provider.
type PinnedProvider struct {
	Name    string       `json:"name" jsonschema:"The name of the manifest."`
	Source  string       `json:"source" jsonschema:"The manifest."`
	Pin     string       `json:"pin" jsonschema:"warn: definitions that were not accepted are served, and reported. hold: they are not served."`
	File    string       `json:"file,omitempty" jsonschema:"The file that keeps what was accepted; absent without a state folder."`
	Trouble string       `json:"trouble,omitempty" jsonschema:"Why that file cannot be read or written; absent if it can. With hold, nothing of the provider is served then."`
	Digest  string       `json:"digest" jsonschema:"Names what an approval of the name that was asked for would accept."`
	Items   []PinnedItem `json:"items" jsonschema:"Its tools and prompts."`
}

// PinnedItem tells of one definition.
type PinnedItem struct {
	Kind     string    `json:"kind" jsonschema:"tool or prompt."`
	Name     string    `json:"name" jsonschema:"Its name for clients."`
	Own      string    `json:"own" jsonschema:"The provider's name for it."`
	State    string    `json:"state" jsonschema:"accepted; changed, since another definition of the name was accepted; new, since none of the name was; unknown, since what was accepted cannot be read; or absent, if it was accepted and is not listed now."`
	Digest   string    `json:"digest,omitempty" jsonschema:"SHA-256 of the definition that is listed now; absent if there is none."`
	Was      string    `json:"accepted_digest,omitempty" jsonschema:"SHA-256 of the definition that was accepted; absent if none was."`
	Accepted time.Time `json:"accepted,omitzero" jsonschema:"When that one was accepted."`
	By       string    `json:"by,omitempty" jsonschema:"Who accepted it: first list, or uid and the number of a user."`
	PinDifference
	Findings []PinFinding `json:"findings,omitempty" jsonschema:"What an operator should look at in the definition that is listed now. Nothing is refused for it. At most 20 of each definition, and 1000 of a provider but for one of each definition."`
}

// PinDifference is how a definition that is listed differs from the accepted one.
type PinDifference struct {
	Changes []PinChange     `json:"changes,omitempty" jsonschema:"How they differ, in at most 100 places, and 1000 of all definitions together but for one of each; absent in the list of all."`
	More    int             `json:"more_changes,omitempty" jsonschema:"In how many places more they differ."`
	Before  json.RawMessage `json:"before,omitempty" jsonschema:"The accepted definition, in canonical JSON; absent in the list of all, if there is none, and if it is larger than 64 KiB."`
	After   json.RawMessage `json:"after,omitempty" jsonschema:"The definition that is listed now, in canonical JSON; absent in the list of all."`
}

// PinChange is how one value of a definition differs.
type PinChange struct {
	Path   string          `json:"path" jsonschema:"Where, such as inputSchema.properties.path.description. It is cut after 1000 bytes."`
	Before json.RawMessage `json:"before,omitempty" jsonschema:"The accepted value, or of one over 64 KiB a text of its beginning; absent if there is none."`
	After  json.RawMessage `json:"after,omitempty" jsonschema:"The value now, or of one over 64 KiB a text of its beginning; absent if there is none."`
}

// PinFinding is something to look at.
type PinFinding struct {
	Path string `json:"path" jsonschema:"Where in the definition. It is cut after 1000 bytes."`
	Kind string `json:"kind" jsonschema:"hidden_unicode, sensitive_path or shadowed_name."`
	Text string `json:"text" jsonschema:"What it is, for people."`
}

// PinApproval is what an approval is asked with.
type PinApproval struct {
	Digest string `json:"digest,omitempty" jsonschema:"The digest that was shown. If something else would be accepted, nothing is, and the code is digest_mismatch. Absent: whatever is listed."`
}

func (s *Server) pins(http.ResponseWriter, *http.Request) (any, error) {
	list := s.opts.Backend.Pins()
	list.Providers = append([]PinnedProvider{}, list.Providers...)
	for i := range list.Providers {
		list.Providers[i].complete()
	}
	return list, nil
}

// complete makes no list null.
func (p *PinnedProvider) complete() { p.Items = append([]PinnedItem{}, p.Items...) }

func (s *Server) pinned(_ http.ResponseWriter, r *http.Request) (any, error) {
	p, err := s.opts.Backend.Pinned(r.PathValue("name"))
	p.complete()
	return p, err
}

func (s *Server) approvePins(w http.ResponseWriter, r *http.Request) (any, error) {
	var asked PinApproval
	if err := s.read(w, r, &asked); err != nil {
		return nil, err
	}
	by, err := PeerOf(r)
	if err != nil {
		return nil, err
	}
	p, err := s.opts.Backend.ApprovePins(r.Context(), by, r.PathValue("name"), asked)
	p.complete()
	return p, err
}

// Pins asks which definitions are pinned.
func (c *Client) Pins(ctx context.Context) (*PinList, error) {
	return ask[PinList](ctx, c, http.MethodGet, "/v1/pins", nil)
}

// Pinned asks what is not accepted of a provider, or of one of its tools or prompts.
func (c *Client) Pinned(ctx context.Context, name string) (*PinnedProvider, error) {
	return ask[PinnedProvider](ctx, c, http.MethodGet, "/v1/pins/"+segment(name), nil)
}

// ApprovePins accepts what is listed now of a name.
func (c *Client) ApprovePins(ctx context.Context, name string, asked PinApproval) (*PinnedProvider, error) {
	return ask[PinnedProvider](ctx, c, http.MethodPost, "/v1/pins/"+segment(name)+"/approve", asked)
}
