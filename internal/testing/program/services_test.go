package program

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC-TOOLS 5.1, 5.4: SIGHUP changes the folder of secrets and the addresses
// that may be reached while Orla serves; a value that is none changes nothing.
func TestSIGHUPChangesSecretsAndAddresses(t *testing.T) {
	t.Parallel()
	var shown atomic.Value
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown.Store(r.Header.Get("Authorization"))
		_, _ = fmt.Fprint(w, "done")
	}))
	t.Cleanup(service.Close)
	dir := t.TempDir()
	tools := filepath.Join(dir, "tools")
	testkit.WriteTool(t, tools, "api.yaml", `apiVersion: orloj.dev/v1
kind: Tool
metadata: {name: api}
spec: {endpoint: '`+service.URL+`', auth: {secretRef: api}}
`)
	testkit.WriteTool(t, dir, "one/api", "token-one\n")
	testkit.WriteTool(t, dir, "two/api/value", "token-two")
	configure := func(more string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "orla.yaml"), []byte("tools_dir: tools\nport: 0\n"+more), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure("secrets_dir: one\n")
	o := startOrla(t, dir)
	log := o.follow()
	o.url, _ = log.next("serving", nil)["url"].(string)
	reload := func(more string) {
		t.Helper()
		configure(more)
		o.signal(syscall.SIGHUP)
		log.next("reload", func(l map[string]any) bool { return l["reason"] == "SIGHUP" })
	}
	works := func(want string) {
		t.Helper()
		if got := o.mustCall("api"); got != "done" || shown.Load() != "Bearer "+want {
			t.Errorf("got %q, the service was shown %q, want %q", got, shown.Load(), want)
		}
	}
	refused := func(code, want string) {
		t.Helper()
		a, err := o.call("api", "{}")
		if err != nil || a.Result == nil || !a.Result.IsError {
			t.Fatalf("got %+v, %v, want %s", a, err, code)
		}
		log.next("call", func(l map[string]any) bool { return l["code"] == code })
		if text := a.Result.Content[0].Text; !strings.Contains(text, want) {
			t.Errorf("got %q, want it to say %q", text, want)
		}
	}
	works("token-one")
	reload("secrets_dir: two\n")
	works("token-two")
	reload("")
	refused("secret_resolution_failed", "ORLOJ_SECRET_API")
	reload("secrets_dir: one\nallow_private_endpoints: none\n")
	refused("runtime_policy_invalid", "allow_private_endpoints")
	reload("secrets_dir: one\nallow_private_endpoints: all\n")
	works("token-one")
	if got := o.mustOrla("config"); !strings.Contains(got, "allow_private_endpoints") {
		t.Errorf("orla config says %s", got)
	}

	configure("secrets_dir: two\nallow_private_endpoints: some\n")
	o.signal(syscall.SIGHUP)
	log.next("reload: the configuration has errors; keeping the previous one", func(l map[string]any) bool {
		return strings.Contains(fmt.Sprint(l["err"]), `must be none, loopback or all, got "some"`)
	})
	works("token-one")
}

// SPEC H2: a file of secrets that is half saved changes no secret, and puts none
// of another place in the place of one; when it is gone, its secrets are.
func TestSecretsOfAFaultyFileStay(t *testing.T) {
	t.Parallel()
	var shown atomic.Value
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown.Store(r.Header.Get("Authorization"))
		_, _ = fmt.Fprint(w, "done")
	}))
	t.Cleanup(service.Close)
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "api.yaml", "apiVersion: orloj.dev/v1\nkind: Tool\nmetadata: {name: api}\nspec: {endpoint: '"+service.URL+"', auth: {secretRef: api}}\n")
	const declared = "apiVersion: orloj.dev/v1\nkind: Secret\nmetadata: {name: api}\nstringData: {value: %s}\n"
	testkit.WriteTool(t, tools, "secrets.yaml", fmt.Sprintf(declared, "one"))
	o := serveOrla(t, tools, "ORLOJ_SECRET_API=of-the-environment")
	shows := func(want string) {
		t.Helper()
		testkit.Eventually(t, "the service is shown "+want, func() bool {
			return o.mustCall("api") == "done" && shown.Load() == "Bearer "+want
		})
	}
	shows("one")
	log := o.follow()
	testkit.WriteTool(t, tools, "secrets.yaml", fmt.Sprintf(declared, "{"))
	log.next("a tool is not served", func(l map[string]any) bool { return strings.Contains(fmt.Sprint(l["path"]), "secrets.yaml") })
	shows("one")
	o.signal(syscall.SIGHUP)
	log.next("reload", nil)
	if o.mustCall("api"); shown.Load() != "Bearer one" {
		t.Errorf("after one more reload the service is shown %q", shown.Load())
	}
	testkit.WriteTool(t, tools, "secrets.yaml", fmt.Sprintf(declared, "two"))
	shows("two")
	if err := os.Remove(filepath.Join(tools, "secrets.yaml")); err != nil {
		t.Fatal(err)
	}
	shows("of-the-environment")
}
