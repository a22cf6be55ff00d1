// Command podcapsule is what tests run in a Pod: a capsule, or with the argument "mcp" an MCP server. With OBSERVER it
// keeps a connection to that address, which says its generation, as long as it lives.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		os.Exit(0)
	}()
	fmt.Fprintln(os.Stderr, "podcapsule begins")
	if observer := os.Getenv("OBSERVER"); observer != "" {
		seen, err := net.DialTimeout("tcp", observer, 10*time.Second)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(4)
		}
		fmt.Fprintln(seen, os.Getenv("ORLA_GENERATION"))
		defer func() { _ = seen.Close() }()
	}
	if len(os.Args) < 2 {
		fmt.Println(`{"jsonrpc":"2.0","method":"orla.hello","params":{"name":"inpod","version":"1.0.0","capabilities":[]}}`)
	}
	host, _ := os.Hostname()
	for in := bufio.NewReader(os.Stdin); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		var asked struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
		}
		if json.Unmarshal([]byte(line), &asked) != nil || asked.ID == nil {
			continue
		}
		var result any
		switch asked.Method {
		case "initialize":
			result = map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{"tools": map[string]any{}}, "serverInfo": map[string]any{"name": "podserver", "version": "1"}}
		case "tools/list":
			result = map[string]any{"tools": []any{map[string]any{"name": "where", "inputSchema": map[string]any{"type": "object"}}}}
		default:
			if strings.Contains(string(asked.Params), "crash") {
				os.Exit(3)
			}
			result = map[string]any{"content": []any{map[string]any{"type": "text", "text": fmt.Sprintf("uid %d on %s as %s", os.Getuid(), host, os.Getenv("KIND"))}}}
		}
		raw, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": asked.ID, "result": result})
		fmt.Println(string(raw))
	}
}
