// Command capsule is a capsule that costs next to nothing: it answers a call
// with a text of the asked size. It knows no library, and reads no more JSON than
// it takes to find the id and the size in what Orla and the gateways measured
// beside it write. With -mcp it is an MCP server as any other on stdio.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

// longest is how long a line may be.
const longest = 4 << 20

func main() {
	load := flag.Duration("load", 0, "how long to be busy with nothing before the hello")
	mcp := flag.Bool("mcp", false, "wait for the handshake of MCP in place of a hello")
	work := flag.Duration("work", 0, "how long to take for each call")
	flag.Parse()
	time.Sleep(*load)
	if err := serve(os.Stdin, os.Stdout, *mcp, *work); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve answers requests, one after the other, until in ends.
func serve(in io.Reader, out io.Writer, mcp bool, work time.Duration) error {
	if !mcp {
		if err := sayHello(out); err != nil {
			return err
		}
	}
	lines := bufio.NewReaderSize(in, longest)
	var answer []byte
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		id := idOf(line)
		if id == nil {
			continue // a notification
		}
		answer = append(append(append(answer[:0], `{"jsonrpc":"2.0","id":`...), id...), ',')
		if bytes.Contains(head(line), []byte(`"tools/call"`)) {
			time.Sleep(work)
			size, err := sizeIn(line)
			if err != nil {
				return err
			}
			answer = append(append(append(answer, `"result":{"content":[{"type":"text","text":"`...), text(size)...), `"}]}`...)
		} else {
			answer = append(answer, introduce(line)...)
		}
		if _, err := out.Write(append(answer, "}\n"...)); err != nil {
			return err
		}
	}
}

func sayHello(out io.Writer) error {
	name := os.Getenv("ORLA_TOOL")
	if name == "" {
		name = "bench"
	}
	_, err := fmt.Fprintf(out, `{"jsonrpc":"2.0","method":"orla.hello","params":{"name":%q,"version":"1.0.0","capabilities":[]}}`+"\n", name)
	return err
}

// head and tail are the parts of a message where all but a payload stands.
func head(line []byte) []byte { return line[:min(len(line), 200)] }
func tail(line []byte) []byte { return line[max(0, len(line)-100):] }

// idOf returns the id of a request, nil of anything else. It stands in front,
// or at the end as the TypeScript SDK writes it.
func idOf(line []byte) []byte {
	key := []byte(`"id":`)
	_, rest, found := bytes.Cut(head(line), key)
	if !found {
		if _, rest, found = bytes.Cut(tail(line), key); !found {
			return nil
		}
	}
	if end := bytes.IndexAny(rest, ",}"); end >= 0 {
		return rest[:end]
	}
	return nil
}

// sizeIn returns how long a text a call asks for.
func sizeIn(line []byte) (int, error) {
	_, rest, _ := bytes.Cut(line, []byte(`"size":`))
	end := bytes.IndexAny(rest[:min(len(rest), 16)], ",}")
	if end < 0 {
		return 0, fmt.Errorf("a call without a size: %.200q", line)
	}
	return strconv.Atoi(string(rest[:end]))
}

// introduce answers what a client of MCP asks before it calls.
func introduce(line []byte) string {
	switch {
	case bytes.Contains(head(line), []byte(`"initialize"`)):
		_, version, _ := bytes.Cut(line, []byte(`"protocolVersion":"`))
		version, _, _ = bytes.Cut(version, []byte(`"`))
		return fmt.Sprintf(`"result":{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1.0.0"}}`, version)
	case bytes.Contains(head(line), []byte(`"tools/list"`)):
		return `"result":{"tools":[{"name":"echo","description":"Answers with a text of the size that it is asked for.",` +
			`"inputSchema":{"type":"object","properties":{"size":{"type":"integer"},"text":{"type":"string"}}}}]}`
	case bytes.Contains(head(line), []byte(`"ping"`)):
		return `"result":{}`
	}
	return `"error":{"code":-32601,"message":"not known here"}`
}

var filler []byte

// text returns size letters.
func text(size int) []byte {
	if len(filler) < size {
		filler = bytes.Repeat([]byte("x"), size)
	}
	return filler[:size]
}
