package program

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/containertest"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// refusingCluster is an API server whose every Job has one pod, with a container
// in the state that the pod's command names: terminated for one that is not in the
// image, waiting for an image that cannot be pulled. It returns a kubeconfig.
func refusingCluster(t *testing.T) string {
	t.Helper()
	var pods []any // each request comes after the answer to the one before
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Success"}
		switch _, kind, _ := strings.Cut(r.URL.Path, "/namespaces/orla/"); {
		case r.Method == http.MethodPost:
			var job map[string]any
			_ = json.NewDecoder(r.Body).Decode(&job)
			template, _ := job["spec"].(map[string]any)["template"].(map[string]any)
			template["apiVersion"], template["kind"] = "v1", "Pod"
			template["metadata"].(map[string]any)["name"] = "pod"
			text, _ := json.Marshal(template)
			state := map[string]any{"terminated": map[string]any{"exitCode": 128, "reason": "StartError", "message": "executable file not found in $PATH"}}
			if strings.Contains(string(text), "nonesuch:1") {
				state = map[string]any{"waiting": map[string]any{"reason": "ErrImagePull", "message": "not found"}}
			}
			containers, _ := template["spec"].(map[string]any)["containers"].([]any)
			template["status"] = map[string]any{"containerStatuses": []any{map[string]any{"name": containers[0].(map[string]any)["name"], "state": state}}}
			pods, answer = []any{template}, job
		case kind == "pods" && r.URL.Query().Get("watch") != "":
			<-r.Context().Done()
			return
		case kind == "pods":
			answer = map[string]any{"apiVersion": "v1", "kind": "PodList", "metadata": map[string]any{"resourceVersion": "1"}, "items": pods}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: %q}}]\nusers: [{name: u, user: {}}]\n", server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// brokenRuntime is the environment of an engine that answers, and whose OCI
// runtime starts nothing.
func brokenRuntime(t *testing.T, podman *containertest.Engine) []string {
	t.Helper()
	runtime := testkit.WriteTool(t, t.TempDir(), "runtime", "#!/bin/sh\necho 'cgroups in hybrid mode not supported' >&2\nexit 1\n")
	environ := append([]string{}, podman.Environ...)
	for i, kv := range environ {
		if path, ok := strings.CutPrefix(kv, "CONTAINERS_CONF="); ok {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			conf := strings.Replace(string(text), `runtime = "runc"`, `runtime = "broken"`, 1) + "[engine.runtimes]\nbroken = [\"" + runtime + "\"]\n"
			environ[i] = "CONTAINERS_CONF=" + testkit.WriteTool(t, t.TempDir(), "containers.conf", conf)
		}
	}
	return environ
}

