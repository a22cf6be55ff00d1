package helm_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
)

const chart = "orla"

// program builds helm, which Go's cache keeps, and returns its path.
var program = sync.OnceValues(func() (string, error) {
	where := exec.Command("go", "tool", "-modfile=../../tools/helm/go.mod", "-n", "helm")
	where.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	where.Stderr = os.Stderr
	out, err := where.Output()
	return strings.TrimSpace(string(out)), err
})

// helm runs helm, and returns what it printed.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	needs.Time(t, "builds helm")
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	run := exec.CommandContext(t.Context(), path, args...)
	run.Stdout, run.Stderr = &out, &out
	run.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(), "HELM_DATA_HOME="+t.TempDir())
	err = run.Run()
	return out.String(), err
}

// render is what the chart makes of a file of values.
func render(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return helm(t, append([]string{"template", "orla", chart, "--namespace", "tools", "--kube-version", "1.34.0"}, args...)...)
}

// SPEC P1: helm finds nothing to complain about.
func TestP1ChartLints(t *testing.T) {
	for _, values := range cases(t) {
		out, err := helm(t, "lint", "--strict", chart, "--kube-version", "1.34.0", "--values", values)
		if err != nil || strings.Contains(out, "[WARNING]") {
			t.Errorf("%s: %v\n%s", values, err, out)
		}
	}
}

func cases(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(found) < 4 {
		t.Fatalf("%v %v", found, err)
	}
	return found
}

// SPEC P1: what the chart makes of values is what was looked at. UPDATE=1 writes it.
func TestP1ChartRenders(t *testing.T) {
	for _, values := range cases(t) {
		golden := strings.TrimSuffix(values, ".values.yaml") + ".golden.yaml"
		got, err := render(t, "--values", values)
		if err != nil {
			t.Fatalf("%s: %v\n%s", values, err, got)
		}
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is not what %s makes now; UPDATE=1 writes\n%s", golden, values, got)
		}
	}
}

// SPEC P1: an HPA decides alone how many replicas there are.
func TestP1AutoscalingSetsNoReplicas(t *testing.T) {
	for set, want := range map[string]bool{"autoscaling.enabled=false": true, "autoscaling.enabled=true": false} {
		out, err := render(t, "--set", set, "--show-only", "templates/deployment.yaml")
		if err != nil {
			t.Fatal(out)
		}
		if got := regexp.MustCompile(`(?m)^  replicas:`).MatchString(out); got != want {
			t.Errorf("%s: replicas are set: %v", set, got)
		}
	}
}

// SPEC P1: the Role names what it grants, and why.
func TestP1RoleGrantsNothingUnnamed(t *testing.T) {
	role, err := os.ReadFile("orla/templates/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if regexp.MustCompile(`[\['"]\*`).Match(role) || bytes.Contains(role, []byte("ClusterRole")) {
		t.Error("it grants everything of something, or beyond the namespace")
	}
	lines := strings.Split(string(role), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "  - apiGroups:") && !strings.HasPrefix(lines[i-1], "  # ") {
			t.Errorf("line %d: the comment before %q does not say why", i+1, line)
		}
	}
	out, err := render(t, "--set", "kubernetes.isolation=false", "--show-only", "templates/rbac.yaml")
	if err != nil || strings.Contains(out, "kind: Role") || !strings.Contains(out, "automountServiceAccountToken: false") {
		t.Errorf("without a use of the API server Orla has rights or a token: %v\n%s", err, out)
	}
}

// SPEC P1: values that are not right end the installation with their place.
func TestP1ChartRefusesValues(t *testing.T) {
	for set, want := range map[string]string{
		"replica=3":                      "additional properties 'replica' not allowed",
		"replicas=many":                  "/replicas",
		"replicas=-1":                    "/replicas",
		"image.digest=sha256:abc":        "/image/digest",
		"image.pullPolicy=Sometimes":     "/image/pullPolicy",
		"config.listen=0.0.0.0":          "invalid propertyName 'listen'",
		"config.auth.tokens=x":           "invalid propertyName 'tokens'",
		"tools.a/b=x":                    "invalid propertyName 'a/b'",
		"auth.tokens[0].name=x":          "missing properties 'secretName', 'key'",
		"autoscaling.maxReplicas=0":      "/autoscaling/maxReplicas",
		"networkPolicy.ingressFrom[0]=a": "/networkPolicy/ingressFrom/0",
		"service.port=70000":             "/service/port",
		"shutdownGraceSeconds=10s":       "/shutdownGraceSeconds",
		"spread[0].topologyKey=zone":     "missing property 'whenUnsatisfiable'",
		"auth.tokens=null":               "nobody may call",
		"kubernetes.readSecrets[0]=*":    "/kubernetes/readSecrets/0",
		"config.kubernetes=true":         "invalid propertyName 'kubernetes'",
		// Text that would be more keys of the Pod.
		"priorityClassName=x\n      hostNetwork: true":    "/priorityClassName",
		"serviceAccount.name=x\n      hostNetwork: true":  "/serviceAccount/name",
		"image.repository=x\n          tty: true\n#":      "/image/repository",
		"image.tag=x\n          tty: true\n#":             "/image/tag",
		"serviceMonitor.tokenSecretName=x\n      y: true": "/serviceMonitor/tokenSecretName",
		`podLabels.app\.kubernetes\.io/name=other`:        "invalid propertyName 'app.kubernetes.io/name'",
	} {
		out, err := render(t, "--set", set)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, without %q\n%.2000s", set, err, want, out)
		}
	}
}
