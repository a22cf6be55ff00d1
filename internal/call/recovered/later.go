package recovered

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// Later keeps the first panic of several goroutines, for the goroutine that waits for them. The zero
// value is ready to use.
type Later struct {
	mu   sync.Mutex // guards what
	what string     // the panic with its stack; "" for none
}

// Catch must be deferred by each of the goroutines. After a panic it calls end, which ends the others.
func (l *Later) Catch(end func()) {
	p := recover()
	if p == nil {
		return
	}
	l.mu.Lock()
	if l.what == "" {
		l.what = fmt.Sprintf("%v\n%s", p, debug.Stack())
	}
	l.mu.Unlock()
	end()
}

// Raise panics if one of the goroutines did. The caller has waited for them.
func (l *Later) Raise() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.what != "" {
		panic(l.what)
	}
}
