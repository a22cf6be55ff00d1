package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// debounce is the default of debounce_ms.
	debounce = 100 * time.Millisecond
	// maxBeyond is what Orla may add to what a capsule needs by itself (SPEC L3).
	maxBeyond = 20 * time.Millisecond
	// reloadPatience bounds the time until new code answers.
	reloadPatience = 60 * time.Second
	// askEvery is the pause between two calls that wait for new code.
	askEvery = time.Millisecond
)

// interpreted is a capsule whose one file is its code.
type interpreted struct {
	name string // of the tool
	file string // its entrypoint
	code string // with VERSION for what it answers
	path string // where the file stands

	client *mcpClient
	ask    []byte
	pid    int

	bare           []life
	saves, crashes []phases
}

// life is what a capsule's process takes by itself.
type life struct {
	start time.Duration // from exec to its hello
	stop  time.Duration // from the end of its stdin to its own
}

// phases are how long after a save or a crash something was so.
type phases struct{ reloading, starting, ready, answered time.Duration }

const pythonCapsule = `
import json, sys

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

say(method="orla.hello", params={"name": "python", "version": "1.0.0", "capabilities": []})
for line in sys.stdin:
    call = json.loads(line)
    if call.get("method") == "tools/call":
        say(id=call["id"], result="VERSION")
`

const nodeCapsule = `
const say = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");

say({ method: "orla.hello", params: { name: "node", version: "1.0.0", capabilities: [] } });
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const call = JSON.parse(line);
  if (call.method === "tools/call") say({ id: call.id, result: "VERSION" });
});
`

