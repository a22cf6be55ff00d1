package kube_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/launch/kube"
	"github.com/orla-project/orla/internal/testing/kubetest"
)

// speakers is a real cluster with the image of testdata/speaker.
type speakers struct {
	*kubetest.Cluster

	log *bytes.Buffer // what Orla logs, guarded by mu
	mu  sync.Mutex
}

const speakerImage = "localhost/speaker:1"

func newSpeakers(t *testing.T) *speakers {
	t.Helper()
	s := &speakers{Cluster: kubetest.StartNode(t), log: &bytes.Buffer{}}
	s.Image(speakerImage, map[string][]byte{"program": kubetest.Build(t, "./testdata/speaker")}, object{"Entrypoint": []string{"/program"}})
	s.Kubectl("", "create", "namespace", "tools")
	s.Kubectl("", "label", "--overwrite", "namespace", "tools", "pod-security.kubernetes.io/enforce=restricted")
	s.Kubectl("", "apply", "-n", "tools", "-f", filepath.Join("..", "..", "..", "deploy", "kubernetes", "orla.yaml"))
	return s
}

// config is what Orla may use: deploy/kubernetes/orla.yaml and no more.
func (s *speakers) config(t *testing.T) string {
	t.Helper()
	token := strings.TrimSpace(s.Kubectl("", "create", "token", "-n", "tools", "orla"))
	admin := read(t, s.Kubeconfig)
	begin, _, _ := strings.Cut(admin, "users:")
	return write(t, begin+fmt.Sprintf("users: [{name: u, user: {token: %q}}]\n", token))
}

func (s *speakers) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

func (s *speakers) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

func (s *speakers) cluster(t *testing.T, kubeconfig string) *kube.Cluster {
	t.Helper()
	return open(t, kube.Options{Kubeconfig: kubeconfig, Instance: "/tools", Log: slog.New(slog.NewTextHandler(io.MultiWriter(s, os.Stderr), nil))})
}

var speaker = kube.Tool{
	Name: "Speaker_1", Image: speakerImage, Limits: cgroup.Limits{Memory: 64 << 20, CPUs: 0.5},
}

var speakerSpec = launch.Spec{
	Path: "/program", Argv: []string{"/program"}, Env: []string{"LANG=C.UTF-8"}, Secrets: []string{"API_KEY=hunter2"}, Grace: 3 * time.Second,
}

// talk is a conversation with a process.
type talk struct {
	t      *testing.T
	p      launch.Process
	in     *os.File
	out    *bufio.Reader
	stderr chan string
	id     int
}

func converse(t *testing.T, l launch.Launcher, spec launch.Spec) *talk {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, err := l.Start(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	stdin, stdout, stderr := p.Streams()
	k := &talk{t: t, p: p, in: stdin, out: bufio.NewReaderSize(stdout, 1<<20), stderr: make(chan string, 1000)}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(k.stderr)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			k.stderr <- lines.Text()
		}
	})
	t.Cleanup(func() {
		p.Kill()
		<-p.Gone()
		_ = stdin.Close()
		reading.Wait()
		_, _ = stdout.Close(), stderr.Close()
	})
	return k
}

