package turns_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

// of is the owner that a word stands for: "session", or "caller/session".
func of(word string) turns.Owner {
	caller, session, ok := strings.Cut(word, "/")
	if !ok {
		return turns.Owner{Session: word}
	}
	return turns.Owner{Caller: caller, Session: session}
}

// order has owners wait for the one place of a queue, one after the other, and
// returns the order in which they get it.
func order(t *testing.T, lines string) string {
	t.Helper()
	places := turns.NewQueue(1, 0)
	if !places.Try(of("first")) {
		t.Fatal("an empty queue has no place")
	}
	var served []string // by whoever has the one place
	var wg sync.WaitGroup
	for word := range strings.FieldsSeq(lines) {
		wg.Go(func() {
			if err := places.Take(t.Context(), of(word)); err != nil {
				t.Error(err)
			}
			served = append(served, word)
			places.Give(of(word))
		})
		synctest.Wait()
	}
	if got, want := places.Waiting(), len(strings.Fields(lines)); got != want {
		t.Errorf("%d wait, want %d", got, want)
	}
	places.Give(of("first"))
	wg.Wait()
	if places.Free() != 1 || places.Waiting() != 0 {
		t.Errorf("%d places are free and %d wait at the end, want 1 and 0", places.Free(), places.Waiting())
	}
	return strings.Join(served, " ")
}

// Who asks often keeps nobody else waiting for longer than a turn, and callers take
// turns before their sessions do, however many sessions one has.
func TestN2CallersTakeTurnsBeforeTheirSessions(t *testing.T) {
	for lines, want := range map[string]string{
		"flood flood flood flood a b a":                   "flood a b flood a flood flood",
		"big/1 big/2 big/3 big/4 big/5 small/1":           "big/1 small/1 big/2 big/3 big/4 big/5",
		"big/1 big/1 big/1 big/2 small/1 small/1 small/2": "big/1 small/1 big/2 small/2 big/1 small/1 big/1",
		"big/1 big/2 alone":                               "big/1 alone big/2",
	} {
		synctest.Test(t, func(t *testing.T) {
			if got := order(t, lines); got != want {
				t.Errorf("%s are served as %s, want %s", lines, got, want)
			}
		})
	}
}

// A thousand sessions of one caller that wait, and come again as soon as they are
// served, let another caller wait for one turn.
func TestN2AThousandSessionsAreOneCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := turns.NewQueue(1, 0)
		var served atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 1000 {
			owner := of(fmt.Sprint("big/", i))
			wg.Go(func() {
				for ctx.Err() == nil && places.Take(ctx, owner) == nil {
					served.Add(1)
					time.Sleep(time.Millisecond)
					places.Give(owner)
				}
			})
		}
		synctest.Wait()
		for range 100 {
			synctest.Wait() // whoever has the place has been counted
			before := served.Load()
			if err := places.Take(t.Context(), of("small/1")); err != nil {
				t.Fatal(err)
			}
			if turns := served.Load() - before; turns > 1 {
				t.Errorf("%d of the other caller were served before", turns)
			}
			time.Sleep(time.Millisecond)
			places.Give(of("small/1"))
		}
		cancel()
		wg.Wait()
	})
}

func TestWhoLeavesTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, word := range []string{"b", "c/b"} {
			places := turns.NewQueue(1, 0)
			if err := places.Take(t.Context(), of("a")); err != nil {
				t.Fatal(err)
			}
			gone := errors.New("gone")
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, gone)
			defer cancel()
			if err := places.Take(ctx, of(word)); !errors.Is(err, gone) {
				t.Errorf("the wait ends with %v", err)
			}
			if places.Waiting() != 0 || places.Free() != 0 {
				t.Errorf("%d wait and %d are free, want 0 and 0", places.Waiting(), places.Free())
			}
			places.Give(of("a"))
			if got := places.Free(); got != 1 {
				t.Errorf("%d are free, want 1", got)
			}
		}
	})
}

func TestResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := turns.NewQueue(1, 0)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := places.Take(t.Context(), turns.Owner{}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		places.Resize(3)
		wg.Wait()
		places.Resize(1)
		if got := places.Free(); got != 0 {
			t.Errorf("%d are free, want 0", got)
		}
	})
}

// One that is alone takes what it wants; beside another, and for a while after it,
// no more than its part, whatever it has already.
func TestALineIsBoundedBesideOthers(t *testing.T) {
	for _, word := range []string{"flood", "flood/1"} {
		synctest.Test(t, func(t *testing.T) {
			lines := turns.NewQueue(turns.NoLimit, 2)
			flood := of(word)
			for range 5 {
				if !lines.Try(flood) {
					t.Fatal("alone, it has to wait")
				}
			}
			if !lines.Try(of("other")) {
				t.Fatal("another has to wait")
			}
			lines.Give(of("other"))
			var got atomic.Int64
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					if err := lines.Take(t.Context(), flood); err != nil {
						t.Error(err)
					}
					got.Add(1)
				})
				synctest.Wait()
			}
			for i, want := range []int64{0, 0, 0, 1, 2} { // it has 4, 3, 2, 2 and 2 when it has given one back
				lines.Give(flood)
				synctest.Wait()
				if got.Load() != want {
					t.Errorf("after %d were given back, %d got one; want %d", i+1, got.Load(), want)
				}
			}
			time.Sleep(time.Minute)
			lines.Give(flood)
			wg.Wait()
		})
	}
}

