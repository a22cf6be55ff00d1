package outbound

import (
	"context"
	"maps"
	"net/url"
	"strings"
	"sync"
	"weak"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
)

// maxRequests bounds the requests that one service works on at once; one caller has
// half of them at most (turns.Shares). Each may hold about 450 KiB that nobody counts: a
// header (maxHeader), what is read of an answer before it is counted (turns.Little), and what
// has come and was not read (maxUnread).
const maxRequests = 1024

// Service is a host of tools that answer calls. Its methods may be called from any goroutine.
type Service struct{ requests *turns.Shares }

// services are those that are in use, by host and port.
type services struct {
	mu sync.Mutex // guards of
	of map[string]weak.Pointer[Service]
}

// Service returns the service that a URL is of, which is the same for all URLs with its
// host and port.
func (c *Client) Service(endpoint string) *Service {
	host := "" // of what is not a URL, to which no request is made
	if at, err := url.Parse(endpoint); err == nil {
		host = strings.ToLower(at.Host)
	}
	s := &c.services
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.of[host].Value(); known != nil {
		return known
	}
	maps.DeleteFunc(s.of, func(_ string, p weak.Pointer[Service]) bool { return p.Value() == nil })
	if s.of == nil {
		s.of = map[string]weak.Pointer[Service]{}
	}
	made := &Service{turns.NewShares(maxRequests)}
	s.of[host] = weak.Make(made)
	return made
}

// Begin waits until the service may be sent a request of an owner, or ctx ends. If it returns
// nil, End has to follow when the answer was read.
func (s *Service) Begin(ctx context.Context, owner turns.Owner) error {
	if err := s.requests.Take(ctx, owner, 1); err != nil {
		return fault.From(err)
	}
	return nil
}

// End says that a request which began is over.
func (s *Service) End(owner turns.Owner) { s.requests.Give(owner, 1) }
