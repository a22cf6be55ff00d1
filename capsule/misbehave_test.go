package capsule_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/capsule"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/environ"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/capsuletest"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/manifest"
)

func TestMain(m *testing.M) { capsuletest.Main(m) }

// patience is how long a test waits for what must come.
const patience = time.Minute

// living is a capsule that is being served by real processes.
type living struct {
	*capsule.Capsule
	t    *testing.T
	tool manifest.Tool
	log  *journal
	stop func() // ends Serve and waits for it; further calls do nothing
}

// live serves a capsule that plays a script until the test is over.
func live(t *testing.T, script string, mods ...func(*manifest.Tool)) *living {
	t.Helper()
	// A start may take its time: these machines stand still for seconds.
	return serve(t, capsuletest.Tool(t, script, append([]func(*manifest.Tool){capsuletest.Quick, startupTimeout(patience)}, mods...)...))
}

func serve(t *testing.T, tool manifest.Tool, mods ...func(*capsule.Options)) *living {
	t.Helper()
	l := &living{t: t, tool: tool, log: &journal{}}
	launcher, err := launch.NewLocal(launch.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(launcher.Close)
	opts := capsule.Options{
		Launcher: launcher.Launcher(),
		Environ:  environ.Clean(syscall.Environ()),
		Log:      slog.New(slog.NewJSONHandler(l.log, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	for _, mod := range mods {
		mod(&opts)
	}
	l.Capsule, err = capsule.New(tool, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- l.Serve(ctx) }()
	l.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-served:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Serve returned %v, want context.Canceled", err)
			}
		case <-time.After(patience):
			t.Fatalf("Serve did not return; the log:\n%s", l.log)
		}
		if got := l.Life(); got.State != "STOPPED" || got.Pid != 0 {
			t.Errorf("after Serve the capsule is %+v, want STOPPED without a process", got)
		}
	})
	t.Cleanup(func() {
		l.stop()
		if t.Failed() {
			t.Logf("the log:\n%s", l.log)
		}
	})
	return l
}

// journal keeps a log, up to a bound.
type journal struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.text.Len() < 4<<20 {
		j.text.Write(line)
	}
	return len(line), nil
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// has reports whether one line has all these words.
func (j *journal) has(words ...string) bool { return j.count(words...) > 0 }

// count returns how many lines have all these words.
func (j *journal) count(words ...string) (n int) {
	for line := range strings.SplitSeq(j.String(), "\n") {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			n++
		}
	}
	return n
}

var eventually = testkit.Eventually

// await waits until the capsule is in a state.
func (l *living) await(state string) {
	l.t.Helper()
	eventually(l.t, l.String()+" is "+state, func() bool { return l.Life().State == state })
}

// logged waits for a line of the log that has all these words.
func (l *living) logged(words ...string) {
	l.t.Helper()
	eventually(l.t, fmt.Sprintf("a line of the log has %q", words), func() bool { return l.log.has(words...) })
}

// ask makes a call whose deadline is that of its manifest, as the supervisor
// sets it, or far away.
func (l *living) ask(args capsuletest.Args) (*mcp.CallToolResult, error) {
	limit := l.tool.Run.Timeout
	if limit == 0 {
		limit = patience
	}
	return l.askWithin(limit, args)
}

func (l *living) askWithin(limit time.Duration, args capsuletest.Args) (*mcp.CallToolResult, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fault.New(fault.Timeout, "no answer within %s", limit))
	defer cancel()
	return l.result(ctx, l.tool.Name, args.JSON())
}

// raw makes a call, and returns the result as JSON.
func (l *living) raw(ctx context.Context, call peer.Call) (json.RawMessage, error) {
	got, err := l.Call(ctx, call)
	return got.Raw, err
}

// result makes a call, and returns the result decoded.
func (l *living) result(ctx context.Context, tool string, args json.RawMessage) (*mcp.CallToolResult, error) {
	raw, err := l.raw(ctx, peer.Call{Tool: tool, Args: args})
	if err != nil {
		return nil, err
	}
	res := &mcp.CallToolResult{}
	return res, json.Unmarshal(raw, res)
}

// call makes a call that must be answered in the usual way, with time enough.
func (l *living) call(args capsuletest.Args) capsuletest.Answer {
	l.t.Helper()
	res, err := l.askWithin(patience, args)
	if err != nil {
		l.t.Fatalf("call: %v", err)
	}
	return capsuletest.Read(l.t, textOf(l.t, res))
}

