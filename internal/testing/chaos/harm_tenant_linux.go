package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// What Orla may hold at any moment of a storm. The memory is what its bounds on
// requests, answers and kept answers add up to, and twice that for Go's collector.
const (
	mostMemory     = 1 << 30
	mostGoroutines = 6000
)

// asTenant returns a client of the hostile tenant.
func (w *world) asTenant() *client {
	return &client{http: w.tenant, url: w.life().url, hostile: true}
}

// tenantTime bounds what the tenant waits for.
const tenantTime = 10 * time.Second

// say sends a message of the tenant, whatever becomes of it.
func (c *client) say(ctx context.Context, format string, args ...any) {
	own, cancel := context.WithTimeout(ctx, tenantTime)
	defer cancel()
	_, _, _ = c.send(own, fmt.Appendf(nil, format, args...)) // a refusal is as good
}

// doHostile is a call of the hostile capsule.
const doHostile = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"` + hostileName + `__do","arguments":{"text":%q}}}`

// tenantCalls calls the hostile capsule from sessions that are listened to, and
// leaves some of the calls.
func tenantCalls(ctx context.Context, w *world, s step) {
	ctx, cancel := context.WithTimeout(ctx, s.long)
	defer cancel()
	var all sync.WaitGroup
	for i := range 3 {
		dice := rand.New(rand.NewPCG(uint64(s.size), uint64(i)))
		all.Go(func() {
			c := w.asTenant()
			if c.open(ctx) != nil {
				return
			}
			all.Go(func() { _ = c.listen(ctx, func() {}, func(string) {}) }) // it ends with ctx
			for ctx.Err() == nil {
				own, left := context.WithTimeout(ctx, time.Duration(dice.IntN(300))*time.Millisecond)
				c.say(own, doHostile, w.nonce(), tenantMark)
				left()
			}
			_ = c.leave(context.WithoutCancel(ctx)) // Orla may be over
		})
	}
	all.Wait()
}

// tenantSessions opens sessions, and keeps them for a while.
func tenantSessions(ctx context.Context, w *world, s step) {
	var opened []*client
	for range 150 {
		c := w.asTenant()
		if ctx.Err() != nil {
			break
		}
		if c.open(ctx) == nil { // a refusal is as good
			opened = append(opened, c)
		}
	}
	wait(ctx, s.long)
	for _, c := range opened {
		_ = c.leave(context.WithoutCancel(ctx)) // Orla may be over
	}
}

// tenantBatch sends batches of calls and of things that are not calls.
func tenantBatch(ctx context.Context, w *world, s step) {
	one := []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{}`, `[]`, `1`,
		fmt.Sprintf(doHostile, 1, tenantMark), `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"script","arguments":{"nonce":"batch"}}}`,
	}[s.size%6]
	w.asTenant().say(ctx, "[%s%s]", strings.Repeat(one+",", 5000), one)
}

// tenantMeta sends a _meta with very many keys, and one that is very long.
func tenantMeta(ctx context.Context, w *world, s step) {
	var meta strings.Builder
	if s.size%2 == 0 {
		for i := range 50_000 {
			fmt.Fprintf(&meta, `"k%d":1,`, i)
		}
	}
	fmt.Fprintf(&meta, `"progressToken":"%s"`, strings.Repeat(tenantMark, 10+s.size%2*20_000))
	w.asTenant().say(ctx, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{%s},"name":"%s__do","arguments":{"text":"m"}}}`, meta.String(), hostileName)
}

// tenantDeep calls tools with arguments that are deep, or that have no end.
func tenantDeep(ctx context.Context, w *world, s step) {
	deep := []int{30, 1000, 200_000}[s.size%3]
	for _, tool := range []string{"do", "deep", "refs"} {
		w.asTenant().say(ctx, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s__%s","arguments":{"a":%s1%s,"x":%s{}%s}}}`,
			hostileName, tool, strings.Repeat("[", deep), strings.Repeat("]", deep), strings.Repeat(`{"x":`, deep), strings.Repeat("}", deep))
	}
}

