package podio

import (
	"testing"
	"testing/synctest"
	"time"
)

// SPEC P3: what was sent may be on its way to the process for a while, as measured: the time of day may jump.
func TestP3WhatIsOnItsWayIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &run{began: time.Now()}
		if r.justSent() {
			t.Error("nothing was sent")
		}
		time.Sleep(time.Millisecond)
		if r.isSent(); !r.justSent() {
			t.Error("it was sent just now")
		}
		time.Sleep(onItsWay - time.Millisecond)
		if !r.justSent() {
			t.Error("it was sent a moment ago")
		}
		time.Sleep(time.Millisecond)
		if r.justSent() {
			t.Error("it is there by now")
		}
		// A stored value is small: it is not a time of day.
		if at := time.Duration(r.sent.Load()); at > onItsWay {
			t.Errorf("%s", at)
		}
	})
}
