package wasm_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	kind "github.com/orla-project/orla/internal/kind/wasm"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/observe/tail"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/wasm"
	"github.com/orla-project/orla/manifest"
)

const key = "s3cret-s3cret-0123"

// saying is a module that answers with what it is given between two texts, or with
// before alone where after is "".
func saying(before, after string) []byte {
	vector := func(items ...[]byte) []byte {
		return append(binary.AppendUvarint(nil, uint64(len(items))), slices.Concat(items...)...)
	}
	sized := func(b []byte) []byte { return append(binary.AppendUvarint(nil, uint64(len(b))), b...) }
	signed := func(n int64) []byte {
		var out []byte
		for ; n >= 64; n >>= 7 {
			out = append(out, byte(n&0x7f)|0x80)
		}
		return append(out, byte(n))
	}
	const at = 16
	given := int64(at + len(before)) // where the input is put
	answer := append([]byte{0x42}, signed(at<<32|int64(len(before)))...)
	var body []byte
	if after != "" {
		for i := range len(after) { // behind the input
			body = append(body, 0x20, 0, 0x20, 1, 0x6a, 0x41)
			body = append(body, signed(int64(after[i]))...)
			body = append(append(body, 0x3a, 0), signed(int64(i))...)
		}
		answer = append(answer, 0x20, 1, 0xad, 0x7c, 0x42) // and the input's length
		answer = append(append(answer, signed(int64(len(after)))...), 0x7c)
	}
	body = slices.Concat([]byte{0}, body, answer, []byte{0x0b})
	allocate := slices.Concat([]byte{0, 0x41}, signed(given), []byte{0x0b})
	out := []byte("\x00asm\x01\x00\x00\x00")
	for _, s := range []struct {
		id      byte
		content []byte
	}{
		{1, vector([]byte{0x60, 1, 0x7f, 1, 0x7f}, []byte{0x60, 2, 0x7f, 0x7f, 1, 0x7e})},
		{3, []byte{2, 0, 1}},
		{5, []byte{1, 0, 4}},
		{7, vector(append(sized([]byte("memory")), 2, 0), append(sized([]byte("allocate")), 0, 0), append(sized([]byte("run")), 0, 1))},
		{10, vector(sized(allocate), sized(body))},
		{11, vector(slices.Concat([]byte{0, 0x41}, signed(at), []byte{0x0b}, sized([]byte(before))))},
	} {
		out = append(append(out, s.id), sized(s.content)...)
	}
	return out
}

// echoing is a module whose output is the request that it is given.
func echoing() []byte { return saying(`{"contract_version":"v1","status":"ok","output":`, "}") }

// tool describes a tool of a module in a file.
func tool(t *testing.T, module []byte) manifest.Tool {
	t.Helper()
	path := filepath.Join(t.TempDir(), "module.wasm")
	if err := os.WriteFile(path, module, 0o600); err != nil {
		t.Fatal(err)
	}
	return manifest.Tool{
		Name: "wasm-echo", Kind: manifest.Wasm, InputSchema: json.RawMessage(`{"type":"object"}`), Run: manifest.Run{Timeout: 5_000_000_000},
		Resource: &manifest.Resource{
			Namespace: "team-a", Risk: manifest.RiskLow, Capabilities: []string{"wasm.echo.invoke"},
			WASM: &manifest.WASM{Module: path, Entrypoint: "run", MaxMemory: 16 << 20, Fuel: 100000},
		},
	}
}

var shared = wasm.NewRuntime(wasm.Options{})

func build(t *testing.T, of manifest.Tool, change ...func(*kind.Options)) *kind.Tool {
	t.Helper()
	secrets := secret.New(secret.Options{})
	secrets.Set([]secret.Secret{{Namespace: "team-a", Name: "key", Data: map[string]secret.Value{"value": secret.NewValue(key)}}})
	opts := kind.Options{Runtime: shared, Auth: auth.Options{Secrets: secrets}, Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&opts)
	}
	built, err := kind.New(of, opts)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

func call(t *testing.T, of *kind.Tool, args string) (peer.Answer, error) {
	t.Helper()
	ctx := callid.With(t.Context(), "K5XQ2WZ7MB3TNDY6RHCJVFPA4E")
	return of.Call(ctx, peer.Call{Args: json.RawMessage(args), Caller: "ci", Task: "weekly", Attempt: 2})
}

