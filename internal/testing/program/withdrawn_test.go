package program

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
)

// SPEC R2, R4: a lock that names a version that was yanked is installed, and whoever calls the tool is told. What is resolved anew
// has another version, and nothing is said.
func TestR4YankedVersions(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "uv", "python3")
	i, x := newInstallable(t), newIndex(t)
	i.write(i.dir, "orla.yaml", "tools_dir: ./tools\nstate_dir: ./state\ntimeout: 60s\n")
	lock := x.uvLock(t)
	x.yanked = map[string]string{"acme-1.0.0-py3-none-any.whl": "it eats data"}
	const main = "#!/usr/bin/env python3\nimport acme\nprint('it has', acme.version)\n"
	for name, c := range map[string]struct {
		files  map[string]string
		want   string
		warned bool
	}{
		"locked":   {map[string]string{"pyproject.toml": pyproject, "uv.lock": lock}, "it has 1.0.0", true},
		"resolved": {map[string]string{"requirements.txt": "acme\n"}, "it has 2.0.0", false},
	} {
		dir := filepath.Join(i.dir, "tools", name)
		i.write(dir, "tool.yaml", "name: "+name+"\nversion: 1.0.0\ndescription: x\nentrypoint: main.py\nmcp: {input_schema: {}}\n")
		i.write(dir, "main.py", main)
		for file, text := range c.files {
			i.write(dir, file, text)
		}
		cmd := i.command("call", name, "--socket", "none")
		cmd.Env = append(cmd.Env, x.environ(t)...)
		out, err := cmd.CombinedOutput()
		says := strings.Contains(string(out), "was withdrawn by its publisher") && strings.Contains(string(out), "acme") && strings.Contains(string(out), "it eats data")
		if err != nil || !strings.Contains(string(out), c.want) || says != c.warned {
			t.Errorf("%s: %v %s", name, err, out)
		}
	}
}
