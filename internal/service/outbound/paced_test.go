package outbound

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
)

// SPEC S2: what nobody has asked for is read at a bounded rate.
func TestS2AConnectionReadsAFloodSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service, client := net.Pipe()
		p := newPaced(client, turns.Owner{}, func() {}, &floods{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for frame := make([]byte, 4<<10); ; {
				if _, err := service.Write(frame); err != nil {
					return
				}
			}
		})
		total := 0
		for began, b := time.Now(), make([]byte, 4<<10); time.Since(began) < 10*time.Second; {
			n, err := p.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			total += n
		}
		if most := 2*perRequest + 10*unaskedRate + 4<<10; total < 10*unaskedRate || total > most {
			t.Errorf("%d bytes were read in 10 s, want %d at most", total, most)
		}

		began := time.Now()
		wg.Go(func() {
			time.Sleep(time.Millisecond)
			_ = p.Close()
		})
		p.asked(-maxAhead)
		_, _ = p.Read(make([]byte, 4<<10)) // it pauses
		if took := time.Since(began); took > time.Millisecond {
			t.Errorf("a closed connection was read for %v", took)
		}
		_ = service.Close()
		wg.Wait()
	})
}

// SPEC S2: many connections that flood share the rate of a few, whether they are of one tenant or of many.
func TestS2ManyFloodsShareARate(t *testing.T) {
	for name, tenantOf := range map[string]func(n int) turns.Owner{
		"one tenant":    func(int) turns.Owner { return turns.Owner{} },
		"a tenant each": func(n int) turns.Owner { return turns.Owner{Caller: strconv.Itoa(n)} },
		"two each":      func(n int) turns.Owner { return turns.Owner{Caller: strconv.Itoa(n / 2)} },
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { manyFloods(t, tenantOf) }) })
	}
}

func manyFloods(t *testing.T, tenantOf func(n int) turns.Owner) {
	const conns, seconds = 10 * mostFloods, 200
	var all floods
	var total atomic.Int64
	var wg sync.WaitGroup
	ctx, stop := context.WithTimeout(t.Context(), seconds*time.Second)
	defer stop()
	for n := range conns {
		service, client := net.Pipe()
		p := newPaced(client, tenantOf(n), func() {}, &all)
		context.AfterFunc(ctx, func() { _, _ = p.Close(), service.Close() })
		wg.Go(func() {
			for frame := make([]byte, 4<<10); ; {
				if _, err := service.Write(frame); err != nil {
					return
				}
			}
		})
		wg.Go(func() {
			for b := make([]byte, 4<<10); ; {
				n, err := p.Read(b)
				if total.Add(int64(n)); err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if most := int64(2*conns*perRequest + mostFloods*seconds*unaskedRate*3/2); total.Load() > most || total.Load() < mostFloods*seconds*unaskedRate/2 {
		t.Errorf("%d bytes were read in %d s, want %d at most", total.Load(), seconds, most)
	}
	if len(all.of) != 0 {
		t.Errorf("%d tenants stay", len(all.of))
	}
}

// SPEC S2, N2: the floods of one tenant's services share what it has, and take hardly anything of what another tenant has.
func TestN2FloodsOfOneTenantSlowNoOther(t *testing.T) {
	var all floods
	ann, bob := turns.Owner{Caller: "ann"}, turns.Owner{Caller: "bob"}
	all.pause(ann, 1000)
	all.pause(bob, 1)
	if a, b := all.rate(ann), all.rate(bob); b != unaskedRate || a*1000 > unaskedRate*mostFloods/2 {
		t.Errorf("one of 1000 connections of ann reads %d bytes in a second, that of bob %d", a, b)
	}
	all.pause(bob, -1)
	if a := all.rate(ann); a != unaskedRate*mostFloods/1001 {
		t.Errorf("alone, one more than 1000 connections of ann reads %d bytes in a second", a)
	}
	if b := all.rate(bob); b != unaskedRate {
		t.Errorf("the first flood of bob is read with %d bytes in a second", b)
	}
	if all.pause(ann, -1000); len(all.of) != 0 {
		t.Errorf("%d tenants stay", len(all.of))
	}
}

// SPEC H4: when Orla stops, a service that does not take what is sent to it has had its time with that of the call. Otherwise it may be
// slow, and others may have calls on the connection.
func TestH4AServiceThatReadsNothingDelaysNoStop(t *testing.T) {
	for name, c := range map[string]struct {
		why  error
		want time.Duration
	}{
		"a stop":   {fault.New(fault.NotReady, "Orla is stopping"), 0},
		"a cancel": {context.Canceled, blocks},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, client := net.Pipe() // nobody reads
				p := newPaced(client, turns.Owner{}, func() {}, &floods{})
				over := make(chan struct{})
				go func() {
					defer close(over)
					_, _ = p.Write(make([]byte, 1))
				}()
				synctest.Wait()
				ctx, end := context.WithCancelCause(t.Context())
				defer p.watch(ctx)()
				began := time.Now()
				end(c.why)
				<-over
				if took := time.Since(began); took != c.want {
					t.Errorf("it waits for %v, want %v", took, c.want)
				}
			})
		})
	}
}

// Answers are asked for, however long they are, and however many.
func TestAnswersAreReadAsTheyCome(t *testing.T) {
	const size = 40 << 20
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for piece := make([]byte, 64<<10); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})
	secure := httptest.NewUnstartedServer(handler)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	defer secure.Close()
	plain := httptest.NewUnstartedServer(handler)
	plain.Config.Protocols = new(http.Protocols)
	plain.Config.Protocols.SetHTTP1(true)
	plain.Config.Protocols.SetUnencryptedHTTP2(true)
	plain.Start()
	defer plain.Close()
	c := New(Options{Roots: secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs})
	defer c.Close()
	for name, way := range map[string]struct {
		client *http.Client
		url    string
	}{
		"HTTP/1":             {c.HTTPClient(), plain.URL},
		"HTTP/2":             {c.HTTPClient(), secure.URL},
		"HTTP/2 without TLS": {c.H2C(), plain.URL},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // at the rate of a flood it takes minutes
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, way.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := way.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			if _, err := io.CopyN(io.Discard, resp.Body, size); err != nil && !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			if own, ok := resp.Body.(*body); !ok || own.conn == nil {
				t.Error("what is read is not counted")
			}
		})
	}
}