// text is the only block of an answer that must be there.
func text(t *testing.T, a peer.Answer, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return a.Result.Content[0].(*mcp.TextContent).Text
}

func fails(t *testing.T, err error, code fault.Code, retryable bool, words ...string) {
	t.Helper()
	f := fault.From(err)
	if f == nil || f.Code != code || f.Retryable() != retryable {
		t.Errorf("got the error %v; want %s, retryable %v", err, code, retryable)
		return
	}
	for _, word := range words {
		if !strings.Contains(f.Reason, word) {
			t.Errorf("got the reason %q; want it to say %q", f.Reason, word)
		}
	}
}

// SPEC-TOOLS 3.7: what a module is told.
func TestT37TheRequest(t *testing.T) {
	of := tool(t, echoing())
	a, err := call(t, build(t, of), ` {"n": 12345678901234567890.10, "s": "<a&b>"} `)
	const want = `{"contract_version":"v1","request_id":"K5XQ2WZ7MB3TNDY6RHCJVFPA4E","namespace":"team-a","tool":"wasm-echo",` +
		`"input":"{\"n\": 12345678901234567890.10, \"s\": \"<a&b>\"}","capabilities":["wasm.echo.invoke"],"risk_level":"low",` +
		`"runtime":{"isolation_mode":"wasm","timeout":"5s","max_memory_bytes":16777216,"fuel":100000},"auth":{"headers":{}},` +
		`"context":{"task":"weekly","agent":"ci","attempt":2,"namespace":"team-a"}}`
	if got := text(t, a, err); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if raw, ok := a.Result.StructuredContent.(json.RawMessage); !ok || string(raw) != want {
		t.Errorf("structured content: %v", a.Result.StructuredContent)
	}
	if used, ok := a.Result.Meta[kind.MetaFuelUsed].(int64); !ok || used < 1 || a.Result.Meta[kind.MetaMemoryPeak] != int64(4*65536) {
		t.Errorf("_meta = %v", a.Result.Meta)
	}
	of.Resource.Capabilities = nil
	a, err = call(t, build(t, of), "")
	if got := text(t, a, err); !strings.Contains(got, `"input":"{}","capabilities":[],`) {
		t.Errorf("without arguments: %s", got)
	}
}

// SPEC-TOOLS 3.7, 5.3: auth.headers are the credentials, afresh at each attempt, and
// they are in nothing that comes back.
func TestT37Credentials(t *testing.T) {
	of := tool(t, echoing())
	of.Resource.Auth = manifest.Auth{Profile: manifest.AuthBearer, Secret: secret.Ref{Namespace: "team-a", Name: "key", Key: "value"}}
	secrets := secret.New(secret.Options{})
	set := func(value string) {
		secrets.Set([]secret.Secret{{Namespace: "team-a", Name: "key", Data: map[string]secret.Value{"value": secret.NewValue(value)}}})
	}
	withKey := func(o *kind.Options) { o.Auth.Secrets = secrets }
	built := build(t, of, withKey)
	for _, value := range []string{key, "another-s3cret"} {
		set(value)
		a, err := call(t, built, "")
		if got := text(t, a, err); !strings.Contains(got, `"auth":{"headers":{"Authorization":"Bearer [redacted]"}}`) {
			t.Errorf("got %s", got)
		}
	}
	// It was told the secret: of 14 bytes, and not of 10.
	for value, fits := range map[string]bool{"0123456789abcd": true, "0123456789": false} {
		set(value)
		counts := of
		counts.Run.MaxOutput = int64(len(`{"contract_version":"v1","status":"ok","output":}`) + len(fmt.Sprintf(
			`{"contract_version":"v1","request_id":"K5XQ2WZ7MB3TNDY6RHCJVFPA4E","namespace":"team-a","tool":"wasm-echo",`+
				`"input":"{}","capabilities":["wasm.echo.invoke"],"risk_level":"low",`+
				`"runtime":{"isolation_mode":"wasm","timeout":"5s","max_memory_bytes":16777216,"fuel":100000},"auth":{"headers":{"Authorization":"Bearer %s"}},`+
				`"context":{"task":"weekly","agent":"ci","attempt":2,"namespace":"team-a"}}`, "0123456789")))
		_, err := call(t, build(t, counts, withKey), "")
		if tooMuch := err != nil; tooMuch != fits {
			t.Errorf("%s: error = %v", value, err)
		}
	}
	set(key)
	for name, module := range map[string][]byte{
		"a violation": saying(`{"contract_version":"`+key+`"}`, ""),
		"its reason":  saying(`{"contract_version":"v1","status":"error","error":{"code":"broken","message":"`+key+`"}}`, ""),
		"its details": saying(`{"contract_version":"v1","status":"error","error":{"code":"broken","message":"m","details":"`+key+`"}}`, ""),
	} {
		broken := tool(t, module)
		broken.Resource.Auth = of.Resource.Auth
		a, err := call(t, build(t, broken, withKey), "")
		raw, failed := json.Marshal(a.Result)
		if failed != nil {
			t.Fatal(failed)
		}
		raw = append(raw, a.Raw...)
		if err == nil || strings.Contains(err.Error()+string(raw), key) || !strings.Contains(err.Error()+string(raw), "[redacted]") {
			t.Errorf("%s: %v, %s", name, err, raw)
		}
	}
	missing := of
	missing.Resource.Auth.Secret.Name = "nobody"
	_, err := call(t, build(t, missing, withKey), "")
	fails(t, err, fault.SecretResolutionFailed, false)
}

