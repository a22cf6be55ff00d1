// Command services answers calls of every type of tool that is a service, with a
// short text, as cheaply as it can: what is measured is who calls it. It says
// where it serves in the words of Orla's log.
//
//	/http           JSON as it is
//	/contract       an envelope of the tool contract v1, at once
//	/pending        202 for ever
//	/mcp            an MCP server with one tool, "echo"
//	/connections    how many connections there have been
//
// and orloj.tool.v1.ToolService/Execute over gRPC, with the envelopes as JSON.
// With the argument stdio it is that MCP server on its stdin and stdout.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	serve := run
	if len(os.Args) > 1 {
		serve = speak
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// text is what every call is answered with.
var text = strings.Repeat("x", 64)

func run() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var connections atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/http", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		answer(w, []byte(`{"text":"`+text+`"}`))
	})
	mux.HandleFunc("/contract", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answer(w, envelope(body))
	})
	mux.HandleFunc("/pending", pending)
	mux.HandleFunc("/pending/", pending)
	mux.HandleFunc("/orloj.tool.v1.ToolService/Execute", execute)
	mux.HandleFunc("/connections", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, connections.Load()) })
	server := mcp.NewServer(&mcp.Implementation{Name: "services", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)}, echo)
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))

	s := &http.Server{Handler: mux, Protocols: new(http.Protocols), ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	fmt.Fprintf(os.Stderr, `{"msg":"serving","url":"http://%s/"}`+"\n", l.Addr())
	return s.Serve(l)
}

func answer(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // who does not listen is not answered
}

func envelope(request []byte) []byte {
	var r struct {
		ID string `json:"request_id"`
	}
	_ = json.Unmarshal(request, &r) // an answer without its id is refused
	return []byte(`{"request_id":"` + r.ID + `","status":"success","result":{"text":"` + text + `"}}`)
}

func pending(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusAccepted)
}

// prefix is what stands before a message of gRPC: a flag and a length.
const prefix = 5

func execute(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h := w.Header()
	h.Set("Content-Type", r.Header.Get("Content-Type"))
	h.Set("Trailer", "Grpc-Status")
	e := envelope(body[min(len(body), prefix):])
	_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(e))), e...))
	h.Set("Grpc-Status", "0")
}

func echo(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
}

// speak is written without the SDK: a server made with the SDK has been seen to keep an
// answer to itself, once in a hundred thousand times or so.
func speak() error {
	in := json.NewDecoder(os.Stdin)
	for {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if err := in.Decode(&m); err != nil {
			return nil //nolint:nilerr // whoever started it is done
		}
		if m.ID == nil {
			continue
		}
		said := `"error":{"code":-32601,"message":"there is no such method"}`
		switch m.Method {
		case "initialize":
			said = `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"services","version":"1"}}`
		case "tools/list":
			said = `"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`
		case "tools/call":
			said = `"result":{"content":[{"type":"text","text":"` + text + `"}]}`
		}
		if _, err := fmt.Printf(`{"jsonrpc":"2.0","id":%s,%s}`+"\n", m.ID, said); err != nil {
			return err
		}
	}
}