// Beside another caller the sessions of one have its part together, and take turns
// in it. Without another caller each session has that part.
func TestN2SessionsShareTheirCallersPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := turns.NewQueue(turns.NoLimit, 2)
		lines.Try(of("other/1"))
		var served []string
		var mu sync.Mutex
		var wg sync.WaitGroup
		for word := range strings.FieldsSeq("big/1 big/1 big/1 big/2 big/3") {
			wg.Go(func() {
				if err := lines.Take(t.Context(), of(word)); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				served = append(served, word)
			})
			synctest.Wait()
		}
		if len(served) != 2 {
			t.Errorf("%v have a place, want two", served)
		}
		for _, word := range []string{"big/1", "big/1", "big/2"} {
			lines.Give(of(word))
			synctest.Wait()
		}
		wg.Wait()
		if got := strings.Join(served, " "); got != "big/1 big/1 big/2 big/3 big/1" && got != "big/1 big/1 big/1 big/2 big/3" {
			t.Errorf("served were %s", got)
		}

		alone := turns.NewQueue(turns.NoLimit, 2)
		for _, word := range []string{"big/1", "big/2", "big/1", "big/2"} {
			if !alone.Try(of(word)) {
				t.Errorf("%s has no place beside a session of its own caller", word)
			}
		}
		if alone.Try(of("big/1")) {
			t.Error("a session has more than its part beside another")
		}
	})
}

// Whoever comes and goes, never is more taken than there is, and nothing is lost.
func TestNothingIsLost(t *testing.T) {
	const limit = 5
	for _, places := range []*turns.Queue{turns.NewQueue(limit, 0), turns.NewQueue(turns.NoLimit, 1)} {
		places.Try(of("always here"))
		var mu sync.Mutex
		taken, most := 0, 0
		by, mostBy := map[turns.Owner]int{}, 0
		var wg sync.WaitGroup
		for i := range 24 {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			owner := of(fmt.Sprintf("%d/%d", i%3, i%6))
			if i%4 == 0 {
				owner = of(fmt.Sprint(i))
			}
			wg.Go(func() {
				for range 200 {
					ctx, cancel := context.WithCancel(t.Context())
					if r.IntN(3) == 0 {
						cancel()
					}
					if places.Take(ctx, owner) == nil {
						mu.Lock()
						taken, by[owner] = taken+1, by[owner]+1
						most, mostBy = max(most, taken), max(mostBy, by[owner])
						mu.Unlock()
						mu.Lock()
						taken, by[owner] = taken-1, by[owner]-1
						mu.Unlock()
						places.Give(owner)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		if places.Limit() == limit && (most > limit-1 || places.Free() != limit-1) {
			t.Errorf("%d were taken at most, and %d are free at the end", most, places.Free())
		}
		if places.Limit() < 0 && mostBy > 1 {
			t.Errorf("one has taken %d beside others", mostBy)
		}
		if places.Waiting() != 0 {
			t.Errorf("%d wait at the end", places.Waiting())
		}
	}
}

// spread is the owner of the ith of many.
func spread(i int) turns.Owner {
	return turns.Owner{Caller: fmt.Sprint(i % 7), Session: fmt.Sprint(i % 500)}
}

func BenchmarkQueueTry(b *testing.B) {
	for _, word := range []string{"session", "caller/session"} {
		b.Run(word, func(b *testing.B) {
			places, owner := turns.NewQueue(turns.NoLimit, 16), of(word)
			b.ReportAllocs()
			for b.Loop() {
				places.Try(owner)
				places.Give(owner)
			}
		})
	}
}

// Beside another caller, what takes longer than a moment counts no more, whenever it
// ends, and nothing is left of it.
func TestBrieflyTakenPlacesComeOfAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const moment = 2 * time.Millisecond
		places := turns.NewAging(turns.NoLimit, 1, moment)
		big, small := turns.Owner{Caller: "big", Session: "1"}, turns.Owner{Caller: "small", Session: "2"}
		take := func(owner turns.Owner) func() {
			place, err := places.TakeBriefly(t.Context(), owner)
			if err != nil {
				t.Fatal(err)
			}
			return place.Give
		}
		take(small)()
		begins := make(chan func(), 10)
		for range 10 {
			go func() { begins <- take(big) }()
		}
		for i := range 5 {
			synctest.Wait()
			if n := len(begins); n != i+1 || places.Waiting() != 9-i {
				t.Fatalf("after %d moments %d have a place, and %d wait", i, n, places.Waiting())
			}
			time.Sleep(moment)
		}
		synctest.Wait()
		for range 5 {
			(<-begins)() // of age: nobody else may begin for it
			synctest.Wait()
		}
		if n := len(begins); n != 1 || places.Waiting() != 4 {
			t.Fatalf("%d have a place, and %d wait", n, places.Waiting())
		}
		for range 5 {
			give := <-begins // gives its place at once to the next one
			give()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		if places.Waiting() != 0 {
			t.Errorf("%d wait", places.Waiting())
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		give := take(big)
		if _, err := places.TakeBriefly(ctx, big); !errors.Is(err, context.Canceled) {
			t.Errorf("the wait ends with %v", err)
		}
		give()
	})
}

// What is known to work for longer counts for as long as that, and delays none that does not.
func TestLongerTakenPlacesComeOfAgeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const moment = 2 * time.Millisecond
		places := turns.NewAging(turns.NoLimit, 1, moment)
		begins := make(chan string, 10)
		take := func(caller string, moments int) {
			place, err := places.TakeLonger(t.Context(), turns.Owner{Caller: caller, Session: caller}, moments)
			if err != nil {
				t.Error(err)
				return
			}
			begins <- caller
			time.Sleep(time.Minute)
			place.Give()
		}
		go take("small", 1)
		synctest.Wait()
		go take("big", 4)
		synctest.Wait()
		for _, caller := range []string{"big", "small"} {
			go take(caller, 1)
			synctest.Wait()
		}
		for i, want := range []int{3, 3, 3, 4} { // of the small one, the first is of age after a moment
			time.Sleep(moment)
			synctest.Wait()
			if n := len(begins); n != want {
				t.Errorf("after %d moments %d have begun, want %d", i+1, n, want)
			}
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
	})
}

// SPEC N2: a place counts again when its work turns out to be longer, but not for a caller that is alone.
func TestN2APlaceCountsAgainForLongerWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const moment = 2 * time.Millisecond
		places := turns.NewAging(turns.NoLimit, 1, moment)
		take := func(caller string) (*turns.Brief, time.Duration) {
			began := time.Now()
			place, err := places.TakeBriefly(t.Context(), turns.Owner{Caller: caller})
			if err != nil {
				t.Fatal(err)
			}
			return place, time.Since(began)
		}
		first, _ := take("ann")
		if until := first.Longer(5); !until.IsZero() {
			t.Errorf("it counts until %s for a caller that is alone", until)
		}
		other, _ := take("bob")
		defer other.Give()
		time.Sleep(3 * moment) // it comes of age
		if until := first.Longer(5); time.Until(until) != 5*moment {
			t.Errorf("it counts for %s", time.Until(until))
		}
		second, waited := take("ann")
		if waited < 5*moment || waited > 6*moment {
			t.Errorf("the next one waits for %s", waited)
		}
		second.Longer(5)
		second.Longer(2) // which are over before
		second.Give()
		if until := second.Longer(5); !until.IsZero() {
			t.Errorf("a place that was given back counts until %s", until)
		}
		third, waited := take("ann")
		if waited != 0 {
			t.Errorf("after that is given back, the next one waits for %s", waited)
		}
		third.Give()
		first.Give()
	})
}

