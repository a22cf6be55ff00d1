package program

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// lateness are calls of a foreign client that somebody decides about at different times. Each calls a tool of its own.
type lateness struct {
	t        *testing.T
	name     string
	tools    string
	ran      string // what the tools write down
	api      *control.Client
	c        *client
	progress bool
}

// SPEC-TOOLS 8.7: a client of each official SDK, era and transport, with the SDK's own timeouts, gets an answer however
// late somebody decides: that of the tool, or approval_pending, after which the same call goes on. Each call runs once.
// Clients in TypeScript do not ask for progress here: their time is up after 60 s all the same, if nobody tells them
// to begin again with each notification.
func TestT87DecisionsMayComeLate(t *testing.T) {
	t.Parallel()
	after := []time.Duration{0, 2 * time.Second}
	if needs.More() { // they wait beside each other, 10 minutes in all
		after = []time.Duration{0, 30 * time.Second, time.Minute, 5 * time.Minute, 10 * time.Minute}
	}
	var all []*lateness
	var calls sync.WaitGroup
	for _, s := range sdks(t) {
		for _, progress := range []bool{false, true} {
			if s.via == "sse" || progress && s.name != "python" {
				continue // over SSE as over HTTP
			}
			l := callLate(t, s, after)
			l.progress, l.name = progress, fmt.Sprintf("%s %s %s progress=%v", s.name, s.era, s.via, progress)
			all = append(all, l)
			for _, d := range after { // not subtests, of which only some wait at a time
				calls.Go(func() { l.call(d) })
				calls.Go(func() { l.approve(d) })
			}
		}
	}
	calls.Wait()
	for _, l := range all {
		var want []string
		for _, d := range after {
			want = append(want, lateName(d))
		}
		lines := strings.Fields(testkit.ReadFile(t, l.ran))
		slices.Sort(lines)
		if slices.Sort(want); !slices.Equal(lines, want) {
			t.Errorf("%s: these tools ran: %q, want %q", l.name, lines, want)
		}
	}
}

func lateName(d time.Duration) string { return fmt.Sprintf("after%d", d/time.Second) }

// callLate connects a client to an Orla whose tools need an operator's approval for each call.
func callLate(t *testing.T, s sdk, after []time.Duration) *lateness {
	t.Helper()
	socket := shortPath(t)
	dir := filepath.Dir(socket)
	l := &lateness{t: t, tools: filepath.Join(dir, "tools"), ran: filepath.Join(dir, "ran"), api: control.NewClient(socket)}
	for _, d := range after {
		testkit.WriteTool(t, l.tools, lateName(d), "#!/bin/sh\necho "+lateName(d)+" >>"+l.ran+"\necho done\n")
	}
	config := filepath.Join(dir, "orla.yaml")
	for path, text := range map[string]string{
		filepath.Join(l.tools, "rule.yaml"): strings.Replace(wantsApproval("all", "operator"), "spec:\n", "spec:\n  tool_ref: \"*\"\n", 1),
		config:                              "tools_dir: " + l.tools + "\nstate_dir: " + filepath.Join(dir, "state") + "\nport: 0\napprovals: {same_user: true, ttl: 20m}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flags := []string{"--config", config, "--socket", socket}
	o := &running{}
	if s.via == "stdio" {
		s.stdio = append([]string{"--stdio"}, flags...)
	} else {
		o = startPrepared(t, dir, withEnv(), append([]string{orlaBinary(t)}, flags...)...)
		o.url, _ = o.waitLog("serving", nil)["url"].(string)
	}
	s.argv = append(slices.Clone(s.argv), "--sdk-timeouts")
	l.c = s.connect(t, o, l.tools)
	return l
}

// errorf reports what went wrong with a call.
func (l *lateness) errorf(d time.Duration, format string, args ...any) {
	l.t.Errorf("%s, %s: %s", l.name, lateName(d), fmt.Sprintf(format, args...))
}

// call calls a tool until it has run. The client may get approval_pending meanwhile, and nothing else.
func (l *lateness) call(d time.Duration) {
	const wait = 45 * time.Second // for which a call waits at least
	for range 2 + d/wait {
		_, said := l.c.send("call", fields{"name": lateName(d), "arguments": fields{"n": 1}, "progress": l.progress})
		var got result
		select {
		case a, alive := <-said:
			if !alive {
				l.errorf(d, "the client ended")
				return
			}
			if !a.OK || json.Unmarshal(a.Result, &got) != nil || len(got.Content) == 0 {
				l.errorf(d, "the client got no answer: %s %+v", a.Result, a.Error)
				return
			}
		case <-time.After(d + 10*wait):
			l.errorf(d, "the client waits for ever")
			return
		}
		switch text := got.Content[0].Text; {
		case !got.IsError && text == "done\n":
			return
		case got.Meta["tool_code"] != "approval_pending" || !strings.Contains(text, " ap-"):
			l.errorf(d, "the client got %+v", got)
			return
		}
	}
	l.errorf(d, "the call did not run, or came back before its time")
}

// approve approves the call of a tool so long after it was made.
func (l *lateness) approve(d time.Duration) {
	ctx, cancel := context.WithTimeout(l.t.Context(), testkit.Patience)
	defer cancel()
	var asked control.Approval
	for line, err := range l.api.FollowApprovals(ctx, control.ApprovalQuery{Follow: true}) {
		if err != nil || json.Unmarshal(line, &asked) != nil || asked.Tool == lateName(d) {
			break
		}
	}
	if asked.Tool != lateName(d) {
		l.errorf(d, "nobody was asked")
		return
	}
	<-time.After(time.Until(asked.Created.Add(d)))
	if _, err := l.api.Approve(l.t.Context(), asked.ID, control.ApproveRequest{Digest: asked.Digest}); err != nil {
		l.errorf(d, "%v", err)
	}
}
