package orla_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Why a goroutine needs no recover of its own.
const (
	waits = "it only waits"
	moves = "it only moves bytes, which it does not look into"
	own   = "what it handles is Orla's own"
	below = "what it calls recovers"
	alone = "it is a command of an operator's, which ends with it"
)

// uncontained are the goroutines and the timers' functions without a recover, by the
// function that starts them: how many there are, and why.
var uncontained = map[string]struct {
	n   int
	why string
}{
	"capsule.Capsule.Serve":                      {1, waits},
	"capsule.Capsule.fulfil":                     {1, below},
	"capsule.incarnation.negotiateOr":            {1, waits},
	"capsule.stderrLimit.allow":                  {1, own},
	"cmd/orla.byHandAll":                         {1, alone},
	"cmd/orla.newSteady":                         {1, moves},
	"cmd/orla.output.writeSoon":                  {1, moves},
	"cmd/orla.parts.keepAlive":                   {1, below},
	"cmd/orla.readiness.Serve":                   {1, own},
	"cmd/orla.server.Serve":                      {1, own},
	"cmd/orla.server.drain":                      {1, waits},
	"cmd/orla.server.grow":                       {1, below},
	"cmd/orla.server.runStdio":                   {2, below},
	"cmd/orla.watchers.serve":                    {1, waits},
	"cmd/orla.web.answerFresh":                   {1, waits},
	"cmd/orla.web.serve":                         {1, below},
	"internal/control.presence.move":             {1, below},
	"internal/kind/webhook.wait.endSoonLocked":   {1, waits},
	"internal/launch.Local.Start":                {1, own},
	"internal/launch.Local.run":                  {5, own},
	"internal/launch.Local.start":                {1, moves},
	"internal/launch.LocalProcess.Finish":        {1, own},
	"internal/launch.LocalProcess.Stop":          {1, own},
	"internal/launch.NewLocal":                   {1, own},
	"internal/launch.guard.runOnce":              {1, waits},
	"internal/launch.newHeir":                    {1, own},
	"internal/launch.newVigil":                   {1, own},
	"internal/launch.reserveThreads":             {1, waits},
	"internal/launch.startGuard":                 {1, own},
	"internal/launch/container.Engine.bounded":   {1, waits},
	"internal/launch/container.Engine.commandOn": {2, moves},
	"internal/launch/container.Launcher.Start":   {1, below},
	"internal/launch/container.process.untilEnd": {1, waits},
	"internal/launch/container.relay.start":      {1, moves},
	"internal/launch/kube.Cluster.Close":         {1, own},
	"internal/launch/kube.bounded.RoundTrip":     {1, own},
	"internal/launch/kube.launcher.start":        {1, below},
	"internal/launch/kube.process.abandon":       {1, below},
	"internal/launch/kube.process.attend":        {3, below},
	"internal/launch/kube.process.readLog":       {2, waits},
	"internal/launch/sandbox.process.await":      {1, own},
	"internal/linerpc.Conn.post":                 {1, moves},
	"internal/linerpc.Conn.writeNow":             {1, moves},
	"internal/remote.Start":                      {1, waits},
	"internal/remote.session.live":               {1, waits},
	"internal/telemetry.exporter.send":           {1, waits},
	"internal/turns.Queue.TakeBriefly":           {1, own},
	"internal/turns.Room.take":                   {1, waits},
	"internal/wasm.Runtime.Close":                {1, waits},
	"internal/wasm.Runtime.find":                 {1, below},
	"internal/watch.Hub.join":                    {2, below},
	"mcpbridge.Bridge.ServeStdio":                {2, below},
	"mcpbridge.Bridge.callTool":                  {1, own},
	"mcpbridge.access.during":                    {1, own},
	"mcpbridge.closeSessions":                    {1, waits},
	"mcpbridge.conn.awaitLog":                    {1, waits},
	"mcpbridge.conn.run":                         {1, below},
	"mcpbridge.held.park":                        {1, own},
	"mcpbridge.joined":                           {1, own},
	"mcpbridge.largeAnswers.expire":              {1, own},
	"mcpbridge.largeAnswers.keep":                {1, own},
	"mcpbridge.response.keepAlive":               {1, own},
	"mcpbridge.sse.stream":                       {1, waits},
	"mcpbridge.writeLines":                       {1, moves},
	"supervisor.Supervisor.Alive":                {1, own},
}

// helpers are programs and packages that are not part of orla.
var helpers = []string{"internal/bench", "internal/chaos", "internal/containertest", "internal/capsuletest", "internal/needs", "internal/costtest", "internal/faultproxy", "examples", "scripts", "tools", "testdata", "docs", "deploy"}

// SPEC F2, N2: a panic in a goroutine ends the process, so each goroutine recovers, or
// it stands above with the reason why it need not.
func TestGoroutinesRecover(t *testing.T) {
	found := map[string]int{}
	for file, parsed := range product(t) {
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			where := path.Dir(file) + "." + nameOf(f)
			ast.Inspect(f, func(n ast.Node) bool {
				if started := startedBy(n); started != nil && !recovers(started) {
					found[where]++
				}
				return true
			})
		}
	}
	for _, where := range slices.Sorted(maps.Keys(found)) {
		if known := uncontained[where]; known.n != found[where] {
			t.Errorf("%s starts %d goroutines without a recover, want %d: defer recovered.To first in each, or list it with the reason", where, found[where], known.n)
		}
	}
	for where := range uncontained {
		if found[where] == 0 || uncontained[where].why == "" {
			t.Errorf("%s is listed, and starts no goroutine without a recover, or has no reason", where)
		}
	}
}

// product parses the program, tests aside.
func product(t *testing.T) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (slices.Contains(helpers, file) || entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".") && file != "."):
			return fs.SkipDir
		case entry.IsDir(), !strings.HasSuffix(file, ".go"), strings.HasSuffix(file, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(file)] = parsed
		return nil
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	return files
}

func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	return fmt.Sprint(of, ".", f.Name.Name)
}

// startedBy is the function that a node starts in a goroutine: by go, by the Go of a
// sync.WaitGroup, or by a timer. It is nil if it starts none.
func startedBy(n ast.Node) ast.Expr {
	switch n := n.(type) {
	case *ast.GoStmt:
		return n.Call.Fun
	case *ast.CallExpr:
		if called, ok := n.Fun.(*ast.SelectorExpr); ok && (called.Sel.Name == "Go" || called.Sel.Name == "AfterFunc") && len(n.Args) > 0 {
			return n.Args[len(n.Args)-1]
		}
	}
	return nil
}

// recovers reports whether a function defers, on its own level, what recovers.
func recovers(started ast.Expr) bool {
	f, ok := started.(*ast.FuncLit)
	return ok && slices.ContainsFunc(f.Body.List, func(s ast.Stmt) bool {
		deferred, ok := s.(*ast.DeferStmt)
		if !ok {
			return false
		}
		switch called := deferred.Call.Fun.(type) {
		case *ast.SelectorExpr:
			return fmt.Sprint(called.X) == "recovered" && called.Sel.Name == "To" || called.Sel.Name == "contain" || called.Sel.Name == "Catch"
		case *ast.FuncLit:
			has := false
			ast.Inspect(called, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				has = has || ok && fmt.Sprint(call.Fun) == "recover"
				return true
			})
			return has
		}
		return false
	})
}
