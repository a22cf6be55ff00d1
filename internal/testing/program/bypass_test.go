package program

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/app/control"
)

// around are names by which somebody may try to reach the tool look of the capsule box.
var around = []string{
	"box__look", "BOX__LOOK", "Box__look", "peek", "PEEK", "look", "Look", "box--look", "box/look", "box.look", "box:look",
	"box__look@1.0.0", "box@1.0.0__look", " box__look", "box__look ", "box__look\u200b", "box__loo\u212a", "ｂｏｘ__look", "box__look\x00",
}

// send makes a request to /mcp, and returns the whole answer and its headers.
func (r *ruled) send(caller, body string, headers ...string) (string, http.Header) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Authorization", "Bearer "+r.tokens[caller])
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(answer), resp.Header
}

const openEra = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// callsOf returns a call for each of the names, and some whose name a reader of JSON may see as another one.
func callsOf(names []string) (all []string) {
	for i, name := range names {
		quoted, err := json.Marshal(name)
		if err != nil {
			panic(err)
		}
		all = append(all, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%s,"arguments":{}}}`, i+1, quoted))
	}
	for i, params := range []string{
		`{"name":"hello","name":"box__look"}`, `{"name":"box__look","name":"hello"}`, `{"Name":"box__look","name":"hello"}`, `{"name":"hello","NAME":"box__look"}`,
		`{"name":"bo\u0078__look"}`, `{"name":["box__look"]}`, `{"name":"box__look","_meta":{"orloj.dev/agent":"ann"}}`,
	} {
		all = append(all, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, 100+i, params))
	}
	return all
}

// SPEC-TOOLS 8.3, 8.4, 8.6: a rule for one of the names of a tool, or for its capsule, closes every way to it: each name, in
// each case, with a version, in a batch, in each era, over HTTP and stdio, by the command line with and without a running
// Orla, and by the control API; and with the whole capsule, its resources and prompts.
func TestT84NoWayAroundARule(t *testing.T) {
	t.Parallel()
	r := serveRuled(t, "# none\n", "")
	ran := filepath.Join(r.dir, "ran")
	if !r.mayCall("eve", "box__look") {
		t.Fatal("without a rule the tool is not called")
	}
	before, err := os.ReadFile(ran)
	if err != nil || string(before) != "look\n" {
		t.Fatalf("the tool has written %q, %v", before, err)
	}
	file := filepath.Join(r.dir, "orla.yaml")
	for _, blocked := range []string{"box__LOOK", "look", "Peek", "BOX"} {
		r.write("tools/rules.yaml", "apiVersion: orloj.dev/v1\nkind: AgentPolicy\nmetadata: {name: no}\nspec: {apply_mode: global, blocked_tools: ["+blocked+"]}\n")
		r.reload()
		answers := map[string]string{}
		calls := callsOf(around)
		for _, call := range calls {
			answers["alone "+call], _ = r.send("eve", call)
			answers["2026 "+call], _ = r.send("eve", call, "Mcp-Protocol-Version", "2026-07-28")
		}
		_, headers := r.send("eve", openEra)
		session := []string{"Mcp-Session-Id", headers.Get("Mcp-Session-Id"), "Mcp-Protocol-Version", "2025-03-26"}
		answers["batch"], _ = r.send("eve", "["+strings.Join(calls, ",")+"]", session...)
		answers["stdio"] = r.overStdio(file, openEra, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "["+strings.Join(calls, ",")+"]", calls[0], calls[3])
		for _, name := range []string{"box__look", "PEEK", "look", "box"} {
			for _, more := range [][]string{nil, {"--socket", "none"}} {
				s := r.orla(append([]string{"call", name, "--config", file}, more...)...)
				if s.code == 0 {
					t.Errorf("%s is blocked, and orla call %s %s succeeds: %s", blocked, name, more, s.out)
				}
				answers["orla call "+name+fmt.Sprint(more)] = s.out + s.err
			}
			raw, err := r.socketClient().Call(t.Context(), name, control.CallRequest{Arguments: json.RawMessage("{}")})
			answers["control API "+name] = fmt.Sprint(string(raw), err)
		}
		if blocked == "BOX" {
			for _, params := range [][2]string{
				{"resources/read", `{"uri":"box://one"}`},
				{"resources/read", `{"uri":"BOX://one"}`},
				{"resources/subscribe", `{"uri":"box://one"}`},
				{"resources/list", `{}`},
				{"prompts/get", `{"name":"box__ask"}`},
				{"prompts/get", `{"name":"ask"}`},
				{"prompts/get", `{"name":"BOX__ASK"}`},
				{"prompts/list", `{}`},
				{"completion/complete", `{"ref":{"type":"ref/prompt","name":"box__ask"},"argument":{"name":"a","value":""}}`},
			} {
				body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, params[0], params[1])
				for way, more := range map[string][]string{"alone": nil, "session": session} {
					answer, _ := r.send("eve", body, more...)
					answers[way+" "+body] = answer
					listed := strings.HasSuffix(params[0], "/list") && (strings.Contains(answer, "box__ask") || strings.Contains(answer, `"name":"one"`))
					completed := strings.Contains(answer, `"values":[`) && !strings.Contains(answer, `"values":[]`)
					if listed || completed || strings.Contains(answer, `"messages"`) {
						t.Errorf("%s: %s gives %s", way, body, answer)
					}
				}
			}
		}
		for way, answer := range answers {
			if answer == "" || strings.Contains(answer, "did look") || strings.Contains(answer, "secret") {
				t.Errorf("%s is blocked, and %s gives %q", blocked, way, answer)
			}
		}
	}
	if after, err := os.ReadFile(ran); err != nil || !slices.Equal(after, before) {
		t.Errorf("the tool ran: %q, %v", after, err)
	}
	r.write("tools/rules.yaml", "# none\n")
	r.mustOrla("reload", "--accept-no-rules", "--config", file)
	if !r.mayCall("eve", "box__look") {
		t.Error("after the rules the tool is not called")
	}
}

// overStdio sends lines to an Orla on stdio with the same configuration, and returns all that it writes until it ends.
func (r *ruled) overStdio(file string, lines ...string) string {
	r.t.Helper()
	cmd := exec.Command(orlaBinary(r.t), "--stdio", "--config", file, "--socket", filepath.Join(r.t.TempDir(), "s"))
	cmd.Dir, cmd.Env = r.t.TempDir(), r.cmd.Env
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatal(err)
	}
	return string(out)
}

// socketClient asks Orla by its control socket.
func (r *ruled) socketClient() *control.Client { return control.NewClient(r.status().Socket) }