// tenantOtherSessions cancels, asks and ends in the sessions of the honest tenant.
func tenantOtherSessions(ctx context.Context, w *world, _ step) {
	for _, held := range w.crowd.sessions {
		victim := held.client()
		if victim == nil {
			continue
		}
		c := w.asTenant()
		c.session = victim.session
		now := w.crowd.ids.Load()
		for id := now - 20; id <= now; id++ {
			c.say(ctx, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d,"reason":"%s"}}`, id, tenantMark)
		}
		c.say(ctx, `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}`)
		_ = c.leave(ctx) // it has to be refused, which the honest session sees
	}
}

// tenantSlowBodies opens requests that send their bodies byte by byte.
func tenantSlowBodies(ctx context.Context, w *world, s step) {
	ctx, cancel := context.WithTimeout(ctx, s.long)
	defer cancel()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			conn, err := w.dial(ctx)
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			_, _ = fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{", hostileToken)
			for ctx.Err() == nil {
				if _, err := io.WriteString(conn, " "); err != nil {
					return
				}
				wait(ctx, 50*time.Millisecond)
			}
		})
	}
	all.Wait()
}

// tenantStreams opens streams of both eras and follows none.
func tenantStreams(ctx context.Context, w *world, s step) {
	ctx, cancel := context.WithTimeout(ctx, s.long)
	defer cancel()
	const meta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"` + tenantMark + `","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			c := w.asTenant()
			if i%2 == 0 {
				if c.open(ctx) == nil {
					_ = c.listen(ctx, func() {}, func(string) {}) // it ends with ctx
					_ = c.leave(context.WithoutCancel(ctx))       // Orla may be over
				}
				return
			}
			req, err := c.request(ctx, http.MethodPost, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"_meta":%s,"notifications":{"toolsListChanged":true,"resourceSubscriptions":[%q]}}}`, meta, keptURI))
			if err != nil {
				return
			}
			req.Header.Set("Mcp-Protocol-Version", "2026-07-28")
			req.Header.Set("Mcp-Method", "subscriptions/listen")
			if resp, err := c.http.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body) // it ends with ctx
				_ = resp.Body.Close()
			}
		})
	}
	all.Wait()
}

// tenantSubscriptions subscribes to many URIs, some of them long.
func tenantSubscriptions(ctx context.Context, w *world, s step) {
	c := w.asTenant()
	if c.open(ctx) != nil {
		return
	}
	for i := range 100 {
		if ctx.Err() != nil {
			break
		}
		c.say(ctx, `{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":"hostile:///%d/%s"}}`, i, i, strings.Repeat(tenantMark, s.size*10))
	}
	_ = c.leave(context.WithoutCancel(ctx)) // Orla may be over
}

// watchTenants looks whether a resource is answered by the capsule that is listed for it,
// whether the hostile one takes it over, and whether Orla stays within its bounds.
func (w *world) watchTenants(ctx context.Context) {
	var of *life
	var held bool // the honest capsule has had the resource in this life
	var taken int // so often in a row it was the hostile one's, while the honest one was there
	for ctx.Err() == nil {
		wait(ctx, 500*time.Millisecond)
		l := w.life()
		if l != of {
			of, held, taken = l, false, 0
		}
		own, cancel := context.WithTimeout(ctx, tenantTime)
		c := &client{http: w.crowd.http, url: l.url}
		seen := c.look(own)
		now, err := w.level(own, l)
		cancel()
		for _, f := range seen.faults() {
			w.book.violated("takeover", "%s", f)
		}
		switch {
		case !seen.sure || w.life() != l:
		case seen.owner != takenName:
			held, taken = true, 0
		case held && seen.there:
			if taken++; taken == 2 { // once may be a moment in between
				w.book.violated("takeover", "%s was the honest capsule's in this life, and is the hostile one's now", keptURI)
			}
		}
		if err == nil && (now.memory > mostMemory || now.goroutines > mostGoroutines) {
			w.book.violated("bounds", "Orla holds %d MiB and %d goroutines", now.memory>>20, now.goroutines)
		}
		w.book.count(w.book.checks, "tenants", 1)
		if seen.sure {
			w.book.count(w.book.checks, "owner is "+seen.owner, 1)
		}
	}
}

// sight is what a client sees of the resource that two capsules list.
type sight struct {
	sure  bool   // the lists, and the honest capsule's processes, were the same before the read and after it
	owner string // what the one that is listed for it calls it
	there bool   // the honest capsule is listed
	text  string // what was read; "" for nothing
	leak  bool   // the hostile tenant's text was read
}

// look reads the resource between two looks at who is listed for it.
func (c *client) look(ctx context.Context) (s sight) {
	type lists struct {
		owner     string
		there     bool
		processes string // the honest capsule's: with another one it may have lost the resource, and have it again
	}
	see := func() (l lists, ok bool) {
		tools, err := c.list(ctx)
		if err != nil {
			return l, false
		}
		l.there = slices.Contains(tools, "lister__one")
		l.processes = fmt.Sprint(of("lister", ""))
		l.owner, err = c.named(ctx, keptURI)
		return l, err == nil && l.owner != ""
	}
	before, ok1 := see()
	text, err := c.read(ctx, keptURI)
	after, ok2 := see()
	return sight{
		sure: ok1 && ok2 && before == after, owner: after.owner, there: after.there,
		text: text, leak: errors.Is(err, errLeak),
	}
}

// faults says what is wrong with it.
func (s sight) faults() (faults []string) {
	hostile := s.leak || s.text != "" && !strings.HasPrefix(s.text, "kept ")
	switch {
	case !s.sure:
	case hostile && s.owner != takenName:
		faults = append(faults, fmt.Sprintf("%s is listed as the honest capsule's and the hostile one answers: %.100q", keptURI, s.text))
	case s.text != "" && !hostile && s.owner == takenName:
		faults = append(faults, fmt.Sprintf("%s is listed as the hostile capsule's and the honest one answers: %.100q", keptURI, s.text))
	}
	return faults
}