// asking makes a call in a goroutine.
func (l *living) asking(args capsuletest.Args) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := l.ask(args)
		done <- err
	}()
	return done
}

// inFlight returns when one call is in flight.
func (l *living) inFlight() {
	l.t.Helper()
	eventually(l.t, "a call is in flight", func() bool { return l.Life().InFlight == 1 })
}

func textOf(t *testing.T, res *mcp.CallToolResult) string {
	t.Helper()
	if res == nil || len(res.Content) == 0 {
		t.Fatalf("the result has no content: %+v", res)
	}
	text, ok := res.Content[0].(*mcp.TextContent)
	if !ok {
		t.Fatalf("the result begins with a %T, want text", res.Content[0])
	}
	return text.Text
}

// wantFault checks that err has a code, and a reason with these words.
func wantFault(t *testing.T, err error, code fault.Code, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %s", code)
		return
	}
	f := fault.From(err)
	if f.Code != code {
		t.Errorf("got %v, want %s", err, code)
	}
	for _, w := range words {
		if !strings.Contains(f.Reason, w) {
			t.Errorf("the reason is %q, want %q in it", f.Reason, w)
		}
	}
}

// within returns what comes out of done, in time.
func within(t *testing.T, what string, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		t.Fatalf("%s: not within %s", what, patience)
		return nil
	}
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	state, _ := procStat(pid)
	return state != "" && state != "Z"
}

// startsOnce makes the first failure the last.
func startsOnce(tool *manifest.Tool) { tool.Runtime.Restart.MaxFailures = 1 }

func startupTimeout(d time.Duration) func(*manifest.Tool) {
	return func(tool *manifest.Tool) { tool.Runtime.StartupTimeout = d }
}

func callTimeout(d time.Duration) func(*manifest.Tool) {
	return func(tool *manifest.Tool) { tool.Run.Timeout = d }
}

// RFC 2 §9, RFC 3 §5.3.1, SPEC D4, D10: silence is a startup failure, whose message has the
// last lines of stderr.
func TestNeverSaysHello(t *testing.T) {
	t.Parallel() // a timeout takes its time
	needs.Time(t, "waits for seconds")
	l := live(t, "silent", startsOnce, startupTimeout(4*time.Second))
	l.await("STOPPED")
	if offers := l.Offers(); !offers.Known || !offers.Silent {
		t.Errorf("it has said nothing, and nobody waits for it; its offers say known %v, silent %v", offers.Known, offers.Silent)
	}
	for _, words := range []string{"orla.hello", "4s"} {
		if reason := l.Life().Reason; !strings.Contains(reason, words) {
			t.Errorf("the reason is %q, want %q in it", reason, words)
		}
	}
	_, err := l.ask(capsuletest.Args{})
	wantFault(t, err, fault.StartFailed, "STOPPED", "thinking about it")
}

// SPEC D4, D10: late inside its time is in time, and the call waits for it.
func TestSaysHelloLate(t *testing.T) {
	l := live(t, "hello-late", capsuletest.SetInt("START_MS", 300))
	l.call(capsuletest.Args{})
	if l.log.has("CRASHED") {
		t.Error("it crashed on the way")
	}
}

// RFC 3 §5.3.1, SPEC D4: later than that is a startup failure, and it is not READY before.
func TestSaysHelloTooLate(t *testing.T) {
	l := live(t, "hello-late", startsOnce, capsuletest.SetInt("START_MS", 20_000), startupTimeout(200*time.Millisecond))
	l.await("STOPPED")
	if l.log.has(`"to":"READY"`) {
		t.Error("it was READY")
	}
}

// RFC 3 §5.3.1, SPEC D4: a second hello is logged and ignored.
func TestSaysHelloTwice(t *testing.T) {
	l := live(t, "hello-twice")
	first := l.call(capsuletest.Args{})
	if second := l.call(capsuletest.Args{}); second.Pid != first.Pid {
		t.Errorf("process %d answered after %d", second.Pid, first.Pid)
	}
	l.logged("hello once more", `"WARN"`)
	l.logged(`"to":"READY"`)
	if n := l.log.count(`"to":"READY"`); n != 1 {
		t.Errorf("it was READY %d times, want 1", n)
	}
}

// SPEC D4: a hello with another name is a startup failure.
func TestSaysHelloWithAnotherName(t *testing.T) {
	l := live(t, "hello-other", startsOnce, capsuletest.Set("OTHER_NAME", "stranger"))
	l.await("STOPPED")
	for _, words := range []string{`"stranger"`, `"capsule"`} {
		if reason := l.Life().Reason; !strings.Contains(reason, words) {
			t.Errorf("the reason is %q, want %q in it", reason, words)
		}
	}
}