func (k *talk) line() string {
	k.t.Helper()
	line, err := k.out.ReadString('\n')
	if err != nil {
		k.t.Errorf("%q, %v", line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

// send says what to do.
func (k *talk) send(do string, n int, text string) {
	k.t.Helper()
	k.id++
	raw, _ := json.Marshal(object{"id": k.id, "do": do, "n": n, "text": text})
	if _, err := k.in.Write(append(raw, '\n')); err != nil {
		k.t.Error(err)
	}
}

// ask says what to do, and returns the answer.
func (k *talk) ask(do string, n int, text string) any {
	k.t.Helper()
	k.send(do, n, text)
	return k.answer()
}

// answer returns the next answer.
func (k *talk) answer() any {
	k.t.Helper()
	var said struct {
		ID     int
		Result any
	}
	line := k.line()
	if err := json.Unmarshal([]byte(line), &said); err != nil || said.ID != k.id {
		k.t.Errorf("%.200q, %v; want the answer %d", line, err, k.id)
	}
	return said.Result
}

func (k *talk) said(text string) {
	k.t.Helper()
	var others []string
	for late := time.After(patience); ; {
		select {
		case line, more := <-k.stderr:
			if line == text {
				return
			}
			if others = append(others, line); !more {
				k.t.Errorf("stderr ended, without %q: %q", text, others)
				return
			}
		case <-late:
			k.t.Errorf("stderr does not say %q, but %q", text, others)
			return
		}
	}
}

// when returns the time that a line of stderr tells.
func (k *talk) when(what string) (at int64) {
	k.t.Helper()
	for late := time.After(patience); ; {
		select {
		case line, more := <-k.stderr:
			if text, is := strings.CutPrefix(line, what+" "); is {
				at, _ = strconv.ParseInt(text, 10, 64)
				return at
			}
			if !more {
				return 0
			}
		case <-late:
			return 0
		}
	}
}

// hello reads what a speaker says first.
func (k *talk) hello() {
	k.t.Helper()
	var got []string
	for range 2 {
		got = append(got, k.line())
		if got[0] == `{"jsonrpc":"2.0","method":"hello"}` && len(got) == 1 {
			return // the banner is text, and may come on either side
		}
	}
	k.t.Errorf("it begins with %q", got)
}

func (k *talk) exit() launch.Exit {
	k.t.Helper()
	select {
	case <-k.p.Exited():
	case <-time.After(patience):
		k.t.Fatal("it does not end")
	}
	return k.p.Exit()
}

// SPEC P3: a process with a stdin is a Pod, whose streams are apart, complete and in order.
func TestP3ProcessesOfCapsulesArePods(t *testing.T) {
	t.Parallel()
	s := newSpeakers(t)
	kubeconfig := s.config(t)
	c := s.cluster(t, kubeconfig)
	if err := c.Check(t.Context()); err != nil {
		t.Error(err)
	}
	for name, step := range map[string]func(*testing.T, *speakers, *kube.Cluster){
		"streams": streamsOfAPod, "slow readers": slowReaders, "ends": endsOfAPod, "stop": stopsOfAPod, "isolation": isolationOfAPod,
		"one Pod": onePod, "left behind": leftBehind, "deleted": deletedByOthers, "node away": nodeAway,
	} {
		t.Run(name, func(t *testing.T) { step(t, s, c) })
	}
	t.Run("the API server restarts", func(t *testing.T) { s.restarts(t, c) })
	s.Eventually(t, "nothing is left", func() bool {
		out, _ := s.Try("", "get", "pods,secrets", "-n", "tools")
		return strings.Contains(out, "No resources found")
	})
}

// Eventually is for what a cluster does, which takes long on a busy machine.
func (s *speakers) Eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); {
		if time.Now().After(end) {
			t.Errorf("not within %s: %s", patience, what)
			return
		}
		<-time.After(100 * time.Millisecond)
	}
}

func streamsOfAPod(t *testing.T, _ *speakers, c *kube.Cluster) {
	tool := speaker
	tool.Limits.Memory = 512 << 20
	k := converse(t, c.Launcher(tool), speakerSpec)
	k.hello()
	k.said("stderr says hello ")
	if got := k.ask("env", 0, "API_KEY"); got != "hunter2" {
		t.Errorf("its secret is %q", got)
	}
	const most = 16 << 20
	if n := k.ask("length", 0, strings.Repeat("y", most)); n != float64(most) {
		t.Errorf("of a line with %d bytes it got %v", most, n)
	}
	if got, _ := k.ask("big", most, "").(string); len(got) != most {
		t.Errorf("of a line with %d bytes Orla got %d", most, len(got))
	}
	k.send("stderr", 0, "on stderr")
	k.said("on stderr")
	if placed, ok := k.p.(interface{ Place() string }); !ok || !strings.Contains(placed.Place(), "on node orla-node") {
		t.Error("it does not say where it is")
	}
}

// slowReaders: whoever reads slowly loses nothing, on either stream, and one stream does not hold up the other.
func slowReaders(t *testing.T, _ *speakers, c *kube.Cluster) {
	k := converse(t, c.Launcher(speaker), speakerSpec)
	k.hello()
	const lines = 40_000 // 17 MB, which is more than all buffers on the way have
	k.send("flood", lines, strings.Repeat("y", 400))
	<-time.After(2 * time.Second) // nobody reads, so that they fill
	k.send("stderr", 0, "is heard after all of that")
	for i := range lines {
		if line := k.line(); !strings.HasSuffix(line, fmt.Sprintf(`y%d"}`, i)) {
			t.Fatalf("line %d is %.100q", i, line)
		}
	}
	k.said("is heard after all of that")
}

func endsOfAPod(t *testing.T, _ *speakers, c *kube.Cluster) {
	k := converse(t, c.Launcher(speaker), speakerSpec)
	k.send("exit", 42, "")
	if exit := k.exit(); exit != (launch.Exit{Code: 42}) {
		t.Errorf("%+v", exit)
	}
	<-k.p.Gone()
	k = converse(t, c.Launcher(speaker), speakerSpec)
	k.send("memory", 0, "")
	if exit := k.exit(); !exit.OutOfMemory {
		t.Errorf("%+v", exit)
	}
	<-k.p.Gone()
	spec := speakerSpec
	spec.Path, spec.Argv = "/missing", []string{"/missing"}
	p, err := c.Launcher(speaker).Start(t.Context(), spec)
	if err != nil {
		t.Logf("at the start: %v", err)
		return
	}
	k = &talk{t: t, p: p}
	if exit := k.exit(); fault.CodeOf(exit.Err) != fault.UnsupportedTool {
		t.Errorf("%+v", exit)
	}
	<-p.Gone()
}

func stopsOfAPod(t *testing.T, s *speakers, c *kube.Cluster) {
	k := converse(t, c.Launcher(speaker), speakerSpec)
	k.hello()
	k.p.Stop()
	k.said("stopping")
	if exit := k.exit(); exit != (launch.Exit{Code: 7}) {
		t.Errorf("%+v", exit)
	}
	<-k.p.Gone()
	if out := s.Kubectl("", "get", "pods", "-n", "tools"); !strings.Contains(out, "No resources found") {
		t.Errorf("when it is gone: %s", out)
	}
	k = converse(t, c.Launcher(speaker), speakerSpec)
	k.hello()
	k.ask("deaf", 0, "")
	k.p.Stop()
	if exit := k.exit(); exit != (launch.Exit{Code: 137}) {
		t.Errorf("one that does not hear SIGTERM: %+v", exit)
	}
}

func isolationOfAPod(t *testing.T, _ *speakers, c *kube.Cluster) {
	k := converse(t, c.Launcher(speaker), speakerSpec)
	k.hello()
	status, _ := k.ask("read", 0, "/proc/self/status").(string)
	for _, want := range []string{"Uid:\t65532\t65532\t65532\t65532", "Gid:\t65532", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, want) {
			t.Errorf("its status lacks %q:\n%s", want, status)
		}
	}
	if got := k.ask("write", 0, "/file"); !strings.Contains(fmt.Sprint(got), "read-only") {
		t.Errorf("it writes to its root: %v", got)
	}
	if got := k.ask("write", 0, "/tmp/file"); got != "<nil>" {
		t.Errorf("it cannot write to /tmp: %v", got)
	}
	if got := fmt.Sprint(k.ask("read", 0, "/var/run/secrets/kubernetes.io/serviceaccount/token")); !strings.Contains(got, "no such file") {
		t.Errorf("it has a token: %.40s", got)
	}
	memory := fmt.Sprint(k.ask("read", 0, "/sys/fs/cgroup/memory.max"), k.ask("read", 0, "/sys/fs/cgroup/memory/memory.limit_in_bytes"))
	if !strings.Contains(memory, "67108864") {
		t.Errorf("its memory is bounded by %s", memory)
	}
	quota := fmt.Sprint(k.ask("read", 0, "/sys/fs/cgroup/cpu.max"), k.ask("read", 0, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"))
	if !strings.Contains(quota, "50000") {
		t.Errorf("its processors are bounded by %s", quota)
	}
	if got := k.p.Applied().Tree; got != (cgroup.Limits{Memory: 64 << 20, CPUs: 0.5}) {
		t.Errorf("applied: %+v", got)
	}
}

// onePod: two Orlas that both want a capsule never have two processes of it; a later generation takes it from an
// earlier one, and not the other way round.
func onePod(t *testing.T, s *speakers, c *kube.Cluster) {
	generation := func(n int64) kube.Tool {
		tool := speaker
		tool.Generation = func() int64 { return n }
		return tool
	}
	first := converse(t, c.Launcher(generation(1)), speakerSpec)
	first.said("stderr says hello 1")
	other := s.cluster(t, s.config(t))
	second := converse(t, other.Launcher(generation(2)), speakerSpec)
	if ended, began := first.when("ended at"), second.when("began at"); ended == 0 || began <= ended {
		t.Errorf("the first one ended at %d, and the second one began at %d", ended, began)
	}
	if exit := first.exit(); exit.Err == nil || !strings.Contains(exit.Err.Error(), "the Pod was deleted while it ran, and not by Orla") {
		t.Errorf("the first one ends with %+v", exit)
	}
	second.hello()
	if got := second.ask("env", 0, "ORLA_GENERATION"); got != "2" {
		t.Errorf("its generation is %v", got)
	}
	if _, err := c.Launcher(generation(1)).Start(t.Context(), speakerSpec); err == nil || !strings.Contains(err.Error(), "another Orla has this capsule now (generation 2; this one has 1)") {
		t.Errorf("an earlier generation: %v", err)
	}
	if got := second.ask("env", 0, "ORLA_GENERATION"); got != "2" {
		t.Errorf("after that, it says %v", got)
	}
}

// leftBehind: the Pod of an Orla that was killed is removed by the next one of its instance.
func leftBehind(t *testing.T, s *speakers, c *kube.Cluster) {
	k := converse(t, c.Launcher(speaker), speakerSpec)
	k.hello()
	name := strings.TrimSpace(s.Kubectl("", "get", "pods", "-n", "tools", "-o", "name"))
	s.Kubectl("", "label", "-n", "tools", "--overwrite", name, "orla.dev/life=4194304-abc") // beyond what a pid can be
	next := s.cluster(t, s.config(t))
	next.Sweep()
	if exit := k.exit(); exit.Err == nil {
		t.Errorf("%+v", exit)
	}
	if want := "removed a Pod that an earlier Orla left"; !strings.Contains(s.logged(), want) {
		t.Errorf("the log does not say %q", want)
	}
}

// deletedByOthers: the reason says that somebody else deleted the Pod.
func deletedByOthers(t *testing.T, s *speakers, c *kube.Cluster) {
	k := converse(t, c.Launcher(speaker), speakerSpec)
	k.hello()
	s.Kubectl("", "delete", "pods", "-n", "tools", "--all", "--wait=false")
	if exit := k.exit(); exit.Err == nil || !strings.Contains(exit.Err.Error(), "the Pod was deleted while it ran, and not by Orla") {
		t.Errorf("%+v", exit)
	}
	if code := fault.CodeOf(k.p.Exit().Err); code != fault.ExecutionFailed {
		t.Errorf("code %s", code)
	}
	k = converse(t, c.Launcher(speaker), speakerSpec)
	k.hello()
	s.Kubectl("", "drain", "orla-node", "--force", "--delete-emptydir-data", "--timeout=60s")
	s.Kubectl("", "uncordon", "orla-node")
	if exit := k.exit(); exit.Err == nil || !strings.Contains(exit.Err.Error(), "EvictionByEvictionAPI") {
		t.Errorf("one that was evicted: %+v", exit)
	}
}

// nodeAway: a process on a node that does not answer has ended for Orla, but the next one does not begin before the node
// says that the Pod is gone.
func nodeAway(t *testing.T, s *speakers, c *kube.Cluster) {
	k := converse(t, c.Launcher(speaker), speakerSpec)
	k.hello()
	back := s.Kill("kubelet")
	defer func() { <-k.p.Gone() }()
	defer back()
	if exit := k.exit(); exit.Err == nil || !strings.Contains(exit.Err.Error(), "the connection to the Pod could not be made within 30s") {
		t.Errorf("%+v", exit)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, fault.New(fault.Timeout, "it takes too long"))
	defer cancel()
	if _, err := c.Launcher(speaker).Start(ctx, speakerSpec); err == nil || !strings.Contains(err.Error(), "of an earlier process is still ending on node orla-node") {
		t.Errorf("another start: %v", err)
	}
}

// restarts: a process outlives the API server, with what it said meanwhile, unless something was on its way to it.
func (s *speakers) restarts(t *testing.T, c *kube.Cluster) {
	k := converse(t, c.Launcher(speaker), speakerSpec)
	k.hello()
	k.said("stderr says hello ")
	k.ask("env", 0, "LANG")
	k.send("later", 6000, "")     // it answers while no connection is there
	<-time.After(3 * time.Second) // until Orla knows that the line has arrived
	restart := s.Kill("kube-apiserver")
	s.Eventually(t, "the process answers", func() bool {
		logs, _ := filepath.Glob(filepath.Join(s.Dir, "podlogs", "*", "tool", "*.log"))
		for _, log := range logs {
			if strings.Contains(read(t, log), `"result":"later"`) {
				return true
			}
		}
		return false
	})
	restart()
	if got := k.answer(); got != "later" {
		t.Errorf("after the restart it says %v", got)
	}
	if got := k.ask("env", 0, "LANG"); got != "C.UTF-8" {
		t.Errorf("and then %v", got)
	}
	if !strings.Contains(s.logged(), "the connection to a Pod broke; connecting again") {
		t.Error("the connection did not break")
	}
	<-time.After(2 * time.Second)
	k.send("later", 60_000, "")
	restart = s.Kill("kube-apiserver") // at once
	exit := make(chan launch.Exit, 1)
	go func() {
		<-k.p.Exited()
		exit <- k.p.Exit()
	}()
	select {
	case e := <-exit:
		if e.Err == nil || !strings.Contains(e.Err.Error(), "it is not known whether") {
			t.Errorf("a line on its way: %+v", e)
		}
	case <-time.After(patience):
		t.Error("a line on its way may be lost, and it goes on")
	}
	restart()
}
