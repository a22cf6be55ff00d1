package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/capsule"
	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/retry"
	"github.com/orla-project/orla/internal/file/watch"
	"github.com/orla-project/orla/internal/kind/grpc"
	httpkind "github.com/orla-project/orla/internal/kind/post"
	"github.com/orla-project/orla/internal/kind/webhook"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/environ"
	orlapeer "github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/service/remote"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/discover"
	"github.com/orla-project/orla/supervisor"
)

// inProcess are Orla's parts below its MCP endpoint, joined in this process.
type inProcess struct {
	supervisor *supervisor.Supervisor
	launcher   *launch.Local
	client     *outbound.Client
	stopServe  context.CancelFunc
	served     chan struct{} // closed when the supervisor has ended
}

// startInProcess serves the tools of a folder to this process.
func startInProcess(ctx context.Context, dir string) (*inProcess, error) {
	log := slog.New(slog.DiscardHandler)
	launcher, err := launch.NewLocal(launch.Options{Log: log})
	if err != nil {
		return nil, err
	}
	p := &inProcess{launcher: launcher, client: outbound.New(outbound.Options{}), served: make(chan struct{})}
	secrets := auth.Options{Secrets: secret.New(secret.Options{}), Tokens: auth.NewTokens(p.client)}
	posting := httpkind.Options{Client: p.client, Auth: secrets}
	posts := func(t manifest.Tool) (supervisor.Provider, error) { return httpkind.New(t, posting) }
	hub, clean := watch.NewHub(), environ.Clean(os.Environ())
	p.supervisor = supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{
			manifest.HTTP:     posts,
			manifest.External: posts,
			manifest.Webhook: func(t manifest.Tool) (supervisor.Provider, error) {
				return webhook.New(t, webhook.Options{Options: posting, Callbacks: webhook.NewCallbacks()})
			},
			manifest.GRPC: func(t manifest.Tool) (supervisor.Provider, error) {
				return grpc.New(t, grpc.Options{Client: p.client, Auth: secrets})
			},
			manifest.Capsule: func(t manifest.Tool) (supervisor.Provider, error) {
				opts := capsule.Options{Launcher: launcher.Launcher(), Environ: clean, Hub: hub, Log: log}
				if far := t.Runtime.Remote; far != nil {
					opts.Connect = remote.Connect(t, remote.Options{Client: p.client, Auth: auth.New(far.Auth, secrets)})
				}
				return capsule.New(t, opts)
			},
		},
		Wrap: retry.Wrap(retry.Options{Stopping: func() <-chan struct{} { return p.supervisor.Stopping() }, Log: log}),
		Log:  log,
	})
	serving, stop := context.WithCancel(ctx)
	p.stopServe = stop
	go func() {
		defer close(p.served)
		_ = p.supervisor.Serve(serving) // it is told to end
	}()
	found := discover.Tools(discover.Options{ToolsDir: dir})
	for i := range found.Tools {
		t := &found.Tools[i]
		t.Run.MaxOutput = manifest.DefaultMaxOutput
		t.Runtime.QueueTimeout, t.Runtime.MaxMessage = callPatience, manifest.DefaultMaxOutput
	}
	if diff := p.supervisor.Apply(found.Tools); len(found.Problems)+len(diff.Failed) > 0 {
		p.stop()
		return nil, fmt.Errorf("the tools are not served: %v %v", found.Problems, diff.Failed)
	}
	return p, nil
}

func (p *inProcess) stop() {
	p.stopServe()
	<-p.served
	p.launcher.Close()
	p.client.Close()
}

// call makes one call and checks its answer.
func (p *inProcess) call(ctx context.Context, tool, args string) error {
	answer, err := p.supervisor.Call(callid.With(ctx, callid.New()), orlapeer.Call{Tool: tool, Args: json.RawMessage(args), Caller: "bench"})
	switch {
	case err != nil:
		return err
	case answer.Raw != nil:
		return checkKind(answer.Raw)
	case len(answer.Result.Content) != 1:
		return errors.New("not one block of content")
	}
	return checkKind([]byte(answer.Result.Content[0].(*mcp.TextContent).Text))
}

// connectionsOf is how many connections the services have been asked for.
func connectionsOf(ctx context.Context, services *server) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+services.host+"/connections", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}
