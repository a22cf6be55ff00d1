package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// maxIdleSession is the memory that an idle session may hold, maxIdleStream
	// that of one with a connection and a stream open on it.
	maxIdleSession = 5 << 10
	maxIdleStream  = 64 << 10
	// maxIdleLoadCPU is what keeps a thousand streams alive, as a part of one
	// core: each gets a comment every 25 seconds.
	maxIdleLoadCPU = 0.01
	// maxKept is how much of what many sessions held may stay when they have left.
	maxKept = 0.25
	// giveBack is how long an Orla may take to give memory back.
	giveBack = 60 * time.Second
	// openers connect side by side.
	openers = 32
)

// idler is a client that does nothing.
type idler struct {
	conn net.Conn // nil for one without a stream
	id   string   // of its session
}

// idleKind is a way to be idle.
type idleKind struct {
	name    string
	streams bool // each holds a connection
	most    int64
	open    func(ctx context.Context, host string, over *mcpClient) (idler, error)
}

var idleKinds = []idleKind{
	{"session", false, maxIdleSession, openSession},
	{"session with its stream open", true, maxIdleStream, openStream},
	{"stateless listener", true, maxIdleStream, openListener},
}

// measureIdle tells what sessions hold that nobody uses, and what is given back
// when they are over.
func (b *bench) measureIdle(ctx context.Context, _ string) (table, error) {
	t := table{
		title: "Many idle clients (G7)",
		header: []string{
			"idle", "clients", "RSS each", "PSS each", "goroutines each", "CPU", "of one core", "context switches",
			"RSS fresh", "RSS at first", "RSS held", "RSS left", "given back in", "target each", "verdict",
		},
		note: fmt.Sprintf("Each row is an Orla of its own, beside the others. Clients leave by DELETE where they have a session, else by closing their connection. "+
			"What is held after %s in which nothing was asked for counts for each; \"given back\" is when no more than a quarter of it is left. "+
			"A stream gets a comment every 25 s.", b.scale.quiet),
	}
	rows, errs := make([]table, len(idleKinds)), make([]error, len(idleKinds))
	var all sync.WaitGroup
	for i, kind := range idleKinds { // side by side, since most of their time is rest
		all.Go(func() {
			if err := b.idleRow(ctx, &rows[i], kind); err != nil {
				errs[i] = fmt.Errorf("%s: %w", kind.name, err)
			}
		})
	}
	all.Wait()
	for _, row := range rows {
		t.rows = append(t.rows, row.rows...)
	}
	return t, errors.Join(errs...)
}

func (b *bench) idleRow(ctx context.Context, t *table, kind idleKind) error {
	n := b.scale.idlers
	if kind.streams {
		fit, err := connections(len(idleKinds) * n)
		if err != nil {
			return err
		}
		n = min(n, max(1, fit/(len(idleKinds)-1))) // one kind has none
	}
	s, err := b.startOrla(ctx, b.toolsDir)
	if err != nil {
		return err
	}
	defer s.stop()
	if err := b.warm(ctx, s); err != nil {
		return err
	}
	if err := rest(ctx, b.scale.settle); err != nil {
		return err
	}
	fresh, err := look(ctx, s, "fresh")
	if err != nil {
		return err
	}
	idlers, leave, err := openIdlers(ctx, s.host, kind, n)
	defer func() { closeIdlers(idlers) }()
	if err != nil {
		return err
	}
	crowded, err := memoryOf(s.pid())
	if err != nil {
		return err
	}
	if err := rest(ctx, b.scale.quiet); err != nil {
		return err
	}
	held, err := look(ctx, s, "held")
	if err != nil {
		return err
	}
	quiet, err := watchRest(ctx, s, b.scale.idle)
	if err != nil {
		return err
	}
	if err := leave(); err != nil {
		return err
	}
	left, took, err := awaitGivenBack(ctx, s.pid(), fresh.orla.rss, held.orla.rss, b.scale.giveBack)
	if err != nil {
		return err
	}
	grown := held.orla.rss - fresh.orla.rss
	kept := float64(left-fresh.orla.rss) / float64(max(1, grown))
	cpu := quotient(quiet.cpu, b.scale.idle)
	t.add(kind.name, fmt.Sprint(n), each(grown, n), each(held.orla.pss-fresh.orla.pss, n),
		fmt.Sprintf("%.2f", float64(held.goroutines-fresh.goroutines)/float64(n)),
		millis(quiet.cpu), fmt.Sprintf("%.2f %%", 100*cpu), fmt.Sprint(quiet.switches),
		mebibytes(fresh.orla.rss), mebibytes(crowded.rss), mebibytes(held.orla.rss), mebibytes(left), took, kibibytes(int(kind.most)),
		verdict(check{"memory", float64(grown) / float64(n), float64(kind.most)},
			check{"CPU", cpu, maxIdleLoadCPU * float64(n) / 1000}, check{"given back", kept, maxKept}))
	return nil
}

