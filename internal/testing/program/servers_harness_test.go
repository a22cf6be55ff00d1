package program

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// offShelf is an MCP server as it comes (testdata/servers).
type offShelf struct {
	dir  string   // its package
	argv []string // starts it without Orla, in its package
	asks bool     // for the roots, soon after it has started
}

// servers returns the folder of the servers, and each by its name. Without them
// the test is skipped with the reason, unless ORLA_TEST_CLIENTS=require.
func servers(t *testing.T) (string, map[string]offShelf) {
	t.Helper()
	everything, fastmcp := needs.Server(t, "everything"), needs.Server(t, "fastmcp")
	return filepath.Dir(everything), map[string]offShelf{
		"everything": {everything, []string{filepath.Join(everything, "node_modules", ".bin", "mcp-server-everything")}, true},
		"fastmcp":    {fastmcp, []string{filepath.Join(fastmcp, "run.sh")}, false},
	}
}

// witness is a driver whose every line is kept.
type witness struct {
	*client

	seen    sync.Mutex // guards the fields that follow
	answers map[int]map[string]any
	events  []map[string]any
}

// attend starts a driver in a folder. target are its further arguments.
func attend(t *testing.T, s sdk, dir string, target ...string) *witness {
	t.Helper()
	argv := slices.Concat(s.argv, []string{"--answer", "--log-level", "debug"}, target)
	w := &witness{client: &client{t: t, waiting: map[int]chan reply{}}, answers: map[int]map[string]any{}}
	complaints, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, wait := w.start(dir, stderr, argv)
	_ = stderr.Close() // the driver has it
	var reading sync.WaitGroup
	var last []string // of stderr
	t.Cleanup(func() {
		_ = w.stdin.Close()
		reading.Wait()
		wait()
		if t.Failed() {
			t.Logf("the driver's stderr ends with\n%s", strings.Join(last, "\n"))
		}
	})
	reading.Go(func() {
		defer func() { _ = complaints.Close() }() // it was read
		lines := bufio.NewScanner(complaints)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			last = append(last[max(0, len(last)-30):], lines.Text())
			w.complained(lines.Text())
		}
	})
	r := bufio.NewReader(out)
	line, err := r.ReadBytes('\n')
	for err == nil && object(line)["event"] == "changed" { // of lists, while it connects
		w.note(line)
		line, err = r.ReadBytes('\n')
	}
	if err != nil || json.Unmarshal(line, &w.hello) != nil || w.hello["event"] != "connected" {
		t.Fatalf("the driver did not connect: %v %s", err, line)
	}
	answers, forward := io.Pipe()
	reading.Go(func() { w.read(bufio.NewReader(answers)) })
	reading.Go(func() {
		defer func() { _ = forward.Close() }() // it has no error
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			if w.note(line) {
				_, _ = forward.Write(line) // read until it is closed
			}
		}
	})
	return w
}

// note keeps a line, and reports whether it is an answer.
func (w *witness) note(line []byte) bool {
	m := object(line)
	w.seen.Lock()
	defer w.seen.Unlock()
	if m["event"] != nil {
		delete(m, "id") // it counts the commands
		w.events = append(w.events, m)
		return false
	}
	n, _ := m["id"].(json.Number)
	id, err := n.Int64()
	w.answers[int(id)] = m
	return err == nil
}

// complained notes progress that reached client 2, but not its user: it says so
// of what it reads together with the answer.
func (w *witness) complained(line string) {
	notice, ok := strings.CutPrefix(line, "driver: Received a progress notification for an unknown token: ")
	if !ok {
		return
	}
	progress, _ := object([]byte(notice))["params"].(map[string]any)
	if progress == nil {
		return
	}
	delete(progress, "progressToken")
	progress["event"] = "progress"
	w.seen.Lock()
	defer w.seen.Unlock()
	w.events = append(w.events, progress)
}

// happened counts the events with a value of a key.
func (w *witness) happened(key, value string) int {
	w.seen.Lock()
	defer w.seen.Unlock()
	n := 0
	for _, e := range w.events {
		if e[key] == value {
			n++
		}
	}
	return n
}

// fields is what a command says beside its operation.
type fields = map[string]any

// question is one command to a driver, the answer to which is compared.
type question struct {
	name   string
	op     string
	fields fields
	events int // at least as many come with the answer
}

// asked returns a question.
func asked(op string, f fields) question {
	name := op
	if f != nil {
		name += " " + compact(f)
	}
	return question{name, op, f, 0}
}

// called returns the question that a call is, with a number of events to wait for.
func called(tool string, args fields, events int) question {
	return question{"call " + tool + " " + compact(args), "call", fields{"name": tool, "arguments": args, "progress": true}, events}
}

