// Package passed says whose a request is that one replica passes on to another (SPEC P4): the first has checked it.
package passed

import (
	"context"
	"encoding/json"
	"net/http"
)

// Caller is who makes a request.
type Caller struct {
	Name   string   `json:"name,omitempty"` // "" without authentication
	Groups []string `json:"groups,omitempty"`
	Host   string   `json:"host,omitempty"` // its address
}

// header has the Caller on the way. Only replicas can send it to the port where it is read.
const header = "Orla-Caller"

// Sign adds the Caller to the headers of a request.
func (c *Caller) Sign(h http.Header) {
	text, err := json.Marshal(c)
	if err != nil { // strings
		panic(err)
	}
	h.Set(header, string(text))
}

type key struct{}

// Of returns a request that another replica has passed on, with its Caller. It reports false for any other one.
func Of(r *http.Request) (_ *http.Request, ok bool) {
	c := new(Caller)
	if json.Unmarshal([]byte(r.Header.Get(header)), c) != nil {
		return nil, false
	}
	r = r.WithContext(context.WithValue(r.Context(), key{}, c))
	r.Header.Del(header)
	if c.Host != "" {
		r.RemoteAddr = c.Host
	}
	return r, true
}

// From returns the Caller of a request that was passed on; nil of any other one.
func From(ctx context.Context) *Caller {
	c, _ := ctx.Value(key{}).(*Caller)
	return c
}