// measureLive measures how soon a saved file answers, and how soon a capsule
// that died is back, against what its interpreter needs alone.
func measureLive(ctx context.Context, b *bench) ([]table, error) {
	toolsDir := filepath.Join(b.dir, "live")
	capsules, err := b.interpretedCapsules(ctx, toolsDir)
	if err != nil || len(capsules) == 0 {
		return nil, err
	}
	s, err := b.startOrla(ctx, toolsDir)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	for _, c := range capsules {
		if c.client, err = connect(ctx, s.host, withSession); err != nil {
			return nil, err
		}
		defer c.client.close()
		c.ask = c.client.call(c.name)
	}
	ready, err := s.awaitAll(ctx, "READY", 0, len(capsules), func(l logLine) bool { return l.To == "READY" })
	if err != nil {
		return nil, err
	}
	for _, l := range ready {
		for _, c := range capsules {
			if c.name == l.Tool {
				c.pid = l.Pid
			}
		}
	}
	for round := range b.scale.lives {
		for _, c := range capsules {
			if err := c.round(ctx, s, b.scale.health, fmt.Sprintf("version %d", round+1)); err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	return []table{tabulateSaves(capsules), tabulateCrashes(capsules)}, nil
}

// interpretedCapsules makes a package for each interpreter that there is.
func (b *bench) interpretedCapsules(ctx context.Context, toolsDir string) ([]*interpreted, error) {
	var capsules []*interpreted
	add := func(name, file, code, interpreter string) error {
		c := &interpreted{name: name, file: file, path: filepath.Join(toolsDir, name, file), code: "#!" + interpreter + code}
		capsules = append(capsules, c)
		if err := os.MkdirAll(filepath.Dir(c.path), 0o755); err != nil {
			return err
		}
		// The count of failures starts afresh as soon as it may, so that each crash is the first.
		manifest := fmt.Appendf(nil, capsuleManifest, name, file, fmt.Sprintf(", restart: {reset_after_ms: %d}", b.scale.health.Milliseconds()-50))
		if err := os.WriteFile(filepath.Join(filepath.Dir(c.path), "tool.yaml"), manifest, 0o600); err != nil {
			return err
		}
		_, err := c.save("version 0")
		return err
	}
	if python, err := realPython(ctx); err == nil {
		if err := add("python", "main.py", pythonCapsule, python); err != nil {
			return nil, err
		}
	}
	if node, err := output(ctx, "node", "-p", "process.execPath"); err == nil {
		if err := add("node", "main.js", nodeCapsule, node); err != nil {
			return nil, err
		}
	}
	return capsules, nil
}

// save writes the code as an editor does, and returns when it was there.
func (c *interpreted) save(version string) (time.Time, error) {
	beside := filepath.Join(filepath.Dir(filepath.Dir(c.path)), "."+c.file) // in no watched folder
	if err := os.WriteFile(beside, []byte(strings.ReplaceAll(c.code, "VERSION", version)), 0o755); err != nil {
		return time.Time{}, err
	}
	now := time.Now()
	return now, os.Rename(beside, c.path)
}

// round measures one life without Orla, one crash and one save.
func (c *interpreted) round(ctx context.Context, s *server, health time.Duration, version string) error {
	alone, err := c.alone(ctx)
	if err != nil {
		return err
	}
	if err := rest(ctx, health); err != nil {
		return err
	}
	crash, err := c.crash(ctx, s)
	if err != nil {
		return err
	}
	save, err := c.reload(ctx, s, version)
	if err != nil {
		return err
	}
	c.bare = append(c.bare, alone)
	c.crashes = append(c.crashes, crash)
	c.saves = append(c.saves, save)
	return nil
}

// alone runs the capsule without Orla.
func (c *interpreted) alone(ctx context.Context) (l life, err error) {
	began := time.Now()
	p, err := startBare(ctx, c.path)
	if err != nil {
		return l, err
	}
	l.start = time.Since(began)
	ended := time.Now()
	err = p.end()
	l.stop = time.Since(ended)
	return l, err
}

// crash kills the process and waits until the next one is ready.
func (c *interpreted) crash(ctx context.Context, s *server) (phases, error) {
	from, err := s.logSize()
	if err != nil {
		return phases{}, err
	}
	began := time.Now()
	if err := syscall.Kill(c.pid, syscall.SIGKILL); err != nil {
		return phases{}, err
	}
	return c.follow(ctx, s, from, began)
}

// reload saves new code and calls until it answers.
func (c *interpreted) reload(ctx context.Context, s *server, version string) (phases, error) {
	from, err := s.logSize()
	if err != nil {
		return phases{}, err
	}
	began, err := c.save(version)
	if err != nil {
		return phases{}, err
	}
	for {
		if time.Since(began) > reloadPatience {
			return phases{}, fmt.Errorf("%s was saved and never answered; the log ends: %s", version, s.logEnd())
		}
		a, err := c.client.roundTrip(c.ask)
		if err != nil {
			return phases{}, err
		}
		if bytes.Contains(a.body, []byte(`"`+version+`"`)) {
			break
		}
		if !bytes.Contains(a.body, []byte(`"version `)) {
			return phases{}, fmt.Errorf("not an answer of old code or new: %.500s", a.body)
		}
		if err := rest(ctx, askEvery); err != nil {
			return phases{}, err
		}
	}
	answered := time.Since(began)
	p, err := c.follow(ctx, s, from, began)
	p.answered = answered
	return p, err
}

// follow waits for READY in the log, and returns how long everything took since began.
func (c *interpreted) follow(ctx context.Context, s *server, from int64, began time.Time) (p phases, err error) {
	ready := false
	lines, err := s.awaitAll(ctx, "READY", from, 1, func(l logLine) bool {
		if l.Tool != c.name || l.Msg != "state" || ready {
			return false
		}
		since := l.Time.Sub(began)
		switch l.To {
		case "RELOADING":
			p.reloading = since
		case "STARTING":
			p.starting = since
		case "READY":
			p.ready, ready = since, true
		}
		return ready
	})
	if err == nil {
		c.pid = lines[0].Pid
	}
	return p, err
}

func tabulateSaves(capsules []*interpreted) table {
	t := table{
		title: "From a save to the first answer of the new code (L3)",
		header: []string{
			"capsule", "saves", "bare start", "bare stop", "RELOADING after", "STARTING after", "READY after", "answer after",
			"beyond", "target", "verdict",
		},
		note: fmt.Sprintf("Times are medians, counted from the save. The last is what goes beyond debounce_ms (%s), "+
			"the bare stop (from the end of stdin to the process's own) and the bare start (from exec to the hello) of the same file in the same round.", debounce),
	}
	for _, c := range capsules {
		beyond := middle(c.saves, func(i int, p phases) time.Duration { return p.answered - debounce - c.bare[i].stop - c.bare[i].start })
		t.add(c.name, fmt.Sprint(len(c.saves)), c.bareStart(), millis(middle(c.bare, func(_ int, l life) time.Duration { return l.stop })),
			millis(middle(c.saves, func(_ int, p phases) time.Duration { return p.reloading })),
			millis(middle(c.saves, func(_ int, p phases) time.Duration { return p.starting })),
			millis(middle(c.saves, func(_ int, p phases) time.Duration { return p.ready })),
			millis(middle(c.saves, func(_ int, p phases) time.Duration { return p.answered })),
			millis(beyond), "≤ "+millis(maxBeyond), verdict(check{"", float64(beyond), float64(maxBeyond)}))
	}
	return t
}

func tabulateCrashes(capsules []*interpreted) table {
	t := table{
		title:  "From kill -9 to READY (L3)",
		header: []string{"capsule", "crashes", "bare start", "STARTING after", "READY after", "beyond", "target", "verdict"},
		note:   "After a time of health, so that there is no pause. The log's own times count.",
	}
	for _, c := range capsules {
		beyond := middle(c.crashes, func(i int, p phases) time.Duration { return p.ready - c.bare[i].start })
		t.add(c.name, fmt.Sprint(len(c.crashes)), c.bareStart(),
			millis(middle(c.crashes, func(_ int, p phases) time.Duration { return p.starting })),
			millis(middle(c.crashes, func(_ int, p phases) time.Duration { return p.ready })),
			millis(beyond), "≤ "+millis(maxBeyond), verdict(check{"", float64(beyond), float64(maxBeyond)}))
	}
	return t
}

func (c *interpreted) bareStart() string {
	return millis(middle(c.bare, func(_ int, l life) time.Duration { return l.start }))
}

// middle is the median of what of makes of each value.
func middle[T any](values []T, of func(i int, v T) time.Duration) time.Duration {
	durations := make([]time.Duration, len(values))
	for i, v := range values {
		durations[i] = of(i, v)
	}
	return median(durations)
}
