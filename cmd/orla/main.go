// Command orla finds tools and serves them to MCP clients.
//
// Everything is joined here: flags, environment and file become settings, and
// settings become the parts of the program (wire.go) and their lives (serve.go).
package main

import (
	"os"

	"github.com/orla-project/orla/internal/terminal"
)

func main() {
	os.Exit(int(run(os.Args[1:], terminal.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})))
}
