package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/manifest"
)

// examplePorts are those that examples/resources/serve takes unless it is told others.
var examplePorts = regexp.MustCompile(`127\.0\.0\.1:81(\d\d)\b`)

// freePorts returns ports that nothing listens on.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports
}

// serveExamples starts the services of examples/resources on ports that are
// free, and returns a folder that has the examples with those ports.
func serveExamples(t *testing.T) (dir string) {
	t.Helper()
	needs(t, "python3", "node")
	dir = t.TempDir()
	at := filepath.Join(dir, "examples", "resources")
	if err := os.CopyFS(at, os.DirFS(filepath.Join("..", "..", "examples", "resources"))); err != nil {
		t.Fatal(err)
	}
	ports := freePorts(t, 6)
	files, err := filepath.Glob(filepath.Join(at, "tools", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text := examplePorts.ReplaceAllStringFunc(readFile(t, file), func(address string) string {
			n, _ := strconv.Atoi(address[len(address)-2:]) // two digits
			return "127.0.0.1:" + ports[n-1]
		})
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	services := exec.Command(filepath.Join(at, "serve"), ports...)
	services.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	stderr, err := services.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := services.Start(); err != nil {
		t.Fatal(err)
	}
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with the last of the services
		defer close(ended)
		listening := 0
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if strings.Contains(lines.Text(), ": listens on ") {
				if listening++; listening == len(ports) {
					close(ready)
				}
			}
		}
	}()
	t.Cleanup(func() {
		_ = services.Process.Signal(syscall.SIGTERM) // as Ctrl-C does
		<-ended
		_ = services.Wait()
	})
	select {
	case <-ready:
	case <-ended:
		t.Fatal("the services ended")
	case <-time.After(patience):
		t.Fatal("the services do not listen")
	}
	return dir
}

// try runs the commands of indented blocks of a document one after another in
// dir, and wants them to print what the document says. It returns how many
// printed something. The services are on other ports than in the document.
func try(t *testing.T, dir, text string) int {
	t.Helper()
	exports, printed := "", 0
	for _, block := range indented(text) {
		for _, step := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, want := splitStep(step)
			if strings.HasPrefix(command, "export ") {
				exports += command + "\n"
				continue
			}
			if strings.TrimSpace(command) == "orla" {
				continue // which would not end
			}
			cmd := exec.Command("sh", "-c", exports+command)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(orlaBinary(t))+string(os.PathListSeparator)+os.Getenv("PATH"), "HOME="+dir)
			got, err := cmd.CombinedOutput()
			if err != nil && !strings.Contains(string(got), "orla: ") {
				t.Fatalf("$ %s\n%v\n%s", command, err, got)
			}
			if normal(string(got)) != normal(want) {
				t.Errorf("$ %s\nprints:\n%s\nthe document says:\n%s", command, got, want)
			}
			if want != "" {
				printed++
			}
		}
	}
	return printed
}

// The examples do what their README shows: a tool of every type answers, and a
// secret is rotated (SPEC-TOOLS 3, 5.3).
func TestTheExampleResourcesAnswer(t *testing.T) {
	dir := serveExamples(t)
	if printed := try(t, dir, readFile(t, filepath.Join(dir, "examples", "resources", "README.md"))); printed < 14 {
		t.Errorf("only %d commands of the README print something", printed)
	}
}

// The service of docs/TOOLS.md answers, and what is shown is what is printed.
func TestTheServiceOfTheDocumentAnswers(t *testing.T) {
	needs(t, "python3")
	text := section(t, "docs/TOOLS.md", "In two minutes")
	blocks := fence.FindAllStringSubmatch(text, -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of code; want a service and a tool", len(blocks))
	}
	port := freePorts(t, 1)[0]
	dir := t.TempDir()
	writeTool(t, dir, "greet.py", strings.ReplaceAll(blocks[0][2], "8111", port))
	writeTool(t, filepath.Join(dir, "tools"), "greet.yaml", strings.ReplaceAll(blocks[1][2], "8111", port))
	if err := os.Chmod(filepath.Join(dir, "tools", "greet.yaml"), 0o644); err != nil {
		t.Fatal(err)
	}
	service := exec.Command("python3", "greet.py")
	service.Dir = dir
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = service.Process.Kill()
		_ = service.Wait() // killed
	})
	eventually(t, "the service listens", func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	if printed := try(t, dir, text); printed < 4 {
		t.Errorf("only %d commands print something", printed)
	}
}

// What docs/TOOLS.md shows in YAML is in order: whole resources as they stand,
// parts of a spec in a tool that has nothing else. What has the name of a file
// is that file.
func TestTheDocumentedResourcesAreInOrder(t *testing.T) {
	text := readFile(t, filepath.Join("..", "..", "docs", "TOOLS.md"))
	resources, parts, files := 0, 0, 0
	for _, block := range fence.FindAllStringSubmatch(text, -1) {
		if block[1] != "yaml" {
			continue
		}
		yaml, dir := block[2], filepath.Join(t.TempDir(), "tools")
		if first, rest, _ := strings.Cut(yaml, "\n"); strings.HasPrefix(first, "# examples/") {
			files++
			if file := filepath.Join("..", "..", strings.TrimPrefix(first, "# ")); readFile(t, file) != rest {
				t.Errorf("%s is not what the document shows:\n%s", file, rest)
			}
		}
		if strings.Contains(yaml, "apiVersion:") {
			resources++
		} else {
			parts++
			yaml = "apiVersion: orloj.dev/v1\nkind: Tool\nmetadata:\n  name: part\nspec:\n  endpoint: https://example.com\n  " +
				strings.ReplaceAll(strings.TrimRight(yaml, "\n"), "\n", "\n  ") + "\n"
		}
		writeTool(t, dir, "resource.yaml", yaml)
		if err := os.Chmod(filepath.Join(dir, "resource.yaml"), 0o600); err != nil {
			t.Fatal(err)
		}
		found := manifest.Validate(dir)
		for _, p := range found.Problems {
			t.Errorf("%s\n%v", yaml, p.Err)
		}
		if len(found.Tools)+len(found.Secrets) == 0 {
			t.Errorf("nothing was found in\n%s", yaml)
		}
	}
	if got := fmt.Sprint(resources, parts, files); got != "8 6 6" {
		t.Errorf("it has %s resources, parts and files", got)
	}
}
