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
	place = "it looks at an address that net has parsed, and at nothing else"
	alone = "it is a command of an operator's, which ends with it"
)

// uncontained are the goroutines, the timers' functions and the callbacks without a
// recover, by the function that starts them or names them: how many there are, and why.
var uncontained = map[string]struct {
	n   int
	why string
}{
	"capsule.Capsule.Serve":                            {2, waits},
	"capsule/files.Watcher.Serve":                      {1, own},
	"capsule/stdio.Connection.Finish":                  {1, own},
	"capsule/handshake.Handshake.negotiate":            {1, waits},
	"internal/app/cli.operateAll":                      {1, alone},
	"internal/app/cli/top.program.loop":                {1, alone},
	"internal/app/cli/top.program.obey":                {2, alone},
	"internal/app/cli/top.program.run":                 {2, alone},
	"internal/observe/logging.newLogWriter":            {1, moves},
	"internal/app/cli/logins.command.run":              {1, alone},
	"internal/app/cli/packaged.command.line":           {1, alone},
	"internal/app/terminal.Hidden":                     {1, alone},
	"internal/app/cli/logins.OpenBrowser":              {1, alone},
	"internal/app/listen.New":                          {2, own},
	"internal/observe/logging.output.writeSoon":        {1, moves},
	"internal/mcp/rpc.Conn.leave":                      {1, own},
	"internal/mcp/rpc.Conn.silent":                     {1, own},
	"internal/app/wiring.LetGarbageGather":             {1, own},
	"internal/app/wiring.Parts.KeepAlive":              {1, below},
	"internal/app/wiring.offered.answer":               {1, own},
	"internal/app/daemon.readiness.Serve":              {1, own},
	"internal/app/daemon.server.Serve":                 {1, own},
	"internal/app/access.Issued.run":                   {1, waits},
	"internal/app/daemon.server.followSignals":         {1, waits},
	"internal/app/daemon.newSignals":                   {1, own},
	"internal/app/daemon.signals.untilEnd":             {1, waits},
	"internal/app/daemon.server.startTree":             {1, below},
	"internal/app/daemon.server.runStdio":              {1, below},
	"internal/app/sources.Folders.serve":               {1, waits},
	"internal/app/listen.Server.serve":                 {1, below},
	"internal/console.Console.serveAPI":                {1, own},
	"internal/app/control.NewClient":                   {1, own},
	"internal/app/control.Server.Serve":                {2, own},
	"internal/app/control/unixsocket.listen":           {1, own},
	"internal/app/control.presence.move":               {1, below},
	"internal/call/rejudge.wait.judge":                 {1, own},
	"internal/call/pace.Await":                         {1, waits},
	"internal/kind/webhook.wait.endSoonLocked":         {1, waits},
	"internal/cluster/kubeapi.New":                     {1, own},
	"internal/cluster/kubeapi.tlsOf":                   {2, own},
	"internal/cluster/replicas.New":                    {1, own},
	"internal/cluster/replicas.Replicas.Listen":        {3, below},
	"internal/cluster/replicas.Replicas.keep":          {1, own},
	"internal/service/outbound.sendBy":                 {1, own},
	"internal/service/outbound.paced.closeUnlessTaken": {1, own},
	"internal/service/outbound.paced.watch":            {1, own},
	"internal/launch/trees.Tagger.Begin":               {1, own},
	"internal/app/daemon.server.leave":                 {1, waits},
	"internal/app/wiring.Parts.EndRest":                {1, waits},
	"internal/launch/mainthread.Run":                   {1, below},
	"internal/launch.Local.Adopt":                      {1, own},
	"internal/launch.Local.Start":                      {1, own},
	"internal/packages/origin.objects.read":            {1, alone},
	"internal/file/diskroom.Engine.Pull":               {1, alone},
	"internal/packages/origin.watched":                 {1, alone},
	"internal/launch.Local.run":                        {5, own},
	"internal/launch.Local.start":                      {1, moves},
	"internal/launch.LocalProcess.Finish":              {1, own},
	"internal/launch.LocalProcess.Stop":                {1, own},
	"internal/launch.NewLocal":                         {1, own},
	"internal/launch/guard.Guard.runOnce":              {1, waits},
	"internal/launch/guard.Guard.awaitEnd":             {1, waits},
	"internal/launch.newReaper":                        {1, own},
	"internal/launch.reserveThreads":                   {1, waits},
	"internal/launch/guard.Start":                      {1, own},
	"internal/launch/container.Engine.bounded":         {1, waits},
	"internal/launch/container.Engine.run":             {2, moves},
	"internal/launch/container.Launcher.Start":         {1, below},
	"internal/launch/container.process.untilEnd":       {1, waits},
	"internal/launch/container.relay.start":            {1, moves},
	"internal/launch/kube.Cluster.Close":               {1, own},
	"internal/launch/kube.bounded.RoundTrip":           {1, own},
	"internal/launch/kube.launcher.start":              {1, below},
	"internal/launch/kube.process.abandon":             {1, below},
	"internal/launch/kube.process.readLog":             {2, waits},
	"internal/launch/sandbox.process.await":            {1, own},
	"internal/mcp/linerpc.writer.Post":                 {1, moves},
	"internal/mcp/linerpc.writer.writeNow":             {1, moves},
	"internal/service/outbound.Client.send":            {1, place},
	"internal/service/outbound.Client.transport":       {2, place},
	"internal/service/login.Login":                     {1, below},
	"internal/service/login.receiver.serve":            {1, below},
	"internal/service/remote.Connect":                  {1, below},
	"internal/service/remote.session.live":             {1, waits},
	"internal/app/arguments.Keeper.endLocked":          {1, own},
	"internal/observe/audit.Open":                      {1, own},
	"internal/observe/tail.Quota.Allow":                {1, own},
	"internal/observe/telemetry.exporter.send":         {1, waits},
	"internal/call/turns.Queue.armLocked":              {1, own},
	"internal/call/turns.Queue.keepLocked":             {1, own},
	"internal/call/turns.Room.take":                    {1, waits},
	"internal/wasm.Runtime.find":                       {1, below},
	"internal/file/watch.Hub.join":                     {2, below},
	"mcpbridge.audience.listChanged":                   {1, own},
	"internal/call/turns.Begin":                        {1, own},
	"internal/call/turns.AfterIn":                      {1, own},
	"mcpbridge/transport/httpfront.access.during":      {1, own},
	"mcpbridge/transport/httpfront.Front.waitTurn":     {1, own},
	"internal/call/turns.Door.Do":                      {1, own},
	"mcpbridge/transport/httpfront.Front.worked":       {1, own},
	"mcpbridge/transport/stdio.workers.run":            {1, below},
	"mcpbridge/conversation.Table.park":                {1, own},
	"mcpbridge/client.Notifier.add":                    {1, own},
	"mcpbridge/client.Joined":                          {1, own},
	"mcpbridge/results.Store.expire":                   {1, own},
	"mcpbridge/results.Store.keep":                     {1, own},
	"mcpbridge/transport/held.Stream.End":              {1, own},
	"mcpbridge/transport/httpfront.response.lookAgain": {1, own},
	"mcpbridge/transport/stdio.writeLines":             {1, moves},
	"supervisor.Supervisor.Alive":                      {1, own},
}