// SPEC N2: who waits because there was another caller, or another session, is served when
// that one has been away for long enough, though nobody gives a place back meanwhile.
func TestN2WhoIsAloneAgainIsServed(t *testing.T) {
	for name, c := range map[string]struct{ stays, comes string }{
		"callers":  {"ann/1", "bob/1"},
		"sessions": {"ann/1", "ann/2"},
		"nobodies": {"one", "two"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				places := turns.NewQueue(turns.NoLimit, 2)
				take := func(n int) (served *atomic.Int32) {
					served = &atomic.Int32{}
					for range n {
						go func() {
							if places.Take(t.Context(), of(c.stays)) == nil {
								served.Add(1)
							}
						}()
					}
					synctest.Wait()
					return served
				}
				take(2) // and keeps them
				places.Try(of(c.comes))
				before := take(3)
				places.Give(of(c.comes))
				after := take(3)
				time.Sleep(9 * time.Second)
				synctest.Wait()
				if n := before.Load() + after.Load(); n != 0 {
					t.Errorf("%d are served while the other one counts as present", n)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if before.Load() != 3 || after.Load() != 3 || places.Waiting() != 0 {
					t.Errorf("%d and %d of 3 are served when the other one is away", before.Load(), after.Load())
				}
				if !places.Try(of(c.stays)) {
					t.Error("there is no place for who is alone")
				}
			})
		})
	}
}

// SPEC L1: a client that has begun a session does not count as another caller beside its session.
func TestL1WhoGoesOnAsAnotherOwnerIsAlone(t *testing.T) {
	for name, owners := range map[string][2]turns.Owner{
		"without a token": {{Session: "at 127.0.0.1"}, {Session: "s"}},
		"of a caller":     {{Caller: "ann", Session: "at 127.0.0.1"}, {Caller: "ann", Session: "s"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := turns.NewAging(turns.NoLimit, 1, time.Hour)
				take := func(owner turns.Owner) *turns.Brief {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					b, err := q.TakeBriefly(ctx, owner)
					if err != nil {
						t.Fatal(err)
					}
					return b
				}
				take(owners[0]).GiveUnseen()
				for range 3 {
					defer take(owners[1]).Give()
				}
			})
		})
	}
}
