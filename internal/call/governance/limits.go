package governance

import (
	"sync"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/file/yamldoc"
)

// limiter counts the calls of callers, while there are rules (SPEC N1).
type limiter struct {
	mu    sync.Mutex
	usage map[string]*usage // by the name
	swept time.Time
}

// maxIdle is how many callers without a limit a minute are remembered while they make no call: each of them would cost
// an entry again and again.
const maxIdle = 1024

// usage is what a caller has used.
type usage struct {
	name     string
	inFlight int
	tokens   float64 // calls that it may make now; more come with time
	per      int     // calls a minute, when it called last; 0 for no limit
	at       time.Time
}

// limitsOf returns the limits of callers and of groups, by their names.
func limitsOf(cfg *config.Loaded) (callers, groups map[string]config.LimitsConfig) {
	callers, groups = map[string]config.LimitsConfig{}, map[string]config.LimitsConfig{}
	for _, c := range cfg.Callers {
		switch {
		case c.Limits == (config.LimitsConfig{}):
		case c.Name != "":
			callers[c.Name] = c.Limits
		default:
			groups[c.Group] = c.Limits
		}
	}
	return callers, groups
}

// limitOf returns the strictest limits of a caller.
func (s *state) limitOf(name string, groups []string) (l config.LimitsConfig) {
	l = s.limits[name]
	if len(s.groups) == 0 {
		return l
	}
	for _, group := range groups {
		of := s.groups[group]
		l.CallsInFlight = strictest(l.CallsInFlight, of.CallsInFlight)
		l.CallsPerMinute = strictest(l.CallsPerMinute, of.CallsPerMinute)
		l.Sessions = strictest(l.Sessions, of.Sessions)
		l.Subscriptions = strictest(l.Subscriptions, of.Subscriptions)
		l.KeptMemory = strictest(l.KeptMemory, of.KeptMemory)
	}
	return l
}

// strictest returns the lower of two limits; 0 is none.
func strictest[N int | yamldoc.Size](a, b N) N {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Whether a call counts already as one of its minute.
const (
	uncounted = false
	counted   = true
)

// Limits returns how much a caller of some groups may have at one time, apart from calls.
func (g *Gate) Limits(caller string, groups []string) rules.Limits {
	s := g.now()
	if len(s.limits)+len(s.groups) == 0 {
		return rules.Limits{}
	}
	l := s.limitOf(caller, groups)
	return rules.Limits{Sessions: l.Sessions, Subscriptions: l.Subscriptions, KeptMemory: int64(l.KeptMemory)}
}

// enter counts a call, or refuses it. leave counts it out.
func (l *limiter) enter(s *state, caller string, groups []string, already bool) (*usage, error) {
	limit := config.LimitsConfig{}
	if len(s.limits)+len(s.groups) > 0 {
		limit = s.limitOf(caller, groups)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.usage[caller]
	if u == nil {
		u = &usage{name: caller, at: time.Now()}
		l.sweep(u.at)
		l.usage[caller] = u
	}
	if limit.CallsInFlight > 0 && u.inFlight >= limit.CallsInFlight {
		return nil, fault.Unsent(fault.New(fault.RateLimited, "too many calls: %s may make %d at one time; wait for answers and try again", caller, limit.CallsInFlight))
	}
	if per := float64(limit.CallsPerMinute); per > 0 && !already {
		now := time.Now()
		if u.per == 0 {
			u.tokens = per
		}
		u.per = limit.CallsPerMinute
		u.tokens = min(per, u.tokens+now.Sub(u.at).Minutes()*per)
		u.at = now
		if u.tokens < 1 {
			refused := fault.New(fault.RateLimited, "too many calls: %s may make %d in a minute; try again later", caller, limit.CallsPerMinute)
			refused.RetryAfter = time.Duration((1 - u.tokens) / per * float64(time.Minute))
			return nil, fault.Unsent(refused)
		}
		u.tokens--
	}
	u.inFlight++
	return u, nil
}

// leave counts a call out.
func (l *limiter) leave(u *usage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u.inFlight--; u.inFlight == 0 && u.per == 0 && len(l.usage) > maxIdle {
		delete(l.usage, u.name)
	}
}

// InFlight returns how many calls in flight each caller has, by its name, while there are rules.
func (g *Gate) InFlight() map[string]int {
	l := &g.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]int{}
	for name, u := range l.usage {
		if u.inFlight > 0 {
			all[name] = u.inFlight
		}
	}
	return all
}

// sweep forgets, now and then, who has not called for a minute: it has all its calls again.
func (l *limiter) sweep(now time.Time) {
	if l.usage == nil {
		l.usage = map[string]*usage{}
	}
	if now.Sub(l.swept) < time.Minute {
		return
	}
	l.swept = now
	for name, u := range l.usage {
		if u.inFlight == 0 && now.Sub(u.at) > time.Minute {
			delete(l.usage, name)
		}
	}
}
