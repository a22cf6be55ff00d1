package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC R4: callers of a tool that several have do not see what an installer prints. It is in the status and in the log.
func TestR4SeveralCallersDoNotSeeWhatAnInstallerPrints(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tools := filepath.Join(dir, "tools")
	const fails = "setup: [sh, -c, 'echo the index is https://hidden.example >&2; exit 1']\n"
	body := "#!/usr/bin/env python3\n# /// tool\n# description: x\n# " + fails + "# ///\nprint(1)\n"
	testkit.WriteTool(t, tools, "once.py", body)
	newPack(t, tools, "live", "restart: {max_failures: 1}\n"+fails, map[string]string{
		"main.py": "#!/usr/bin/env python3\n", "requirements.txt": "acme==1\n",
	})
	testkit.WriteTool(t, tools, "requirements.txt", "acme\n")
	r := &ruled{t: t, dir: dir, tokens: map[string]string{"ann": "token-of-ann-0123456789", "bob": "token-of-bob-0123456789", "eve": "token-of-eve-0123456789"}}
	for name, token := range r.tokens {
		r.write(name, token)
	}
	r.configure(patient + "state_dir: state\n")
	r.running = startOrla(t, dir)
	r.url, _ = r.waitLog("serving", nil)["url"].(string)
	for _, tool := range []string{"once", "live"} {
		_, _, answer := r.posts("ann", "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":{}}}`)
		if !strings.Contains(answer, "dependencies could not be installed") || strings.Contains(answer, "hidden.example") {
			t.Errorf("%s answers %s", tool, answer)
		}
		r.waitLog("dependencies were not installed", func(l map[string]any) bool {
			return strings.Contains(l["file"].(string), tool) == (tool == "live") && strings.Contains(l["err"].(string), "hidden.example")
		})
	}
	if status := r.mustOrla("status", "live"); !strings.Contains(status, "hidden.example") {
		t.Errorf("the status does not say it:\n%s", status)
	}
}

// SPEC R4: orla dev installs the packages of its tool, and other ones when they change.
func TestR4OrlaDevInstallsPackages(t *testing.T) {
	t.Parallel()
	interpreter, err := python()
	if err != nil {
		needs.Missing(t, "no python3: %v", err)
	}
	n := newNeeding(t, t.TempDir(), "")
	env := withEnv("PATH="+filepath.Dir(interpreter)+":"+os.Getenv("PATH"), "ORLA_STATE_DIR="+t.TempDir(), "ORLA_QUEUE_TIMEOUT=60s", "ORLA_TIMEOUT=60s")
	o := startPrepared(t, t.TempDir(), env, orlaBinary(t), "dev", n.dir, "--port", "0", "--log-format", "json")
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	log := o.follow()
	for round, want := range []string{"1 1", "2 1"} {
		if round > 0 {
			n.save("requirements.txt", "acme==2\n")
		}
		log.next("installing dependencies", func(l map[string]any) bool { return l["step"] != nil })
		n.open()
		testkit.Eventually(t, "it answers with "+want, func() bool { return o.mustCall("live") == want })
	}
}
