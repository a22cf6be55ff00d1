package outbound

import (
	"context"
	"maps"
	"net/url"
	"strings"
	"sync"
	"weak"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rejudge"
	"github.com/orla-project/orla/internal/call/turns"
)

// maxRequests bounds the requests that one service works on at once, and maxAllRequests those of all
// services; one caller has at most half of them (turns.Shares). Each may use about 450 KiB that is not
// counted: the header (maxHeader), the part of an answer that is read before it is counted
// (turns.Little), and received and unread data (maxUnread). One host may have a service on each of its
// ports. A caller whose share of one service is taken has places for others.
const maxRequests, maxAllRequests = 1024, 1536

// Service bounds the requests to one host. Its methods may be called from any goroutine.
type Service struct {
	requests *turns.Shares
	all      *turns.Shares // of all services
}

// services are the Services in use, by host and port.
type services struct {
	all *turns.Shares // requests to all of them

	mu sync.Mutex // guards of
	of map[string]weak.Pointer[Service]
}

// Service returns the Service for a URL, which all URLs with the same host and port share.
func (c *Client) Service(endpoint string) *Service {
	host := "" // for an invalid URL, to which no request is made
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
	made := &Service{requests: turns.NewShares(maxRequests), all: s.all}
	s.of[host] = weak.Make(made)
	return made
}

// Begin waits until a request of an owner may be sent, or ctx ends. If it returns nil, End must be
// called when the answer was read.
func (s *Service) Begin(ctx context.Context, owner turns.Owner) error {
	ctx, end := rejudge.While(ctx)
	defer end()
	if err := s.requests.Take(ctx, owner, 1); err != nil {
		return fault.From(err)
	}
	if err := s.all.Take(ctx, owner, 1); err != nil {
		s.requests.Give(owner, 1)
		return fault.From(err)
	}
	return nil
}

// End ends a request that began.
func (s *Service) End(owner turns.Owner) {
	s.all.Give(owner, 1)
	s.requests.Give(owner, 1)
}
