package oauth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/orla-project/orla/internal/testing/needs"
)

// SPEC N3: while an issuer is down, or does not answer, the tokens of known keys are accepted at once. Ten others a
// second cause no more than a fetch in ten seconds, none of them waits for longer than a fetch takes, and none is left
// waiting. When the issuer is back, a key that it has made meanwhile is good, without a restart.
func TestN3AnIssuerThatIsDown(t *testing.T) {
	const each = 100 * time.Millisecond
	lasts := 10 * time.Minute
	if needs.More() {
		lasts = time.Hour
	}
	for name, hangs := range map[string]bool{"refuses": false, "does not answer": true} {
		t.Run(name, func(t *testing.T) {
			m, young := newMaker(t, "a"), newMaker(t, "young")
			f := &fakeIssuer{keys: []jose.JSONWebKey{m.key()}}
			within(t, f, func(t *testing.T, v *Verifier, log *records) {
				known, unknown := m.token(t), young.token(t)
				if _, err := v.Verify(t.Context(), "", known); err != nil {
					t.Fatal(err)
				}
				time.Sleep(askEvery) // until then, the keys of the last fetch are all that there are
				f.set(func() { f.down, f.hangs, f.fetched = true, hangs, 0 })
				var asking sync.WaitGroup
				var waiting, most, slowest atomic.Int64
				began := time.Now()
				for n := 0; time.Since(began) < lasts; n++ {
					asking.Go(func() {
						now := waiting.Add(1)
						defer waiting.Add(-1)
						most.Store(max(most.Load(), now))
						from := time.Now()
						if _, err := v.Verify(t.Context(), "", unknown); !errors.Is(err, ErrUnavailable) && !t.Failed() {
							t.Errorf("a key that may be new: %v", err)
						}
						slowest.Store(max(slowest.Load(), int64(time.Since(from))))
					})
					if n%600 == 0 { // once a minute: with accepted tokens, and with one that was not seen before
						from := time.Now()
						for _, token := range []string{known, m.tokenUntil(t, time.Now().Add(24*time.Hour))} {
							if _, err := v.Verify(t.Context(), "", token); err != nil {
								t.Fatalf("a known key, after %s: %v", time.Since(began), err)
							}
						}
						if took := time.Since(from); took > 0 {
							t.Errorf("the tokens of known keys waited for %s", took)
						}
					}
					time.Sleep(each)
				}
				asking.Wait()
				if n := f.count(); n < int(lasts/(36*time.Second)) || n > int(lasts/(10*time.Second))+10 {
					t.Errorf("the issuer was asked %d times in %s", n, lasts)
				}
				if d := time.Duration(slowest.Load()); d > fetchPatience {
					t.Errorf("a token waited for %s", d)
				}
				if n := most.Load(); n > int64(fetchPatience/each)+1 {
					t.Errorf("%d tokens waited at a time", n)
				}
				if log.count(slog.LevelWarn) != 1 || log.count(slog.LevelError) != 0 {
					t.Errorf("the log has %v", log.of)
				}
				f.set(func() { f.down, f.hangs, f.keys = false, false, []jose.JSONWebKey{m.key(), young.key()} })
				time.Sleep(fetchPatience + askEvery)
				for _, token := range []string{unknown, known} {
					if _, err := v.Verify(t.Context(), "", token); err != nil {
						t.Errorf("when the issuer is back: %v", err)
					}
				}
			})
		})
	}
}

// SPEC N3: a clock that jumps changes which tokens are good, for as long as it is wrong and no longer: neither a token that was
// accepted nor one that was refused is remembered as that. The keys are not fetched for it, and stay good.
func TestN3TheClockJumps(t *testing.T) {
	m := newMaker(t, "a")
	synctest.Test(t, func(t *testing.T) {
		f := &fakeIssuer{keys: []jose.JSONWebKey{m.key()}}
		v := newVerifier(Settings{Issuer: "https://issuer", PublicURL: "https://orla"}, f.fetch, slog.New(slog.DiscardHandler))
		var jump time.Duration
		v.now = func() time.Time { return time.Now().Add(jump) }
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { v.Run(ctx) })
		defer running.Wait()
		defer cancel()
		now := time.Now()
		tokens := map[string]string{}
		for name, life := range map[string][2]time.Duration{
			"good for 5 minutes":            {-time.Second, 5 * time.Minute},
			"good for 2 days":               {-time.Second, 48 * time.Hour},
			"over for half an hour":         {-time.Hour, -30 * time.Minute},
			"good in half an hour":          {30 * time.Minute, 48 * time.Hour},
			"over, and good for 2 h before": {-2 * time.Hour, -time.Minute},
		} {
			tokens[name] = m.signed(t, fmt.Sprintf(`{"iss":"https://issuer","aud":"https://orla/mcp","sub":"ann","nbf":%d,"exp":%d}`, now.Add(life[0]).Unix(), now.Add(life[1]).Unix()))
		}
		right := []string{"good for 5 minutes", "good for 2 days"}
		for _, step := range []struct {
			jump time.Duration
			good []string
		}{
			{0, right},
			{time.Hour, []string{"good for 2 days", "good in half an hour"}},
			{0, right},
			{24 * time.Hour, []string{"good for 2 days", "good in half an hour"}},
			{0, right},
			{-time.Hour, []string{"over, and good for 2 h before", "over for half an hour"}},
			{0, right},
			{-24 * time.Hour, nil},
			{0, right},
		} {
			jump = step.jump
			for range 2 {
				for name, token := range tokens {
					_, err := v.Verify(t.Context(), "", token)
					want := false
					for _, one := range step.good {
						want = want || one == name
					}
					if (err == nil) != want || err != nil && !errors.Is(err, ErrInvalid) {
						t.Errorf("with a clock that is %s off, a token that is %s: %v", jump, name, err)
					}
				}
			}
		}
		if n := f.count(); n != 1 {
			t.Errorf("the keys were fetched %d times", n)
		}
	})
}
