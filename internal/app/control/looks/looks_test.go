package looks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/app/control/looks"
	"github.com/orla-project/orla/internal/testing/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// shop is a source. A look at all of it takes a while.
type shop struct {
	mu     sync.Mutex
	stock  map[string]int
	looked int
	takes  time.Duration
}

// All implements looks.Source.
func (s *shop) All(each func(string, any)) any {
	s.mu.Lock()
	s.looked++
	stock, n := maps.Clone(s.stock), len(s.stock)
	s.mu.Unlock()
	time.Sleep(s.takes)
	for name, v := range stock { // in any order
		each(name, map[string]any{"name": name, "n": v})
	}
	return n
}

// One implements looks.Source.
func (s *shop) One(name string) (any, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.stock[name]
	return map[string]any{"name": name, "n": v}, ok
}

func (s *shop) put(name string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stock[name] = n
}

func (s *shop) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.stock, name)
}

func (s *shop) looks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looked
}

// told is what a stream knows from its news.
type told map[string]int

func (k told) learn(t *testing.T, news looks.News) {
	t.Helper()
	for _, text := range news.Things {
		var v struct {
			Name string
			N    int
		}
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		if n, had := k[v.Name]; had && n == v.N {
			t.Errorf("%s is told twice", text)
		}
		k[v.Name] = v.N
	}
	for _, name := range news.Gone {
		if _, had := k[name]; !had {
			t.Errorf("%s is gone, and was not there", name)
		}
		delete(k, name)
	}
}

// N2: whoever asks at the same time shares a look, and there is none while the last one rests.
func TestN2ReadersShareALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{stock: map[string]int{"a": 1, "b": 2}, takes: 100 * time.Millisecond}
		all := looks.New(s)
		var readers []*looks.Reader
		var asking sync.WaitGroup
		for range 8 {
			r := all.Read()
			readers = append(readers, r)
			asking.Go(func() {
				if news, _ := r.All(t.Context()); len(news.Things) != 2 || string(news.Rest) != "2" {
					t.Errorf("the first news: %v", news)
				}
			})
		}
		asking.Wait()
		if n := s.looks(); n != 1 {
			t.Errorf("eight readers made %d looks", n)
		}
		began := readers[0].Looked()
		s.put("a", 9)
		if news, again := readers[0].All(t.Context()); len(news.Things) > 0 || again.Sub(began) != 2100*time.Millisecond {
			t.Errorf("news at once: %v, and again after %s", news, again.Sub(began))
		}
		time.Sleep(2 * time.Second)
		for _, r := range readers {
			if news, again := r.All(t.Context()); len(news.Things) != 1 || news.Rest != nil || !again.IsZero() {
				t.Errorf("news after a rest: %v, again at %s", news, again)
			}
		}
		if n := s.looks(); n != 2 {
			t.Errorf("after the rest there were %d looks", n)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, r := range readers {
			r.Close()
		}
		late := all.Read() // the looks of before are not kept
		defer late.Close()
		if news, _ := late.All(t.Context()); s.looks() != 3 || len(news.Things) != 2 {
			t.Errorf("%d looks, news for a reader after all others: %v", s.looks(), news)
		}
		late.All(ended)
	})
}

// O1: what was told of one thing is newer than a look that began before it.
func TestO1AnOldLookTakesNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{stock: map[string]int{"a": 1}, takes: 100 * time.Millisecond}
		all := looks.New(s)
		r, other := all.Read(), all.Read()
		defer r.Close()
		defer other.Close()
		knows := told{}
		learn := func(news looks.News, _ any) { knows.learn(t, news) }
		learn(r.All(t.Context()))
		time.Sleep(3 * time.Second)
		var looking sync.WaitGroup
		looking.Go(func() { other.All(t.Context()) })
		time.Sleep(50 * time.Millisecond) // the look has a = 1, and no b
		s.put("a", 2)
		s.put("b", 1)
		learn(r.Single([]string{"a", "b"}))
		looking.Wait()
		learn(r.All(t.Context()))
		if !maps.Equal(knows, told{"a": 2, "b": 1}) {
			t.Errorf("after an old look: %v", knows)
		}
		s.remove("b")
		if news, missing := r.Single([]string{"b", "never"}); !missing || len(news.Things) > 0 {
			t.Errorf("what is not there: %v, %t", news, missing)
		}
		if _, missing := r.Single([]string{"never"}); missing {
			t.Error("what was never there is missing")
		}
		time.Sleep(3 * time.Second)
		learn(r.All(t.Context()))
		if !maps.Equal(knows, told{"a": 2}) {
			t.Errorf("after a new look: %v", knows)
		}
	})
}

// O1: whatever readers ask for and when, in the end each knows what there is.
func TestO1ReadersKnowWhatThereIs(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &shop{stock: map[string]int{}, takes: time.Millisecond}
				all := looks.New(s)
				var reading sync.WaitGroup
				for i := range uint64(4) {
					reading.Go(func() {
						dice := rand.New(rand.NewPCG(seed, i))
						r := all.Read()
						defer r.Close()
						knows := told{}
						for range 200 {
							time.Sleep(time.Duration(dice.IntN(8000)) * time.Microsecond)
							name := strings.Repeat("x", dice.IntN(6))
							switch dice.IntN(5) {
							case 0:
								s.put(name, dice.IntN(3))
							case 1:
								s.remove(name)
							case 2:
								news, _ := r.Single([]string{name})
								knows.learn(t, news)
							default:
								news, _ := r.All(t.Context())
								knows.learn(t, news)
							}
						}
						time.Sleep(time.Minute)
						for range 2 {
							news, _ := r.All(t.Context())
							knows.learn(t, news)
							time.Sleep(time.Minute)
						}
						if !maps.Equal(knows, told(s.stock)) {
							t.Errorf("a reader knows %v of %v", slices.Collect(maps.Keys(knows)), s.stock)
						}
					})
				}
				reading.Wait()
			})
		})
	}
}