// helpers are programs and packages that are not part of orla.
var helpers = []string{"internal/testing/bench", "internal/testing/chaos", "internal/testing/soak", "internal/testing/containertest", "internal/testing/capsuletest", "internal/testing/issuer", "internal/testing/needs", "internal/testing/costtest", "internal/testing/faultproxy", "internal/testing/kubetest", "internal/testing/scale", "examples", "scripts", "tools", "testdata", "docs", "deploy"}

// last are the functions that must recover, since what calls them is a goroutine that
// does not: a library's own, or one of those above.
var last = []string{
	"mcpbridge/transport/stdio.Conn.take",
	"internal/observe/telemetry.exporter.send", // OpenTelemetry's SDK
	"internal/launch/container.process.howItEnded",
	"internal/launch/container.process.removed",
	"internal/launch/kube.process.awaitEnd",
	"internal/service/remote.session.leave",
	"internal/wasm.Runtime.compileInTurn",
	"internal/file/watch.Hub.passOrLose",
}

// callbacks are the fields with functions that net, net/http and crypto/tls call in
// goroutines of their own. Only handlers are recovered there.
var callbacks = []string{
	"BaseContext", "ConnContext", "ConnState", "Control", "ControlContext", "Dial", "DialContext", "DialTLS", "DialTLSContext",
	"GetCertificate", "GetClientCertificate", "GetConfigForClient", "GotConn", "VerifyConnection", "VerifyPeerCertificate",
}