// SPEC D4: a hello with another version is a warning.
func TestSaysHelloWithAnotherVersion(t *testing.T) {
	l := live(t, "hello-other", capsuletest.Set("OTHER_VERSION", "9.9.9"))
	l.call(capsuletest.Args{})
	l.logged("9.9.9", "1.2.3", `"WARN"`)
}

// SPEC D4: a hello without a name is none.
func TestSaysAHelloThatIsNone(t *testing.T) {
	for _, params := range []string{"", "{}", "[]", "null", `"capsule"`, `{"name":42}`} {
		t.Run(params, func(t *testing.T) {
			l := live(t, "hello-malformed", startsOnce, capsuletest.Set("PARAMS", params))
			l.await("STOPPED")
			if reason := l.Life().Reason; !strings.Contains(reason, "orla.hello") {
				t.Errorf("the reason is %q, want orla.hello in it", reason)
			}
		})
	}
}

// SPEC D4: another first message is a startup failure.
func TestSaysSomethingElseFirst(t *testing.T) {
	for name, first := range map[string]string{
		"a notification":  `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"first"}}`,
		"a request":       `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`,
		"a response":      `{"jsonrpc":"2.0","id":1,"result":{}}`,
		"a hello request": `{"jsonrpc":"2.0","id":1,"method":"orla.hello","params":{"name":"capsule","version":"1.2.3"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			l := live(t, "not-hello", startsOnce, capsuletest.Set("FIRST", first))
			l.await("STOPPED")
			if reason := l.Life().Reason; l.log.has(`"to":"READY"`) || !strings.Contains(reason, "first message") {
				t.Errorf("the reason is %q, want its first message in it", reason)
			}
		})
	}
}

// SPEC D5: a line that is not JSON-RPC is logged with its text and skipped.
func TestPrintsJunkBeforeAndBetweenMessages(t *testing.T) {
	l := live(t, "junk")
	first := l.call(capsuletest.Args{})
	for range 20 {
		if next := l.call(capsuletest.Args{}); next.Pid != first.Pid {
			t.Fatalf("process %d answered after %d", next.Pid, first.Pid)
		}
	}
	l.logged("Loading model...", `"WARN"`)
	if n := l.log.count("Loading model..."); n > 20 {
		t.Errorf("the same line is in the log %d times", n)
	}
}

// SPEC D5: as strange as a line may be dressed, it is a line.
func TestDecoratesItsLines(t *testing.T) {
	l := live(t, "decorated")
	first := l.call(capsuletest.Args{})
	if second := l.call(capsuletest.Args{}); second.Pid != first.Pid {
		t.Errorf("process %d answered after %d", second.Pid, first.Pid)
	}
	if l.log.has(`"WARN"`) {
		t.Error("it was warned of")
	}
}

// SPEC D5, G5a: an over-long answer fails its call, and nothing else.
func TestSendsA20MiBLine(t *testing.T) {
	l := live(t, "echo")
	other := l.asking(capsuletest.Args{Hold: "other"})
	l.inFlight()
	_, err := l.ask(capsuletest.Args{Size: 20 << 20})
	wantFault(t, err, fault.ExecutionFailed, "16777216")
	l.call(capsuletest.Args{Release: "other"})
	if err := within(t, "the other call", other); err != nil {
		t.Errorf("the other call: %v", err)
	}
	if l.Life().Restarts != 0 {
		t.Error("it was started again")
	}
}

// SPEC D5: an over-long line that is not an answer fails no call.
func TestPrintsA20MiBLineOfJunk(t *testing.T) {
	l := live(t, "long-line")
	first := l.call(capsuletest.Args{})
	if second := l.call(capsuletest.Args{}); second.Pid != first.Pid {
		t.Errorf("process %d answered after %d", second.Pid, first.Pid)
	}
}

// SPEC D9: an exit that nobody asked for is a crash, exit code 0 included.
func TestExits0(t *testing.T) {
	l := live(t, "exits-ready", capsuletest.SetInt("AFTER_MS", 50))
	l.logged(`"from":"READY"`, `"to":"CRASHED"`, "code 0")
	eventually(t, "it is started again", func() bool { return l.Life().Restarts > 1 })
}

// SPEC D4, D9, D10: an exit before the hello is a startup failure, and the last
// of max_failures stops the capsule with the reason.
func TestExitsAtOnce(t *testing.T) {
	l := live(t, "exits-starting", capsuletest.Set("STDERR", "no module named numpy"), capsuletest.SetInt("CODE", 3),
		func(tool *manifest.Tool) { tool.Runtime.Restart.MaxFailures = 4 })
	l.await("STOPPED")
	if n := l.log.count(`"to":"STARTING"`); n != 4 {
		t.Errorf("it was started %d times, want 4", n)
	}
	_, err := l.ask(capsuletest.Args{})
	wantFault(t, err, fault.StartFailed, "STOPPED", "code 3", "no module named numpy")
	l.logged("no module named numpy", `"stream":"stderr"`)
}

// SPEC D9: a call in flight fails at once with the exit, and the next one waits
// for the next process.
func TestExitsAtACall(t *testing.T) {
	for _, code := range []int{0, 7} {
		l := live(t, "exits-at-call", capsuletest.SetInt("CODE", code), capsuletest.SetInt("N", 2))
		first := l.call(capsuletest.Args{})
		_, err := l.ask(capsuletest.Args{})
		wantFault(t, err, fault.Crashed, fmt.Sprintf("code %d", code))
		if err != nil && !fault.From(err).Retryable() {
			t.Errorf("%v is not retryable", err)
		}
		if second := l.call(capsuletest.Args{}); second.Pid == first.Pid {
			t.Error("the process that exited has answered")
		}
	}
}

// SPEC D9: a call that the last failure ends is not promised another process.
func TestExitsAtACallForTheLastTime(t *testing.T) {
	l := live(t, "exits-at-call", capsuletest.SetInt("CODE", 7), startsOnce)
	_, err := l.ask(capsuletest.Args{})
	wantFault(t, err, fault.Crashed, "code 7; it is started again when its files change, or by \"orla start")
	if fault.From(err).Retryable() {
		t.Errorf("%v is retryable", err)
	}
}

// SPEC D9: so does one that is killed.
func TestIsKilledAtACall(t *testing.T) {
	l := live(t, "echo")
	_, err := l.ask(capsuletest.Args{Signal: int(syscall.SIGKILL)})
	wantFault(t, err, fault.Crashed, "SIGKILL")
	l.call(capsuletest.Args{})
}

// SPEC D11: what takes no notice is killed.
func TestIgnoresTheEndOfStdinAndSIGTERM(t *testing.T) {
	t.Parallel()
	l := live(t, "deaf", capsuletest.Alone(t))
	first := l.call(capsuletest.Args{})
	l.Reload("test")
	eventually(t, "a new process is READY", func() bool { life := l.Life(); return life.State == "READY" && life.Pid != first.Pid })
	second := l.call(capsuletest.Args{})
	l.stop()
	if alive(first.Pid) || alive(second.Pid) {
		t.Error("a deaf process is alive")
	}
	if capsuletest.Overlapped(l.tool) {
		t.Error("two processes were alive at once")
	}
}

// SPEC D11, C4: what left the group and the session by a double fork is ended with the rest.
func TestDoubleForksWithSetsid(t *testing.T) {
	l := live(t, "forks-daemon")
	pid := l.call(capsuletest.Args{}).Forked[0]
	l.stop()
	eventually(t, "the daemon is gone", func() bool { return !alive(pid) })
}

// SPEC D11: a step ends when the tree is empty, not when the leader is gone.
func TestLeavesAChildThatIgnoresSIGTERM(t *testing.T) {
	t.Parallel()
	l := live(t, "forks-deaf")
	first := l.call(capsuletest.Args{})
	l.Reload("test")
	eventually(t, "a new process is READY", func() bool { life := l.Life(); return life.State == "READY" && life.Pid != first.Pid })
	if alive(first.Forked[0]) {
		t.Error("the new process was started before the old one's child was gone")
	}
}

// SPEC C4, D9: who else holds stdout open does not keep an exit from being seen.
func TestHoldsStdoutOpenInAGrandchild(t *testing.T) {
	t.Parallel()
	for _, setsid := range []string{"", "1"} {
		l := live(t, "holds-stdout", capsuletest.Set("SETSID", setsid))
		first := l.call(capsuletest.Args{})
		_, err := l.ask(capsuletest.Args{Exit: new(int)})
		wantFault(t, err, fault.Crashed, "code 0")
		if second := l.call(capsuletest.Args{}); second.Pid == first.Pid {
			t.Error("the process that exited has answered")
		}
		if setsid != "" && alive(first.Forked[0]) { // a daemon may live on
			_ = syscall.Kill(first.Forked[0], syscall.SIGKILL)
		}
	}
}

// SPEC D6: a process that does not read keeps no call over its deadline, and no stop.
func TestNeverReadsStdinWhile1MiBIsSent(t *testing.T) {
	l := live(t, "never-reads", callTimeout(300*time.Millisecond))
	l.await("READY")
	large := capsuletest.Args{Text: strings.Repeat("x", 1<<20)}
	first, second := l.asking(large), l.asking(large)
	wantFault(t, within(t, "the first call", first), fault.Timeout)
	wantFault(t, within(t, "the second call", second), fault.Timeout)
	l.stop()
}

// SPEC D6: an answer to a call that was answered is dropped.
func TestAnswersTwice(t *testing.T) {
	l := live(t, "answers-twice")
	for i := range 50 {
		if got := l.call(capsuletest.Args{Text: fmt.Sprint(i)}); got.Text != fmt.Sprint(i) {
			t.Fatalf("call %d got the answer of %s", i, got.Text)
		}
	}
}

// SPEC D6: so is one that nobody asked for.
func TestAnswersUnknownIDs(t *testing.T) {
	l := live(t, "unknown-ids")
	for i := range 50 {
		if got := l.call(capsuletest.Args{Text: fmt.Sprint(i)}); got.Text != fmt.Sprint(i) {
			t.Fatalf("call %d got the answer of %q", i, got.Text)
		}
	}
}

// SPEC D11: how it ends when it was asked to is its own affair.
func TestDiesWhileStopping(t *testing.T) {
	l := live(t, "dies-stopping")
	first := l.call(capsuletest.Args{})
	l.Reload("test")
	if second := l.call(capsuletest.Args{}); second.Pid == first.Pid {
		eventually(t, "a new process is READY", func() bool { life := l.Life(); return life.State == "READY" && life.Pid != first.Pid })
	}
	if life := l.Life(); life.Failures != 0 || l.log.has(`"to":"CRASHED"`) {
		t.Errorf("dying while stopping was taken for a crash: %+v", life)
	}
	l.stop()
}

// SPEC D9: a process that closed its stdout has nothing more to say.
func TestClosesStdoutButLives(t *testing.T) {
	t.Parallel()
	l := live(t, "closes-stdout", capsuletest.SetInt("N", 2))
	first := l.call(capsuletest.Args{})
	_, err := l.ask(capsuletest.Args{})
	wantFault(t, err, fault.Crashed, "stdout")
	if second := l.call(capsuletest.Args{}); second.Pid == first.Pid {
		t.Error("the process without stdout has answered")
	}
	if alive(first.Pid) {
		t.Error("the process without stdout is alive beside the new one")
	}
}

// SPEC D9, D10: nor does one hear anything that closed its stdin. A call may be
// made of the next process, and of the next, but not for longer than queue_timeout.
func TestClosesStdinButLives(t *testing.T) {
	t.Parallel()
	needs.Time(t, "waits for seconds")
	l := live(t, "closes-stdin", func(tool *manifest.Tool) { tool.Runtime.QueueTimeout = 500 * time.Millisecond })
	_, err := l.ask(capsuletest.Args{})
	if code := fault.CodeOf(err); code != fault.Crashed && code != fault.NotReady {
		t.Errorf("got %v, want crashed or not_ready", err)
	}
	eventually(t, "it is started again", func() bool {
		if l.Life().Restarts > 0 {
			return true
		}
		_, _ = l.ask(capsuletest.Args{}) // a pipe has an end more while something else is being forked
		return false
	})
}

// SPEC D6: the time that a process had for reading a long call is over with it,
// and says nothing of the next one.
func TestIsCalledLongAfterALargeCall(t *testing.T) {
	t.Parallel() // that time has to pass
	needs.Time(t, "waits for seconds")
	l := live(t, "echo", callTimeout(4*time.Second))
	first := l.call(capsuletest.Args{Text: strings.Repeat("x", 1<<20)})
	if _, err := l.result(t.Context(), l.tool.Name, capsuletest.Args{SleepMS: 4200}.JSON()); err != nil {
		t.Fatal(err)
	}
	if second := l.call(capsuletest.Args{}); second.Pid != first.Pid {
		t.Errorf("process %d answered after %d", second.Pid, first.Pid)
	}
}
