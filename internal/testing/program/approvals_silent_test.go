package program

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// silent is a client on stdio that says it can ask a person, and answers no question.
type silent struct {
	t     *testing.T
	in    io.WriteCloser
	lines chan string
}

func startSilent(t *testing.T, cmd *exec.Cmd) *silent {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &silent{t, in, make(chan string, 1000)}
	go func() {
		for scan := bufio.NewScanner(out); scan.Scan(); {
			s.lines <- scan.Text()
		}
		close(s.lines)
	}()
	t.Cleanup(func() {
		_ = in.Close()
		for range s.lines {
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("Orla ends with %v", err)
		}
	})
	return s
}

func (s *silent) write(line string) {
	s.t.Helper()
	if _, err := io.WriteString(s.in, line+"\n"); err != nil {
		s.t.Fatal(err)
	}
}

// until reads until a line with a text, for a time.
func (s *silent) until(text string, patience time.Duration) string {
	s.t.Helper()
	for late := time.After(patience); ; {
		select {
		case line, more := <-s.lines:
			if !more {
				s.t.Fatalf("Orla ended before %s", text)
			}
			if strings.Contains(line, text) {
				return line
			}
		case <-late:
			s.t.Fatalf("no line with %s", text)
		}
	}
}

// SPEC-TOOLS 8.7: a client that says it can ask a person, and never answers, holds up nothing: the operator decides, and the
// question is withdrawn; without a decision the call ends as approval_pending, and the same call goes on later.
func TestT87AClientThatNeverAnswers(t *testing.T) {
	t.Parallel()
	needs.Time(t, "waits for as long as a call does")
	socket := shortPath(t)
	dir := filepath.Dir(socket)
	tools, ran := filepath.Join(dir, "tools"), filepath.Join(dir, "ran")
	testkit.WriteTool(t, tools, "wipe", "#!/bin/sh\ncat >>"+ran+"\necho >>"+ran+"\necho wiped\n")
	for name, text := range map[string]string{
		filepath.Join(tools, "rule.yaml"): fmt.Sprintf(wipeRule, ", approvers: [client, operator]"),
		filepath.Join(dir, "orla.yaml"):   "state_dir: state\napprovals: {same_user: true}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(orlaBinary(t), "--stdio", "--socket", socket)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir)
	s := startSilent(t, cmd)
	s.write(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}},"clientInfo":{"name":"silent","version":"1"}}}`)
	s.until(`"id":0`, testkit.Patience)
	s.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	calls := 0
	call := func(args string) (id string) {
		calls++
		s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":"call%d","method":"tools/call","params":{"name":"wipe","arguments":%s}}`, calls, args))
		return fmt.Sprintf(`"id":"call%d"`, calls)
	}
	asked := func() (question string) {
		t.Helper()
		var q struct {
			ID json.RawMessage `json:"id"`
		}
		line := s.until(`"elicitation/create"`, testkit.Patience)
		if err := json.Unmarshal([]byte(line), &q); err != nil || len(q.ID) == 0 {
			t.Fatalf("the question is %s", line)
		}
		return `"requestId":` + string(q.ID)
	}
	approve := func() {
		t.Helper()
		api := control.NewClient(socket)
		list, err := api.Approvals(t.Context(), control.ApprovalQuery{Phase: "Pending"})
		if err != nil || len(list) != 1 {
			t.Fatalf("%v: these calls wait: %+v", err, list)
		}
		one, err := api.Approval(t.Context(), list[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := api.Approve(t.Context(), one.ID, control.ApproveRequest{Digest: one.Digest}); err != nil {
			t.Fatal(err)
		}
	}

	first := call(`{"n":1}`)
	question := asked()
	approve()
	withdrawn, answered := false, false
	for !withdrawn || !answered {
		line := s.until(`"jsonrpc"`, testkit.Patience)
		withdrawn = withdrawn || strings.Contains(line, `"notifications/cancelled"`) && strings.Contains(line, question)
		if strings.Contains(line, first) {
			answered = true
			if !strings.Contains(line, "wiped") {
				t.Errorf("the call that the operator approved: %s", line)
			}
		}
	}

	second := call(`{"n":2}`)
	asked()
	if line := s.until(second, 45*time.Second+testkit.Patience); !strings.Contains(line, "approval_pending") {
		t.Errorf("nobody has decided, and the call ends with %s", line)
	}
	approve()
	third := call(`{"n":2}`)
	if line := s.until(third, testkit.Patience); !strings.Contains(line, "wiped") {
		t.Errorf("the same call after the approval: %s", line)
	}
	if got := testkit.ReadFile(t, ran); got != `{"n":1}`+"\n"+`{"n":2}`+"\n" {
		t.Errorf("these calls ran:\n%s", got)
	}
}