// SPEC-TOOLS 3.7, 2.3: what a module answers.
func TestT37TheAnswer(t *testing.T) {
	for answer, want := range map[string]string{
		`{"contract_version":"v1","status":"ok","output":"hello"}`:                 "hello",
		` {"contract_version":"v1","status":"ok","output":[1, 2.50],"x":1}` + "\n": "[1, 2.50]",
		`{"contract_version":"v1","status":"ok"}`:                                  "",
		`{"contract_version":"v1","status":"ok","output":{"a": 1.0}}`:              `{"a": 1.0}`,
	} {
		a, err := call(t, build(t, tool(t, saying(answer, ""))), "")
		if got := text(t, a, err); got != want {
			t.Errorf("%s: got %q", answer, got)
		}
	}
	const ok = `{"contract_version":"v1","status":"ok","output":"hello"}`
	for answer, words := range map[string][]string{
		"":                                 {"it is empty"},
		"hello":                            {"it is not JSON", `"hello"`},
		ok + ok:                            {"follows its first JSON value"},
		ok + "{}":                          {"follows its first JSON value"},
		ok + " x":                          {"follows its first JSON value"},
		"[" + ok + "]":                     {"not a JSON object"},
		"\xff" + ok:                        {"UTF-8"},
		`{"status":"ok","output":"hello"}`: {"contract_version"},
		`{"contract_version":"v2","status":"ok"}`:                                       {"contract_version"},
		`{"contract_version":1,"status":"ok"}`:                                          {"contract_version"},
		`{"contract_version":"v1"}`:                                                     {"no status"},
		`{"contract_version":"v1","status":"success"}`:                                  {"its status is not ok, error or denied"},
		`{"contract_version":"v1","status":"ok","status":"error"}`:                      {"twice"},
		`{"contract_version":"v1","status":"error"}`:                                    {"no error"},
		`{"contract_version":"v1","status":"error","error":{"message":"m"}}`:            {"no tool_code"},
		`{"contract_version":"v1","status":"error","error":{"code":"a b"}}`:             {"letters"},
		`{"contract_version":"v1","status":"error","error":{"code":"a","message":1}}`:   {"message is not a string"},
		`{"contract_version":"v1","status":"error","error":{"code":"a","retryable":1}}`: {"retryable"},
	} {
		_, err := call(t, build(t, tool(t, saying(answer, ""))), "")
		fails(t, err, fault.RuntimePolicyInvalid, false, append(words, "violates the tool contract")...)
	}
	for answer, want := range map[string]struct {
		code      fault.Code
		retryable bool
		reason    string
		details   string
	}{
		`"error","error":{"code":"rate_limited","reason":"quota","message":"come back later","retryable":true,"details":{"limit":5}}`: {"rate_limited", true, "quota: come back later", `{"limit":5}`},
		`"error","error":{"code":"my_own","message":"no","details":"so"}`:                                                             {"my_own", false, "no", "so"},
		`"error","error":{"code":"timeout","reason":"late","retryable":false}`:                                                        {"timeout", false, "late", ""},
		`"error","error":{"code":"a","reason":"same","message":"same"}`:                                                               {"a", false, "same", ""},
		`"denied"`: {fault.PermissionDenied, false, "wasm-echo failed, and gave no reason", ""},
		`"denied","error":{"code":"","message":"not you"}`: {fault.PermissionDenied, false, "not you", ""},
	} {
		a, err := call(t, build(t, tool(t, saying(`{"contract_version":"v1","status":`+answer+`}`, ""))), "")
		fails(t, err, want.code, want.retryable)
		if f := fault.From(err); f.Reason != want.reason {
			t.Errorf("%s: reason %q", answer, f.Reason)
		}
		switch {
		case a.Result == nil || a.Result.Meta[kind.MetaFuelUsed] == nil:
			t.Errorf("%s: without what it took: %+v", answer, a.Result)
		case want.details == "" && len(a.Result.Content) > 0, want.details != "" && text(t, a, nil) != want.details:
			t.Errorf("%s: content %+v", answer, a.Result.Content)
		}
	}
}

