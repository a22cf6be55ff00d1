package program

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
)

// revisions are those that the suite has scenarios for.
var revisions = []string{"2025-03-26", "2025-06-18", "2025-11-25", stateless}

// conformance is the official suite, in one process for all tests: to load it takes longer
// than to run it.
type conformance struct {
	dir   string // its package
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{} // closed after the process has ended
	said  bytes.Buffer  // by stderr; to be read once ended is closed

	mu      sync.Mutex // guards the fields that follow, and writing to stdin
	asked   int
	waiting map[int]chan struct{}
}

var (
	conformanceOnce sync.Once
	theConformance  *conformance // nil as long as no test has asked for it
	errConformance  error
)

// conformanceSuite returns the suite. Where it is not installed, the test is skipped.
func conformanceSuite(t *testing.T) *conformance {
	t.Helper()
	dir := needs.Conformance(t)
	conformanceOnce.Do(func() { theConformance, errConformance = startConformance(dir) })
	if errConformance != nil {
		t.Fatal(errConformance)
	}
	return theConformance
}

func startConformance(dir string) (*conformance, error) {
	c := &conformance{
		dir: dir, cmd: exec.Command("node", filepath.Join(dir, "suite.mjs"), "serve"),
		ended: make(chan struct{}), waiting: map[int]chan struct{}{},
	}
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.cmd.Stderr = &c.said
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.over(lines.Bytes())
		}
		_ = c.cmd.Wait() // whoever waits for a run is told what it said
	}()
	return c, nil
}

// over notes that a run has ended.
func (c *conformance) over(line []byte) {
	var run struct{ ID int }
	if json.Unmarshal(line, &run) != nil {
		return // the runs that wait for it fail
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if done := c.waiting[run.ID]; done != nil {
		close(done)
		delete(c.waiting, run.ID)
	}
}

// stop ends the process.
func (c *conformance) stop() {
	_ = c.stdin.Close() // its end
	<-c.ended
}

// start begins to run a command line of the suite. patience is how many milliseconds a wait for
// an answer may take; 0 is a minute. The channel that it returns is closed at the end.
func (c *conformance) start(patience int, args ...string) (<-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	run := map[string]any{"id": c.asked, "args": args}
	if patience > 0 {
		run["patience"] = patience
	}
	line, err := json.Marshal(run)
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	c.waiting[c.asked] = done
	_, err = c.stdin.Write(append(line, '\n'))
	return done, err
}

// run runs command lines of the suite next to each other, until all have ended.
func (c *conformance) run(t *testing.T, patience int, lines ...[]string) {
	t.Helper()
	var runs []<-chan struct{}
	for _, args := range lines {
		done, err := c.start(patience, args...)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, done)
	}
	for _, done := range runs {
		select {
		case <-done:
		case <-c.ended:
			t.Fatalf("the suite ended: %v\n%s", c.cmd.ProcessState, &c.said)
		}
	}
}

// all runs all scenarios of some revisions against a server, and returns the folder of the
// results, which has one for each revision.
func (c *conformance) all(t *testing.T, url string, patience int, revisions ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	var lines [][]string
	for _, revision := range revisions {
		lines = append(lines, []string{"server", "--url", url, "--suite", "all", "--timeout", "120000", "--spec-version", revision, "-o", filepath.Join(dir, revision)})
	}
	c.run(t, patience, lines...)
	return dir
}

// scenario runs one scenario of a revision, and returns the folder of the results.
func (c *conformance) scenario(t *testing.T, url, revision, name string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	c.run(t, 0, []string{"server", "--url", url, "--scenario", name, "--spec-version", revision, "-o", filepath.Join(dir, revision)})
	return dir
}

// list returns what the suite lists of its scenarios for servers.
func (c *conformance) list() (string, error) {
	cmd := exec.Command("node", filepath.Join(c.dir, "suite.mjs"), "list", "--server")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, &said)
	}
	return string(out), err
}