// SPEC-TOOLS 4: the same cause has the same code in every isolation mode.
func TestT4TheSameCauseHasTheSameCode(t *testing.T) {
	t.Parallel()
	podman := podmanOf(t)
	const missing, image = "orla-no-such-command", containertest.Image
	type row struct{ cause, mode, cli, code string }
	kube := func(cli string) string { return cli + ", network: cluster" }
	for what, c := range map[string]struct {
		environ []string
		config  string
		rows    []row
	}{
		"engines that work": {
			environ: podman.Environ, config: "tool_container_engine: podman\n",
			rows: []row{
				{"no command", "none", "command: " + missing, "unsupported_tool"},
				{"no command", "sandboxed", "command: " + missing, "unsupported_tool"},
				{"no file", "sandboxed", "command: /usr/bin/" + missing, "unsupported_tool"},
				{"no command", "container", "command: " + missing + ", image: " + image, "unsupported_tool"},
				{"no file", "container", "command: /bin/" + missing + ", image: " + image, "unsupported_tool"},
				{"no command", "kubernetes", kube("command: " + missing + ", image: " + image), "unsupported_tool"},
				{"no image", "container", "command: sh, image: \"localhost/nonesuch:1\"", "isolation_unavailable"},
				{"no image", "kubernetes", kube("command: sh, image: \"localhost/nonesuch:1\""), "isolation_unavailable"},
			},
		},
		"a runtime that starts nothing": {
			environ: brokenRuntime(t, podman), config: "tool_container_engine: podman\n",
			rows: []row{{"no runtime", "container", "command: sh, image: " + image, "isolation_unavailable"}},
		},
		"a client without a daemon": {
			config: "tool_container_engine: " + testkit.WriteTool(t, t.TempDir(), "docker", "#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n") + "\n",
			rows:   []row{{"no daemon", "container", "command: sh, image: " + image, "isolation_unavailable"}},
		},
		"an engine that is not there": {
			config: "tool_container_engine: /nonesuch/podman\n",
			rows:   []row{{"no engine", "container", "command: sh, image: " + image, "isolation_unavailable"}},
		},
		"a cluster that cannot be reached": {
			config: "tool_container_engine: none\ntool_k8s_kubeconfig: /nonesuch\n",
			rows:   []row{{"no cluster", "kubernetes", kube("command: sh, image: " + image), "isolation_unavailable"}},
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			tools, text := t.TempDir(), ""
			for i, r := range c.rows {
				text += cliResource(fmt.Sprint("tool", i), r.mode, r.cli, "")
			}
			testkit.WriteTool(t, tools, "tools.yaml", text)
			config := c.config + "cli_allowed_commands: [" + missing + "]\ntool_k8s_enabled: true\ntool_k8s_namespace: orla\n"
			if !strings.Contains(config, "kubeconfig") {
				config += "tool_k8s_kubeconfig: " + refusingCluster(t) + "\n"
			}
			prepare := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, c.environ...) }
			o := startPrepared(t, t.TempDir(), prepare, orlaBinary(t), "--config", writeConfig(t, tools, config))
			o.url, _ = o.waitLog("serving", nil)["url"].(string)
			for i, r := range c.rows {
				a, err := o.call(fmt.Sprint("tool", i), "{}")
				if err != nil || a.Result == nil || a.Result.Meta["tool_code"] != r.code || a.Result.Meta["retryable"] != false {
					t.Errorf("%s, isolation_mode %s: %+v, %v; want %s", r.cause, r.mode, a, err, r.code)
				}
			}
		})
	}
}

// The doctor says of an engine that it is well only after it has run a container.
// It leaves no image and no container.
func TestT4TheDoctorRunsAContainer(t *testing.T) {
	t.Parallel()
	podman := podmanOf(t)
	tools := t.TempDir()
	inContainer(t, tools, "held", "simple", "sandboxed", "exit 0")
	all := func() string {
		return podman.Run(t, "images", "--all", "--quiet") + podman.Run(t, "ps", "--all", "--quiet")
	}
	before := all()
	for what, c := range map[string]struct {
		environ []string
		engine  string
		level   string
		says    string
	}{
		"an engine that works":           {podman.Environ, "podman", "ok", "ran a container, and held it as it has to"},
		"a runtime that starts nothing":  {brokenRuntime(t, podman), "podman", "fail", "cgroups in hybrid mode not supported; it is for held"},
		"an engine that is not there":    {nil, "/nonesuch/podman", "fail", "no container engine can be used"},
		"an engine that answers nothing": {nil, testkit.WriteTool(t, t.TempDir(), "docker", "#!/bin/sh\nexit 1\n"), "fail", "no container engine can be used"},
	} {
		t.Run(what, func(t *testing.T) {
			cmd := exec.Command(orlaBinary(t), "doctor", "--json", "--tools-dir", tools, "--port", "0", "--sandbox-backend", "container", "--tool-container-engine", c.engine)
			cmd.Env = append(append(os.Environ(), "HOME="+t.TempDir()), c.environ...)
			cmd.Dir = t.TempDir()
			out, err := cmd.Output() // an exit code of 1 is one of the findings
			var findings []struct{ Check, Level, Text string }
			if jsonErr := json.Unmarshal(out, &findings); jsonErr != nil {
				t.Fatalf("%v, %v: %s", err, jsonErr, out)
			}
			for _, f := range findings {
				if f.Check == "containers" {
					if f.Level != c.level || !strings.Contains(f.Text, c.says) {
						t.Errorf("it says %+v; want %s: %q", f, c.level, c.says)
					}
					return
				}
			}
			t.Errorf("it says nothing of containers: %s", out)
		})
	}
	if after := all(); after != before {
		t.Errorf("it leaves %q; there was %q", after, before)
	}
}