// SPEC-TOOLS 1.2, 2.3: an output schema is enforced, and so is max_output.
func TestT37WhatIsPromised(t *testing.T) {
	of := tool(t, saying(`{"contract_version":"v1","status":"ok","output":{"n":1}}`, ""))
	of.OutputSchema = json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
	a, err := call(t, build(t, of), "")
	text(t, a, err)
	of.OutputSchema = json.RawMessage(`{"type":"object","required":["m"]}`)
	_, err = call(t, build(t, of), "")
	fails(t, err, fault.ExecutionFailed, false, "output schema")
	of.OutputSchema, of.Run.MaxOutput = nil, 10
	_, err = call(t, build(t, of), "")
	fails(t, err, fault.ExecutionFailed, false, "more than 10 bytes")
}

// A module that was built anew is the next call's; half of one is told, and mended.
func TestT37ALocalModuleIsLive(t *testing.T) {
	saysOK := func(output string) []byte {
		return saying(`{"contract_version":"v1","status":"ok","output":"`+output+`"}`, "")
	}
	of := tool(t, saysOK("one"))
	path := of.Resource.WASM.Module
	built := build(t, of)
	write := func(module []byte) {
		t.Helper()
		if err := os.WriteFile(path, module, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := func(output string) {
		t.Helper()
		a, err := call(t, built, "")
		if got := text(t, a, err); got != output {
			t.Errorf("got %q; want %q", got, output)
		}
	}
	want("one")
	write(saysOK("another"))
	want("another")
	write(saysOK("third")[:40])
	_, err := call(t, built, "")
	fails(t, err, fault.RuntimePolicyInvalid, false, "cannot be run")
	write(saysOK("third"))
	want("third")
	other := path + ".new"
	if err := os.WriteFile(other, saysOK("fourth"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	want("fourth")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err = call(t, built, "")
	fails(t, err, fault.RuntimePolicyInvalid, false, "its file is gone")
	if f := fault.From(err); !f.Unsent || strings.Contains(f.Reason, path) {
		t.Errorf("got %+v", f)
	}
}

// SPEC S2: a file is not read before there is room for it beside the modules that wait to be
// compiled.
func TestS2AFileWaitsForRoom(t *testing.T) {
	r := wasm.NewRuntime(wasm.Options{})
	t.Cleanup(r.Close)
	of := tool(t, slices.Concat(echoing(), []byte{0, 0x82, 0x80, 0x40, 1, 'x'}, make([]byte, 1<<20))) // a custom section
	over := errors.New("the test is over")
	holding, leave := context.WithCancelCause(t.Context())
	var loads sync.WaitGroup
	for _, origin := range []string{"first", "second"} { // which goes beyond the limit
		held := make(chan error, 1)
		loads.Go(func() {
			_, _ = r.Load(holding, turns.Owner{}, turns.Owner{Session: origin}, func(ctx context.Context) ([]byte, error) {
				held <- turns.AccountOf(ctx).Need(ctx, 1<<30)
				<-ctx.Done()
				return nil, over
			}, wasm.Limits{})
		})
		if err := <-held; err != nil {
			t.Error(err)
		}
	}
	built := build(t, of, func(o *kind.Options) { o.Runtime = r })
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, fault.New(fault.Timeout, "it waited"))
	defer cancel()
	_, err := built.Call(ctx, peer.Call{Args: json.RawMessage("{}")})
	fails(t, err, fault.Timeout, true, "it waited")
	if f := fault.From(err); f != nil && !f.Unsent {
		t.Error("it counts as sent")
	}
	leave(over)
	loads.Wait()
	_, err = built.Call(t.Context(), peer.Call{Args: json.RawMessage("{}")})
	if err != nil {
		t.Error(err)
	}
}

// SPEC-TOOLS 3.7: a file that is too large for a module is told from its size.
func TestT37AHugeFileIsNotRead(t *testing.T) {
	of := tool(t, echoing())
	if err := os.Truncate(of.Resource.WASM.Module, 1<<40); err != nil {
		t.Skip(err) // where files cannot be so large
	}
	_, err := call(t, build(t, of), "")
	fails(t, err, fault.RuntimePolicyInvalid, false, "it has 1099511627776 bytes; a module may have 67108864")
}

// SPEC-TOOLS 1.2: a digest is checked, of a file too.
func TestT37TheDigestOfAFile(t *testing.T) {
	module := echoing()
	of := tool(t, module)
	of.Resource.WASM.Digest = fmt.Sprintf("sha256:%x", sha256.Sum256(module))
	a, err := call(t, build(t, of), "")
	text(t, a, err)
	of.Resource.WASM.Digest = "sha256:" + strings.Repeat("0", 64)
	_, err = call(t, build(t, of), "")
	fails(t, err, fault.RuntimePolicyInvalid, false, "digest")
}

// SPEC-TOOLS 3.7: a module that is far away is fetched at the first call, once for
// all that wait, and again only where nothing says that it is the same.
func TestT37AModuleIsFetchedOnce(t *testing.T) {
	var mu sync.Mutex
	var fetched []string
	down := true
	fetch := func(_ context.Context, place, digest string, pull secret.Ref) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		fetched = append(fetched, place+" "+digest+" "+pull.Name)
		if down {
			f := fault.New(fault.ExecutionFailed, "the registry is down")
			f.Retry = new(true)
			return nil, f
		}
		return echoing(), nil
	}
	of := tool(t, nil)
	*of.Resource.WASM = manifest.WASM{Module: "oci://a/b:1", Digest: "sha256:1", Entrypoint: "run", MaxMemory: 16 << 20, Fuel: 1000, PullSecret: secret.Ref{Name: "pull"}}
	built := build(t, of, func(o *kind.Options) { o.Fetch = fetch })
	_, err := call(t, built, "")
	fails(t, err, fault.ExecutionFailed, true, "down")
	if !fault.From(err).Unsent {
		t.Error("the call was sent")
	}
	down = false
	var calling sync.WaitGroup
	for range 20 {
		calling.Go(func() {
			a, err := call(t, built, "")
			if err != nil || a.Result == nil {
				t.Errorf("got %v", err)
			}
		})
	}
	calling.Wait()
	if len(fetched) != 2 || fetched[1] != "oci://a/b:1 sha256:1 pull" {
		t.Errorf("fetched %q", fetched)
	}
}

// A far module that is none is looked at once, and not compiled at each call.
func TestT37AFarModuleThatIsNoneIsFetchedOnce(t *testing.T) {
	fetched := 0
	fetch := func(ctx context.Context, _, _ string, _ secret.Ref) ([]byte, error) {
		fetched++
		return []byte("<html>"), ctx.Err()
	}
	of := tool(t, nil)
	*of.Resource.WASM = manifest.WASM{Module: "https://a/b", Entrypoint: "run", MaxMemory: 16 << 20, Fuel: 1000}
	built := build(t, of, func(o *kind.Options) { o.Fetch = fetch })
	for range 2 {
		_, err := call(t, built, "")
		fails(t, err, fault.RuntimePolicyInvalid, false)
	}
	if fetched != 1 {
		t.Errorf("fetched %d times", fetched)
	}
}

// A module that had to make room is found again.
func TestT37AModuleThatMadeRoomComesBack(t *testing.T) {
	r := wasm.NewRuntime(wasm.Options{MaxCached: 1})
	defer r.Close()
	tight := func(o *kind.Options) { o.Runtime = r }
	one, two := build(t, tool(t, echoing()), tight), build(t, tool(t, saying(`{"contract_version":"v1","status":"ok"}`, "")), tight)
	for range 3 {
		for _, built := range []*kind.Tool{one, two} {
			a, err := call(t, built, "")
			text(t, a, err)
		}
	}
}

// SPEC-TOOLS 3.7: what the manifest says reaches the module.
func TestT37TheManifestsLimitsHold(t *testing.T) {
	of := tool(t, echoing())
	of.Resource.WASM.MaxMemory = 1 << 16
	_, err := call(t, build(t, of), "")
	fails(t, err, fault.RuntimePolicyInvalid, false, "4 pages")
	of.Resource.WASM.MaxMemory, of.Resource.WASM.Entrypoint = 1<<20, "nothing"
	_, err = call(t, build(t, of), "")
	fails(t, err, fault.RuntimePolicyInvalid, false, `"nothing"`, `"allocate", "run"`)
}

// What a module writes to stderr is in the log, without secrets, as with a capsule.
func TestT37StderrIsLogged(t *testing.T) {
	var log bytes.Buffer
	of := tool(t, nil)
	*of.Resource.WASM = manifest.WASM{Module: of.Resource.WASM.Module, Entrypoint: "run", MaxMemory: 1 << 20, Fuel: 1000, WASI: true}
	// fd_write(2, …) of "to the log\r\n\nit is s3cret-s3cret-0123\n", and no answer.
	said := "to the log\r\n\nit is " + key + "\n"
	if err := os.WriteFile(of.Resource.WASM.Module, writing(said), 0o600); err != nil {
		t.Fatal(err)
	}
	of.Resource.Auth = manifest.Auth{Profile: manifest.AuthBearer, Secret: secret.Ref{Namespace: "team-a", Name: "key", Key: "value"}}
	_, err := call(t, build(t, of, func(o *kind.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) }), "")
	fails(t, err, fault.RuntimePolicyInvalid, false, "it is empty")
	for _, want := range []string{`text="to the log"`, `text="it is [redacted]"`, "tool=wasm-echo", "stream=stderr", "call_id=K5XQ2WZ7MB3TNDY6RHCJVFPA4E"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, &log)
		}
	}
	if strings.Contains(log.String(), key) || strings.Count(log.String(), "\n") != 2 {
		t.Errorf("the log:\n%s", &log)
	}
}

