// Package recovered keeps a panic in a goroutine from ending the process.
package recovered

import (
	"fmt"
	"log/slog"
	"runtime/debug"
)

// To logs a panic with its stack and then calls fail, which ends what was being
// done. It does nothing without a panic. It must be deferred itself, since
// recover works only in the deferred function:
//
//	defer recovered.To(log, "follow what a peer offers", func(any) { end() })
//
// doing says what the goroutine does. If fail is nil, nobody waits for the goroutine.
func To(log *slog.Logger, doing string, fail func(p any)) {
	p := recover()
	if p == nil {
		return
	}
	log.Error("panic in a goroutine", "doing", doing, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if fail != nil {
		fail(p)
	}
}
