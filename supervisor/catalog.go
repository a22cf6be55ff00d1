package supervisor

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor/claim"
)

// publish replaces the catalog by a new one of the present providers. The caller holds applying, or is
// New.
func (s *Supervisor) publish() {
	s.published = s.asked.Load()
	changed := make(chan struct{})
	warn, warned := s.warner()
	next := &Catalog{
		Talks:     map[string]bool{},
		Changed:   changed,
		changed:   changed,
		entries:   make(map[string]*entry, len(s.living)),
		resources: map[string]Peer{},
		realms:    map[string]Peer{},
		templates: map[string]Peer{},
		prompts:   map[string]Peer{},
		held:      map[string]withheldPrompt{},
		servers:   make(map[string]server, len(s.living)),
		admit:     s.opts.AdmitRequest,
		log:       s.opts.Log,
	}
	next.named = peerNames(next.servers)
	next.governed.ruled, next.governed.lent = &s.ruled, map[string]bool{}
	claims := s.newClaiming()
	for name, l := range s.living {
		if l.peer != nil {
			now := l.shown.Load()
			l.tools, l.inputs, l.offers = now.offers.Tools, now.inputs, now.offers
			served := server{l.peer, l, now.offers, l.isLate()}
			next.servers[name] = served
			if awaited(now.offers) {
				next.awaited = append(next.awaited, served)
			}
			claims.next[claim.Claim{Sort: claim.Provider, Key: name}] = []string{name}
		}
	}
	order := make([]*living, 0, len(s.living))
	for _, name := range slices.Sorted(maps.Keys(s.living)) {
		l := s.living[name]
		order = append(order, l)
		if f, ok := l.provider.(Follower); ok {
			f.Follow(next.Peer)
			l.list(served(f))
		}
	}
	next.serveOthers(claims, warn, order)
	s.serveTools(next, claims, warn, order)
	next.withhold(order)
	claims.done(warn)
	s.warned = warned
	slices.SortFunc(next.Tools, func(a, b *mcp.Tool) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(next.Resources, func(a, b *mcp.Resource) int { return cmp.Compare(a.URI, b.URI) })
	slices.SortFunc(next.Templates, func(a, b *mcp.ResourceTemplate) int { return cmp.Compare(a.URITemplate, b.URITemplate) })
	slices.SortFunc(next.Prompts, func(a, b *mcp.Prompt) int { return cmp.Compare(a.Name, b.Name) })
	next.govern(s.others, s.claims)
	next.ready()
	s.stale = false
	s.install(next)
}

// install makes a catalog the one that is served. The caller holds applying, or is New.
func (s *Supervisor) install(next *Catalog) {
	if s.opts.Published != nil {
		s.opts.Published(next)
	}
	if old := s.catalog.Swap(next); old != nil {
		close(old.changed)
	}
}

// serveTools adds the tools of all providers to a catalog.
func (s *Supervisor) serveTools(next *Catalog, claims *claiming, warn warner, order []*living) {
	tools := offered(order, func(l *living) []*mcp.Tool { return l.tools }, func(t *mcp.Tool) string { return t.Name })
	for i := range tools {
		tools[i].fold()
	}
	winners := claims.winners(claim.Tool, tools)
	for name, l := range winners {
		if claims.lends(claim.Claim{Sort: claim.Tool, Key: name}, l) {
			next.governed.lent[name] = true
		}
	}
	before := map[string]*entry{}
	if old := s.catalog.Load(); old != nil {
		before = old.entries
	}
	next.Tools = make([]*mcp.Tool, 0, len(winners))
	served := make(map[string]bool, len(winners))
	for _, l := range order {
		talks := l.peer != nil && l.offers.Talks
		if t, ok := l.provider.(Talker); ok && l.peer == nil {
			talks = t.Talks()
		}
		for _, t := range l.tools {
			folded := rules.Folded(t.Name)
			if winners[folded] != l || served[folded] {
				continue
			}
			input := l.inputs[t]
			if input.err != nil { // a peer's; it has been told so
				why := "its input schema: " + input.err.Error()
				warn(t.Name+"\x00"+why, why, t.Name, l)
				continue
			}
			e := before[t.Name]
			if e == nil || e.of != l || e.listed != t || e.input != input.schema || e.withheld != nil {
				e = s.entry(l, t)
			}
			next.entries[t.Name], served[folded] = e, true
			next.Tools = append(next.Tools, t)
			if talks {
				next.Talks[t.Name] = true
			}
		}
	}
}

// entry makes the entry of a tool.
func (s *Supervisor) entry(l *living, t *mcp.Tool) *entry {
	e := &entry{of: l, provider: l.provider, listed: t, input: l.inputs[t].schema, timeout: l.tool.Run.Timeout, tooLate: tooLate(t.Name, l.tool.Run.Timeout)}
	e.attempt = s.attempts(l.tool, t, e)
	return e
}

// serveOthers adds the resources, templates and prompts of all peers to a catalog.
func (c *Catalog) serveOthers(claims *claiming, warn warner, order []*living) {
	var peers []*living
	readers := 0
	for _, l := range order {
		if l.peer == nil {
			continue
		}
		peers = append(peers, l)
		if l.offers.Reads {
			c.reader = l.peer
			readers++
		}
	}
	if readers > 1 {
		c.reader = nil
	}
	c.serveTemplates(claims, warn, peers)
	uri := func(r *mcp.Resource) string { return r.URI }
	c.Resources = adopt(claims, claim.Resource, peers, func(l *living) []*mcp.Resource {
		return slices.DeleteFunc(slices.Clone(l.offers.Resources), func(r *mcp.Resource) bool {
			return isOwn(warn, r.URI, r.URI, l) || c.isTaken(claims, r.URI, l)
		})
	}, uri, func(r *mcp.Resource, l *living) bool {
		c.share(r.URI, l.peer)
		return put(c.resources, r.URI, l.peer)
	})
	c.Prompts = adopt(claims, claim.Prompt, peers, func(l *living) []*mcp.Prompt { return l.offers.Prompts }, func(p *mcp.Prompt) string { return p.Name },
		func(of *mcp.Prompt, l *living) bool { return put(c.prompts, of.Name, l.peer) })
}

// serveTemplates adds the resource templates of all peers to a catalog.
func (c *Catalog) serveTemplates(claims *claiming, warn warner, peers []*living) {
	all := adopt(claims, claim.Template, peers, func(l *living) []peer.Template {
		return slices.DeleteFunc(slices.Clone(l.offers.Templates), func(t peer.Template) bool {
			return isOwn(warn, t.URIs.Prefix(), t.URITemplate, l) || isAnyScheme(warn, t, l)
		})
	}, func(t peer.Template) string { return t.URIs.Form }, func(t peer.Template, l *living) bool {
		c.share(t.URIs.Prefix(), l.peer)
		switch {
		case !put(c.templates, t.URITemplate, l.peer):
			return false
		case l.owned() > 0:
			c.owned.Add(t.URIs, l)
		default:
			c.matching.Add(t.URIs, l.peer)
		}
		return true
	})
	for _, t := range all {
		c.Templates = append(c.Templates, t.ResourceTemplate)
	}
	c.owned.Sort()
	c.matching.Sort()
}

// isAnyScheme reports whether a template of an installed package matches URIs of schemes that it does not name, and
// warns of it: it would answer for all that nobody else offers.
func isAnyScheme(warn warner, t peer.Template, l *living) bool {
	if l.owned() > 0 || strings.Contains(t.URIs.Prefix(), ":") {
		return false
	}
	why := "a template of an installed package has to begin with the scheme of its URIs, such as notes:"
	warn(why, why, t.URITemplate, l)
	return true
}

// isTaken reports whether a resource of an installed package is one of a template of the user's own peers (SPEC M7).
func (c *Catalog) isTaken(claims *claiming, uri string, l *living) bool {
	if l.owned() > 0 {
		return false
	}
	own, taken := c.owned.Find(uri)
	if taken {
		claims.dispute(dispute{claim.Resource, l, own}, uri)
	}
	return taken
}

// share notes that a peer has resources with the scheme and authority of a URI.
func (c *Catalog) share(uri string, p Peer) {
	realm := realmOf(uri)
	if other, known := c.realms[realm]; known && other != p {
		p = nil
	}
	c.realms[realm] = p
}

// realmOf returns the scheme and the authority of a URI, or of the literal beginning of a template; ""
// if the text ends within them.
func realmOf(uri string) string {
	scheme, rest, ok := strings.Cut(uri, ":")
	if !ok {
		return ""
	}
	authority, hierarchical := strings.CutPrefix(rest, "//")
	if !hierarchical {
		return strings.ToLower(scheme) + ":"
	}
	end := strings.IndexAny(authority, "/?#")
	if end < 0 {
		return ""
	}
	return strings.ToLower(scheme + "://" + authority[:end])
}

// put notes the peer of a key. It reports false if the key has one already.
func put(all map[string]Peer, key string, p Peer) bool {
	_, is := all[key]
	if !is {
		all[key] = p
	}
	return !is
}

// isOwn reports whether a peer offers what only Orla itself serves, and warns of it.
func isOwn(warn warner, uri, what string, l *living) bool {
	if !peer.IsOwn(uri) {
		return false
	}
	why := "URIs that begin with " + peer.OwnScheme + " are Orla's own"
	warn(why, why, what, l)
	return true
}

// offered returns the keys of everything of one sort that providers offer.
func offered[T any](order []*living, of func(*living) []T, key func(T) string) []offer {
	offers := make([]offer, len(order))
	for i, l := range order {
		offers[i].by = l
		for _, item := range of(l) {
			offers[i].keys = append(offers[i].keys, key(item))
		}
	}
	return offers
}

// adopt returns what is served of everything of one sort that peers offer. serve reports false for what
// is served already.
func adopt[T any](claims *claiming, sort claim.Sort, peers []*living, of func(*living) []T, key func(T) string, serve func(T, *living) bool) []T {
	items := make(map[*living][]T, len(peers))
	for _, l := range peers {
		items[l] = of(l)
	}
	var listed []T
	winners := claims.winners(sort, offered(peers, func(l *living) []T { return items[l] }, key))
	for _, l := range peers {
		for _, item := range items[l] {
			if winners[key(item)] == l && serve(item, l) {
				listed = append(listed, item)
			}
		}
	}
	return listed
}

// Wait returns when c is out of date or ctx ends, and reports which by ctx's error.
func (c *Catalog) Wait(ctx context.Context) error {
	select {
	case <-c.Changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Peer returns the peer of a manifest, by its name.
func (c *Catalog) Peer(name string) (Peer, bool) {
	s, ok := c.servers[name]
	return s.Peer, ok
}

// NameOf returns the name of the manifest of a peer; "" if it is not served. The first use costs in proportion to the peers.
func (c *Catalog) NameOf(p Peer) string { return c.named()[p] }

// peerNames returns what returns the names of the manifests of peers.
func peerNames(servers map[string]server) func() map[Peer]string {
	return sync.OnceValue(func() map[Peer]string {
		names := make(map[Peer]string, len(servers))
		for name, s := range servers {
			names[s.Peer] = name
		}
		return names
	})
}

// Of returns the name of the manifest of a tool; "" if the tool does not exist.
func (c *Catalog) Of(tool string) string {
	if e, ok := c.entries[tool]; ok {
		return e.of.tool.Name
	}
	return ""
}

// Known reports whether, when the catalog was made, every peer had said what it offers, or its time to do
// so was over (SPEC D7a), and that none of the latter has said it since. Nobody waits for those that are late.
func (c *Catalog) Known() bool {
	return !slices.ContainsFunc(c.awaited, func(s server) bool { return !s.late && (!s.offers.Known || s.Offers() != s.offers) })
}

// Settle waits until every peer has said what it offers, or its time to do so is over, or ctx ends.
func (s *Supervisor) Settle(ctx context.Context) {
	s.having(ctx, func(*Catalog) bool { return false })
}

// Starting returns the names of the providers that have not been ready yet, and still may become so, but for those that are
// overdue: no provider keeps Orla from being ready for as long as it likes (SPEC N2).
func (s *Supervisor) Starting() []string {
	s.applying.Lock()
	defer s.applying.Unlock()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.living)) {
		if p := s.living[name].peer; p != nil {
			if life := p.Life(); !life.Settled && !life.Overdue {
				names = append(names, name)
			}
		}
	}
	return names
}

// Lives returns the Life of each provider that has one, by name.
func (s *Supervisor) Lives() map[string]peer.Life {
	s.applying.Lock()
	peers := map[string]Peer{}
	for name, l := range s.living {
		if l.peer != nil {
			peers[name] = l.peer
		}
	}
	s.applying.Unlock()
	lives := make(map[string]peer.Life, len(peers))
	for name, p := range peers {
		lives[name] = p.Life()
	}
	return lives
}

// Served is a manifest that is being served.
type Served struct {
	Tool manifest.Tool
	// Listed are those of its tools that clients can call, by name. They must
	// not be modified.
	Listed []*mcp.Tool
}

// Manifests returns the manifests that are being served, by name.
func (s *Supervisor) Manifests() []Served {
	s.applying.Lock()
	defer s.applying.Unlock()
	catalog := s.catalog.Load()
	var served []Served
	for _, name := range slices.Sorted(maps.Keys(s.living)) {
		l := s.living[name]
		one := Served{Tool: l.tool}
		for _, t := range l.tools {
			if e, ok := catalog.entries[t.Name]; ok && e.provider == l.provider {
				one.Listed = append(one.Listed, t)
			}
		}
		slices.SortFunc(one.Listed, func(a, b *mcp.Tool) int { return cmp.Compare(a.Name, b.Name) })
		served = append(served, one)
	}
	return served
}

// Sources returns the names of the manifests that are being served, by where each is declared. Unlike Manifests it copies none.
func (s *Supervisor) Sources() map[string]string {
	s.applying.Lock()
	defer s.applying.Unlock()
	names := make(map[string]string, len(s.living))
	for name, l := range s.living {
		names[l.tool.Source] = name
	}
	return names
}

// Living returns the manifests whose providers live, by name.
func (s *Supervisor) Living() []manifest.Tool {
	s.applying.Lock()
	defer s.applying.Unlock()
	living := make([]manifest.Tool, 0, len(s.living)) // they are large
	for _, l := range s.living {
		if l.peer != nil {
			living = append(living, l.tool)
		}
	}
	slices.SortFunc(living, func(a, b manifest.Tool) int { return cmp.Compare(a.Name, b.Name) })
	return living
}

// Updated delivers the URIs of resources that peers say have changed. It has
// one reader.
func (s *Supervisor) Updated() <-chan string { return s.updated }
