package simple_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"testing"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/environ"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/simple"
)

// BenchmarkCall is to be read beside BenchmarkBareExec: what a call costs over
// a fork and exec of the same program (SPEC L1).
func BenchmarkCall(b *testing.B) {
	l, err := launch.NewLocal(launch.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	tool := manifest.Tool{
		Name: "cat", Kind: manifest.Simple, Path: "/bin/cat", Dir: "/",
		InputSchema: json.RawMessage(`{"type":"object"}`), Run: manifest.Run{Arguments: manifest.ArgumentsStdin},
	}
	c, err := simple.New(tool, simple.Options{Launcher: l.Launcher(), Environ: environ.Clean(os.Environ())})
	if err != nil {
		b.Fatal(err)
	}
	args := json.RawMessage(`{"name":"Ada"}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Call(b.Context(), peer.Call{Tool: "cat", Args: args}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBareExec(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		cmd := exec.Command("/bin/cat")
		cmd.Stdin = bytes.NewReader([]byte(`{"name":"Ada"}`))
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
	}
}