// SPEC S2, N2: what a module writes to stderr fills the log no faster than a capsule's.
func TestS2StderrIsLoggedWithinAQuota(t *testing.T) {
	var log bytes.Buffer
	of := tool(t, writing(strings.Repeat("x\n", 1<<15)))
	*of.Resource.WASM = manifest.WASM{Module: of.Resource.WASM.Module, Entrypoint: "run", MaxMemory: 1 << 20, Fuel: 1000, WASI: true}
	built := build(t, of, func(o *kind.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 3 {
		_, err := call(t, built, "")
		fails(t, err, fault.RuntimePolicyInvalid, false, "it is empty")
	}
	if lines := strings.Count(log.String(), "\n"); lines > 2*tail.QuotaLines { // of two windows
		t.Errorf("%d lines are in the log", lines)
	}
}

// writing is a module that writes a text to stderr.
func writing(said string) []byte {
	data := append(binary.LittleEndian.AppendUint32([]byte{16, 0, 0, 0}, uint32(len(said))), 0, 0, 0, 0, 0, 0, 0, 0)
	data = append(data, said...)
	segment := slices.Concat([]byte{1, 0, 0x41, 0, 0x0b}, binary.AppendUvarint(nil, uint64(len(data))), data)
	return slices.Concat([]byte("\x00asm\x01\x00\x00\x00"),
		[]byte{1, 12, 2, 0x60, 0, 0, 0x60, 4, 0x7f, 0x7f, 0x7f, 0x7f, 1, 0x7f},
		[]byte{2, 35, 1, 22}, []byte("wasi_snapshot_preview1"), []byte{8}, []byte("fd_write"), []byte{0, 1},
		[]byte{3, 2, 1, 0, 5, 3, 1, 0, 2},
		[]byte{7, 16, 2, 6}, []byte("memory"), []byte{2, 0, 3}, []byte("run"), []byte{0, 1},
		[]byte{10, 15, 1, 13, 0, 0x41, 2, 0x41, 0, 0x41, 1, 0x41, 8, 0x10, 0, 0x1a, 0x0b},
		[]byte{11}, binary.AppendUvarint(nil, uint64(len(segment))), segment)
}