// ask asks one question after the other and returns what came of each: its
// answer, and the events until the next one, in any order. What the question
// before brought goes on until the server has heard the one that ends it.
func (w *witness) ask(questions []question) map[string]any {
	w.t.Helper()
	all := map[string]any{}
	before := ""
	for _, q := range questions {
		w.seen.Lock()
		first := len(w.events)
		w.seen.Unlock()
		id, answered := w.send(q.op, q.fields)
		given := w.await(answered)
		var came []map[string]any
		testkit.Eventually(w.t, fmt.Sprintf("%s has %d events, answered by %s %v", q.name, q.events, given.Result, given.Error), func() bool {
			w.seen.Lock()
			defer w.seen.Unlock()
			came = slices.DeleteFunc(slices.Clone(w.events[first:]), spontaneous)
			return len(came) >= q.events
		})
		w.seen.Lock()
		answer := maps.Clone(w.answers[id])
		w.seen.Unlock()
		delete(answer, "id")
		all[q.name] = lasting(answer)
		for _, e := range came {
			event := " event " + compact(lasting(e))
			if q.events > 0 || all[before+event] == nil {
				all[q.name+event] = true
			}
		}
		before = q.name
	}
	return all
}

// spontaneous reports whether an event belongs to no question: that a list has
// changed, and what the reference server says of itself: that it asks for the
// roots, once in its life, and that somebody subscribed, which Orla does once
// for all its clients.
func spontaneous(e map[string]any) bool {
	text, _ := e["data"].(string)
	return e["event"] == "changed" || e["method"] == "roots/list" || e["logger"] == "everything-server" ||
		strings.HasPrefix(text, "Received ")
}

// The parts of texts that differ from one run of a server to the next. Which of
// its eight messages the reference server logs is random.
var (
	clock   = regexp.MustCompile(`created at \d+:\d\d:\d\d( [AP]M)?`)
	process = regexp.MustCompile(`^\d+ says`)
	message = regexp.MustCompile(`^[A-Z][a-z]+[- ]level[- ]message$`)
)

// lasting returns a value without what differs from one run of a server to the
// next, and without what the protocol of the stateless era adds to results.
// Lists of named things have no order.
func lasting(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return lastingObject(v)
	case []any:
		if named := byName(v); named != nil {
			return lastingObject(named)
		}
		out := make([]any, len(v))
		for i := range v {
			out[i] = lasting(v[i])
		}
		return out
	case string:
		if env := object([]byte(v)); env["PATH"] != nil {
			maps.DeleteFunc(env, func(key string, _ any) bool {
				return strings.HasPrefix(key, "ORLA_") || slices.Contains([]string{"HOME", "PWD", "OLDPWD", "SHLVL", "_"}, key)
			})
			return env
		}
		return process.ReplaceAllString(clock.ReplaceAllString(v, "created at TIME"), "PID says")
	}
	return v
}

func lastingObject(v map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range v {
		switch text, _ := value.(string); {
		case slices.Contains([]string{"ttlMs", "cacheScope", "resultType", "io.modelcontextprotocol/serverInfo"}, key):
			continue
		case key == "blob":
			if plain, err := base64.StdEncoding.DecodeString(text); err == nil && clock.Match(plain) {
				value = string(plain)
			}
		case key == "level" && message.MatchString(fmt.Sprint(v["data"])), key == "data" && message.MatchString(text):
			value = "random"
		}
		out[key] = lasting(value)
	}
	if meta, ok := out["_meta"].(map[string]any); ok && len(meta) == 0 {
		delete(out, "_meta")
	}
	return out
}

// byName makes a list of things that are known by a name or a URI a map of
// them, less what the tests have added to it. It returns nil for other lists.
func byName(list []any) map[string]any {
	out := map[string]any{}
	for _, v := range list {
		thing, _ := v.(map[string]any)
		name, ok := thing["name"].(string)
		for _, key := range []string{"uri", "uriTemplate"} {
			if uri, is := thing[key].(string); is && ok {
				name = uri
			}
		}
		if !ok || thing["type"] != nil {
			return nil
		}
		if !strings.Contains(name, "/session/") && !strings.Contains(name, "grown") {
			out[name] = thing
		}
	}
	return out
}

// differences says what differs between two answers, a line for each.
func differences(want, got any, path string) []string {
	if reflect.DeepEqual(want, got) {
		return nil
	}
	var all []string
	w, isMap := want.(map[string]any)
	g, alsoMap := got.(map[string]any)
	if isMap && alsoMap {
		for _, key := range slices.Sorted(maps.Keys(w)) {
			if value, ok := g[key]; ok {
				all = append(all, differences(w[key], value, path+"/"+key)...)
			} else {
				all = append(all, fmt.Sprintf("%s/%s is missing: %s", path, key, compact(w[key])))
			}
		}
		for _, key := range slices.Sorted(maps.Keys(g)) {
			if _, ok := w[key]; !ok {
				all = append(all, fmt.Sprintf("%s/%s is new: %s", path, key, compact(g[key])))
			}
		}
		return all
	}
	wl, isList := want.([]any)
	gl, alsoList := got.([]any)
	if isList && alsoList && len(wl) == len(gl) {
		for i := range wl {
			all = append(all, differences(wl[i], gl[i], fmt.Sprintf("%s/%d", path, i))...)
		}
		return all
	}
	return []string{fmt.Sprintf("%s is %s, directly %s", path, compact(got), compact(want))}
}

// object decodes an object, every digit of its numbers. It is nil if it is none.
func object(raw []byte) map[string]any {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var m map[string]any
	if decoder.Decode(&m) != nil {
		return nil
	}
	return m
}

func compact(v any) string {
	raw, err := json.Marshal(v)
	if err != nil { // it was JSON
		panic(err)
	}
	return string(raw)
}
