// Command orla finds tools and serves them to MCP clients.
//
// The commands are in internal/app/cli. This package only connects them to the process: its
// arguments, its streams and its exit code.
package main

import (
	"os"
	"runtime"

	"github.com/orla-project/orla/internal/app/cli"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/launch/mainthread"
	_ "github.com/orla-project/orla/internal/launch/slack/early" // executes this program again
)

func init() { runtime.LockOSThread() } //nolint:gochecknoinits // only here is it sure that main runs on the main thread

func main() {
	os.Exit(mainthread.Run(func() int {
		return int(cli.Run(os.Args[1:], terminal.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
	}))
}