// warm makes some calls, over connections that end with it, without a session.
func (b *bench) warm(ctx context.Context, s *server) error {
	_, err := lanes(openers, openers, func(int) error {
		c, err := connect(ctx, s.host, stateless)
		if err != nil {
			return err
		}
		defer c.close()
		return c.ask(c.call(b.programs[0].name))
	})
	return err
}

// openIdlers opens n idle clients. leave ends them as clients should.
func openIdlers(ctx context.Context, host string, kind idleKind, n int) (idlers []idler, leave func() error, err error) {
	var mu sync.Mutex // guards idlers
	over := make([]*mcpClient, openers)
	for i := range over {
		if over[i], err = connect(ctx, host, stateless); err != nil {
			return nil, nil, err
		}
		defer over[i].close()
	}
	_, err = lanes(n, openers, func(lane int) error {
		one, err := kind.open(ctx, host, over[lane])
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		idlers = append(idlers, one)
		return nil
	})
	return idlers, func() error { return endIdlers(ctx, host, idlers) }, err
}

// endIdlers closes the connections, and ends the sessions.
func endIdlers(ctx context.Context, host string, idlers []idler) error {
	closeIdlers(idlers)
	if idlers[0].id == "" {
		return nil
	}
	c, err := dial(ctx, host)
	if err != nil {
		return err
	}
	defer c.close()
	for _, one := range idlers {
		a, err := c.roundTrip(fmt.Appendf(nil, "DELETE /mcp HTTP/1.1\r\nHost: %s\r\nMcp-Session-Id: %s\r\n\r\n", host, one.id))
		if err == nil && a.status != http.StatusNoContent {
			err = fmt.Errorf("DELETE: status %d", a.status)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func closeIdlers(idlers []idler) {
	for _, one := range idlers {
		if one.conn != nil {
			_ = one.conn.Close() // nothing is under way
		}
	}
}

// openSession begins a session over a connection that others use too.
func openSession(_ context.Context, host string, over *mcpClient) (idler, error) {
	a, err := over.roundTrip(post(host, nil, message(1, "initialize", withSession.initialize())))
	if err == nil && a.session == "" {
		err = fmt.Errorf("initialize: status %d: %.300s", a.status, a.body)
	}
	if err != nil {
		return idler{}, err
	}
	id := a.session
	_, err = over.roundTrip(post(host, []string{"Mcp-Protocol-Version: " + withSession.version, "Mcp-Session-Id: " + id}, initialized))
	return idler{id: id}, err
}

// openStream begins a session, and opens its stream on a connection of its own.
func openStream(ctx context.Context, host string, over *mcpClient) (idler, error) {
	one, err := openSession(ctx, host, over)
	if err != nil {
		return one, err
	}
	one.conn, err = stream(ctx, host, fmt.Appendf(nil,
		"GET /mcp HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\nMcp-Protocol-Version: %s\r\nMcp-Session-Id: %s\r\n\r\n",
		host, withSession.version, one.id))
	return one, err
}

// openListener opens a stream of the stateless era on a connection of its own.
func openListener(ctx context.Context, host string, over *mcpClient) (one idler, err error) {
	one.conn, err = stream(ctx, host, over.request("subscriptions/listen", `"notifications":{"toolsListChanged":true}`))
	return one, err
}

// stream makes a request whose answer does not end, and waits for its head.
func stream(ctx context.Context, host string, request []byte) (net.Conn, error) {
	dialer := net.Dialer{Timeout: callPatience}
	conn, err := dialer.DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	if err = conn.SetDeadline(time.Now().Add(callPatience)); err == nil {
		_, err = conn.Write(request)
	}
	head := make([]byte, 1024)
	n := 0
	if err == nil {
		n, err = conn.Read(head)
	}
	if err == nil && !bytes.HasPrefix(head, []byte("HTTP/1.1 200 ")) {
		err = fmt.Errorf("a stream was refused: %.300s", head[:n])
	}
	if err != nil {
		_ = conn.Close() // the cause is err
		return nil, err
	}
	return conn, conn.SetDeadline(time.Time{})
}

// awaitGivenBack waits until a process has given memory back, and returns what
// it holds then, and how long that took. A bound of 0 waits for nothing.
func awaitGivenBack(ctx context.Context, pid int, fresh, held int64, bound time.Duration) (int64, string, error) {
	began := time.Now()
	enough := fresh + int64(maxKept*float64(held-fresh))
	for {
		m, err := memoryOf(pid)
		if err != nil {
			return 0, "", err
		}
		took := time.Since(began)
		switch {
		case m.rss <= enough:
			return m.rss, fmt.Sprintf("%.0f s", took.Seconds()), nil
		case took >= bound:
			return m.rss, fmt.Sprintf("not in %.0f s", took.Seconds()), nil
		}
		if err := rest(ctx, min(time.Second, bound)); err != nil {
			return 0, "", err
		}
	}
}