// SPEC F2, N2: a panic in a goroutine ends the process, so each goroutine recovers, or
// it stands above with the reason why it need not.
func TestGoroutinesRecover(t *testing.T) {
	files := product(t)
	safe := recovering(files)
	found := map[string]int{}
	for file, parsed := range files {
		for _, decl := range parsed.Decls {
			where := path.Dir(file) + "." + nameOf(decl)
			ast.Inspect(decl, func(n ast.Node) bool {
				if started := startedBy(n); started != nil && !recovers(started, safe[path.Dir(file)]) {
					found[where]++
				}
				return true
			})
		}
	}
	for _, where := range last {
		if dir, name, _ := strings.Cut(where, "."); !safe[dir][name] {
			t.Errorf("%s is what has to recover, and does not, or is not there", where)
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

// nameOf is the name of a function, with its type if it is a method, or of the first
// of the variables that are declared.
func nameOf(decl ast.Decl) string {
	f, ok := decl.(*ast.FuncDecl)
	if !ok {
		group, _ := decl.(*ast.GenDecl)
		for _, spec := range group.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok {
				return v.Names[0].Name
			}
		}
		return group.Tok.String()
	}
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

// recovering are the functions that recover by themselves, by their folders: by their
// names as nameOf has them, and without a type those of which all of that name do.
func recovering(files map[string]*ast.File) map[string]map[string]bool {
	safe := map[string]map[string]bool{}
	for file, parsed := range files {
		dir := path.Dir(file)
		if safe[dir] == nil {
			safe[dir] = map[string]bool{}
		}
		for _, decl := range parsed.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				does, all := defersRecover(f.Body), "*."+f.Name.Name
				before, known := safe[dir][all]
				safe[dir][nameOf(f)], safe[dir][all] = does, does && (before || !known)
			}
		}
	}
	return safe
}

// startedBy is the function that a node starts in a goroutine: by go, by the Go of a
// sync.WaitGroup, by a timer, or as one of the callbacks. It is nil if it starts none.
func startedBy(n ast.Node) ast.Expr {
	switch n := n.(type) {
	case *ast.GoStmt:
		return n.Call.Fun
	case *ast.CallExpr:
		if called, ok := n.Fun.(*ast.SelectorExpr); ok && (called.Sel.Name == "Go" || called.Sel.Name == "AfterFunc") && len(n.Args) > 0 {
			return n.Args[len(n.Args)-1]
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && slices.Contains(callbacks, key.Name) {
			return n.Value
		}
	case *ast.AssignStmt:
		if to, ok := n.Lhs[0].(*ast.SelectorExpr); ok && slices.Contains(callbacks, to.Sel.Name) {
			return n.Rhs[0]
		}
	}
	return nil
}

// recovers reports whether a function that is started recovers: by itself, or since it is
// one of its package that does. safe are these.
func recovers(started ast.Expr, safe map[string]bool) bool {
	switch f := started.(type) {
	case *ast.FuncLit:
		return defersRecover(f.Body)
	case *ast.SelectorExpr: // a method, whose type is not known here
		return safe["*."+f.Sel.Name]
	case *ast.Ident:
		return safe[f.Name]
	}
	return false
}

// defersRecover reports whether a function defers, on its own level and before it does
// anything, what recovers.
func defersRecover(body *ast.BlockStmt) bool {
	begun := slices.IndexFunc(body.List, func(s ast.Stmt) bool {
		switch s := s.(type) {
		case *ast.DeferStmt, *ast.DeclStmt:
			return false
		case *ast.AssignStmt: // of what is there
			return slices.ContainsFunc(s.Rhs, func(e ast.Expr) bool {
				_, selects := e.(*ast.SelectorExpr)
				_, names := e.(*ast.Ident)
				return !selects && !names
			})
		}
		return true
	})
	if begun < 0 {
		begun = len(body.List)
	}
	return slices.ContainsFunc(body.List[:begun], func(s ast.Stmt) bool {
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
