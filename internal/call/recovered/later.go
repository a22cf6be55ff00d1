package recovered

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// Later keeps the first panic of goroutines for the one that waits for them. The zero
// value is ready for use.
type Later struct {
	mu   sync.Mutex // guards what
	what string     // the panic with its stack; "" for none
}

// Catch is to be deferred by each of the goroutines. After a panic it calls end, which
// ends what the others do.
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

// Raise panics as they did, if one did. Its caller has waited for them.
func (l *Later) Raise() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.what != "" {
		panic(l.what)
	}
}
