// Command capsule is a capsule that costs next to nothing: it answers a call
// with a text of the asked size. It reads no more JSON than Orla's own way of
// writing makes it read, and knows no library.
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
	flag.Parse()
	time.Sleep(*load)
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve answers calls, one after the other, until in ends.
func serve(in io.Reader, out io.Writer) error {
	name := os.Getenv("ORLA_TOOL")
	if name == "" {
		name = "bench"
	}
	if _, err := fmt.Fprintf(out, `{"jsonrpc":"2.0","method":"orla.hello","params":{"name":%q,"version":"1.0.0","capabilities":[]}}`+"\n", name); err != nil {
		return err
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
		id, rest, found := bytes.Cut(bytes.TrimPrefix(line, []byte(`{"jsonrpc":"2.0","id":`)), []byte(","))
		if !found || !bytes.HasPrefix(rest, []byte(`"method":"tools/call"`)) {
			continue
		}
		_, rest, _ = bytes.Cut(rest, []byte(`"size":`))
		end := bytes.IndexAny(rest[:min(len(rest), 16)], ",}")
		if end < 0 {
			return fmt.Errorf("a call without a size: %.200q", line)
		}
		size, err := strconv.Atoi(string(rest[:end]))
		if err != nil {
			return err
		}
		answer = append(append(answer[:0], `{"jsonrpc":"2.0","id":`...), id...)
		answer = append(append(append(answer, `,"result":{"content":[{"type":"text","text":"`...), text(size)...), `"}]}}`+"\n"...)
		if _, err := out.Write(answer); err != nil {
			return err
		}
	}
}

var filler []byte

// text returns size letters.
func text(size int) []byte {
	if len(filler) < size {
		filler = bytes.Repeat([]byte("x"), size)
	}
	return filler[:size]
}
