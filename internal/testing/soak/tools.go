package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// arguments say what a tool is to do.
type arguments struct {
	Size    int  `json:"size"`     // of the text that it answers with, in bytes
	SleepMS int  `json:"sleep_ms"` // before the answer
	Crash   bool `json:"crash"`    // instead of the answer
}

func (a arguments) answer() string { return strings.Repeat("x", a.Size) }

// beSimple is a simple tool, which gets its arguments on stdin.
func beSimple(in io.Reader, out io.Writer) error {
	var a arguments
	if err := json.NewDecoder(in).Decode(&a); err != nil {
		return err
	}
	time.Sleep(time.Duration(a.SleepMS) * time.Millisecond)
	_, err := fmt.Fprint(out, a.answer())
	return err
}

// beCapsule is a capsule, an MCP server with a tool of its own name, that also says now and then that its list has changed.
func beCapsule(name string, in io.Reader, out io.Writer) error {
	say := func(message map[string]any) error {
		message["jsonrpc"] = "2.0"
		raw, err := json.Marshal(message)
		if err != nil {
			return err
		}
		_, err = out.Write(append(raw, '\n'))
		return err
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for n := 0; lines.Scan(); n++ {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				ProtocolVersion string    `json:"protocolVersion"`
				Arguments       arguments `json:"arguments"`
			} `json:"params"`
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return err
		}
		var result any
		switch m.Method {
		case "initialize":
			result = map[string]any{
				"protocolVersion": m.Params.ProtocolVersion, "serverInfo": map[string]any{"name": "soak", "version": "1"},
				"capabilities": map[string]any{"tools": map[string]any{"listChanged": true}},
			}
		case "tools/list":
			result = map[string]any{"tools": []any{map[string]any{"name": name, "inputSchema": map[string]any{"type": "object"}}}}
		case "tools/call":
			a := m.Params.Arguments
			if a.Crash {
				fmt.Fprintln(os.Stderr, "crashing, as asked")
				os.Exit(3)
			}
			time.Sleep(time.Duration(a.SleepMS) * time.Millisecond)
			result = map[string]any{"content": []any{map[string]any{"type": "text", "text": a.answer()}}}
			if n%100 == 99 {
				if err := say(map[string]any{"method": "notifications/tools/list_changed"}); err != nil {
					return err
				}
			}
		default:
			result = map[string]any{}
		}
		if m.ID != nil {
			if err := say(map[string]any{"id": m.ID, "result": result}); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

// capsules and simple tools of the world; those that crash and those that come and go are others.
const (
	steadyCapsules = 6
	simpleTools    = 4
)

func capsuleName(i int) string { return fmt.Sprintf("capsule%d", i) }

func simpleName(i int) string { return fmt.Sprintf("simple%d", i) }

// writeCapsule writes a package. more is a further line of its manifest's runtime.
func writeCapsule(tools, self, name, more string) error {
	dir := filepath.Join(tools, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	manifest := fmt.Sprintf("name: %s\nversion: 1.0.0\ndescription: A capsule of the soak.\nentrypoint: main.sh\nruntime:\n  mode: capsule\n  handshake: mcp\n"+
		"  restart: {initial_ms: 50, max_ms: 500, max_failures: 0}\n  hot_load: {debounce_ms: 50}\n%s", name, more)
	if err := os.WriteFile(filepath.Join(dir, "tool.yaml"), []byte(manifest), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "main.sh"), script(self, roleCapsule+" "+name, ""), 0o755)
}

func writeSimple(tools, self, name string) error {
	const block = "# /// tool\n# description: A simple tool of the soak.\n# arguments: stdin\n# ///\n"
	// As editors do: a shell that begins to read it meanwhile gets a whole one.
	aside := filepath.Join(tools, "."+name)
	if err := os.WriteFile(aside, script(self, roleSimple, block), 0o755); err != nil {
		return err
	}
	return os.Rename(aside, filepath.Join(tools, name+".sh"))
}

func script(self, role, block string) []byte {
	return fmt.Appendf(nil, "#!/bin/sh\n%sexec '%s' %s\n", block, self, role)
}
