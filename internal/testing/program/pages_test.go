package program

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/issuer"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// example is a block of a page.
type example struct {
	language string // of a fenced block; "" for an indented one, of commands and what they print
	text     string
}

// examples returns the blocks of a page, in their order.
func examples(t *testing.T, page string) (all []example) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", page))
	if err != nil {
		t.Fatal(err)
	}
	indent, inside := "", false
	var now *example
	end := func() {
		if now != nil && strings.TrimSpace(now.text) != "" {
			all = append(all, *now)
		}
		now = nil
	}
	listed := "" // the indent of the item of a list
	for line := range strings.Lines(string(text)) {
		bare := strings.TrimLeft(line, " ")
		switch {
		case inside && strings.TrimSpace(line) == "```":
			inside = false
			end()
		case inside:
			now.text += strings.TrimPrefix(line, indent)
		case strings.HasPrefix(bare, "```"):
			end()
			inside, indent = true, line[:len(line)-len(bare)]
			now = &example{language: strings.TrimSpace(strings.TrimPrefix(bare, "```"))}
		case strings.HasPrefix(line, listed+"    ") || now != nil && strings.TrimSpace(line) == "":
			if now == nil {
				now = &example{}
			}
			now.text += strings.TrimPrefix(line, listed+"    ")
		default:
			end()
			if numbered.MatchString(line) {
				listed = "   "
			} else if bare == line && bare != "\n" {
				listed = ""
			}
		}
	}
	end()
	return all
}

var numbered = regexp.MustCompile(`^\d+\. `)

// SPEC-TOOLS 8: what docs/GOVERNANCE.md shows is valid: each document beside those before it, and each part of a
// configuration with all documents; and orla can prints what the page says.
func TestT83TheGovernancePageIsTrue(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tools := filepath.Join(dir, "tools")
	for _, name := range []string{"search", "fetch", "deploy", "shell"} {
		testkit.WriteTool(t, tools, name, "#!/bin/sh\necho "+name+"\n")
	}
	newPack(t, tools, "my-capsule", "", map[string]string{"answer.py": says("'hi'")})
	testkit.WriteTool(t, dir, "ci.token", ciToken)
	testkit.WriteTool(t, dir, "webhook.key", strings.Repeat("key", 20))
	// The page has no example of this one.
	testkit.WriteTool(t, tools, "searcher.yaml", "apiVersion: orloj.dev/v1\nkind: AgentRole\nmetadata: {name: searcher}\nspec: {permissions: ['tool:search:invoke']}\n")
	documents, parts, commands := 0, 0, 0
	for _, block := range examples(t, "docs/GOVERNANCE.md") {
		switch {
		case block.language == "yaml" && strings.HasPrefix(block.text, "apiVersion:"):
			documents++
			testkit.WriteTool(t, tools, fmt.Sprintf("document%d.yaml", documents), block.text)
		case block.language == "yaml" && strings.HasPrefix(block.text, "operation_rules:"): // of a ToolPermission
			documents++
			testkit.WriteTool(t, tools, fmt.Sprintf("document%d.yaml", documents), fmt.Sprintf(
				"apiVersion: orloj.dev/v1\nkind: ToolPermission\nmetadata: {name: part%d}\nspec:\n  tool_ref: deploy\n  %s", documents, strings.ReplaceAll(block.text, "\n", "\n  ")))
		case block.language == "yaml":
			parts++
			testkit.WriteTool(t, dir, "orla.yaml", strings.ReplaceAll(block.text, "/etc/orla/", dir+"/"))
		case block.language == "":
			for _, step := range strings.Split("\n"+block.text, "\n$ ")[1:] {
				command, want := splitStep(step)
				if !strings.HasPrefix(command, "orla can ") { // others need a running Orla
					continue
				}
				commands++
				if got := shell(t, dir, command); normal(got) != normal(want) {
					t.Errorf("$ %s\nprints:\n%s\nthe page says:\n%s", command, got, want)
				}
			}
			continue
		default:
			continue
		}
		if got := shell(t, dir, "orla validate 2>&1 || true"); !strings.Contains(got, " 0 faults") {
			t.Errorf("with\n%s\norla validate says %s", block.text, got)
		}
		if got := shell(t, dir, "orla config >/dev/null"); got != "" {
			t.Errorf("with\n%s\norla config says %s", block.text, got)
		}
	}
	if documents < 3 || parts < 3 || commands < 1 {
		t.Errorf("%d documents, %d parts of a configuration, %d commands", documents, parts, commands)
	}
}

var (
	digits   = regexp.MustCompile(`\d+`)
	pastTime = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`)
)

// SPEC-TOOLS 8.8: docs/AUDIT.md shows the keys of a line in their order, what orla audit verify says of a log as it is and
// of one that was changed, and commands that work.
func TestT88TheAuditPageIsTrue(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := filepath.Join(dir, "audit.log")
	here := strings.NewReplacer("/var/log/orla/", dir+"/")
	testkit.WriteTool(t, filepath.Join(dir, "tools"), "notes/tool.yaml", "name: notes\nversion: 1.0.0\ndescription: N.\nentrypoint: main.sh\nmcp: {input_schema: {type: object}}\n")
	testkit.WriteTool(t, filepath.Join(dir, "tools"), "notes/main.sh", "#!/bin/sh\necho noted\n")
	testkit.WriteTool(t, dir, "journalctl", "#!/bin/sh\ncase \"$*\" in '-t orla-audit _UID='*' -o cat') exec cat '"+log+"' ;; *) echo \"asked for $*\" ;; esac\n")
	var blocks []example
	for _, block := range examples(t, "docs/AUDIT.md") {
		switch block.language {
		case "yaml":
			testkit.WriteTool(t, dir, "orla.yaml", here.Replace(block.text)+"state_dir: state\n")
		case "ini": // for systemd
		default:
			blocks = append(blocks, block)
		}
	}
	for range 4 { // each is a run of Orla of its own
		shell(t, dir, "orla call notes --socket none")
	}
	testkit.WriteTool(t, dir, "key.pub", testkit.ReadFile(t, filepath.Join(dir, "state", "audit", "key.pub")))
	lines := strings.SplitAfter(testkit.ReadFile(t, log), "\n")
	shell(t, dir, "grep '\"event\":\"head\"' audit.log | tail -n 1 >yesterday.head; : >audit.log.1")
	commands := 0
	for _, block := range blocks {
		if block.language == "json" {
			if strings.Contains(block.text, `"event":"request"`) {
				continue // see TestT88EveryReadHasALine
			}
			if got, want := keysOf(t, lines[1]), keysOf(t, strings.ReplaceAll(block.text, "…", "")); strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("a line has the keys %q, and the page says %q", got, want)
			}
			continue
		}
		text := here.Replace(block.text)
		for _, step := range strings.SplitAfter(strings.ReplaceAll(text, "\n$ ", "\n\x00$ "), "\x00") {
			step = strings.TrimSuffix(step, "\x00")
			typed, shown := strings.CutPrefix(step, "$ ")
			if !shown { // commands alone
				for command := range strings.Lines(strings.TrimSpace(step)) {
					commands++
					shell(t, dir, "PATH="+dir+":$PATH; set -e; "+command)
				}
				continue
			}
			commands++
			command, want := splitStep(typed)
			changed := strings.Contains(want, "fail")
			if changed {
				testkit.WriteTool(t, dir, "audit.log", strings.Join(lines[:4], "")+strings.Replace(lines[4], `"verdict":"allow"`, `"verdict":"deny"`, 1)+strings.Join(lines[5:], ""))
			}
			got := shell(t, dir, strings.TrimSpace(command)+" || echo it ends with $?")
			if changed {
				want += "it ends with 1\n"
				testkit.WriteTool(t, dir, "audit.log", strings.Join(lines, ""))
			}
			plain := func(text string) string {
				return normal(digits.ReplaceAllString(pastTime.ReplaceAllString(text, "TIME"), "N"))
			}
			if plain(got) != plain(want) {
				t.Errorf("$ %s\nprints:\n%s\nthe page says:\n%s", command, got, want)
			}
		}
	}
	if commands < 7 {
		t.Errorf("%d commands were found", commands)
	}
}

// keysOf returns the keys of a JSON object in their order.
func keysOf(t *testing.T, object string) (keys []string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(object))
	if _, err := d.Token(); err != nil {
		t.Fatalf("%v in %s", err, object)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			t.Fatalf("%v in %s", err, object)
		}
		keys = append(keys, fmt.Sprint(key))
		var value any
		if err := d.Decode(&value); err != nil {
			t.Fatalf("%v in %s", err, object)
		}
	}
	return keys
}

// SPEC N3: each configuration in docs/OAUTH.md is valid, and orla doctor says of a real issuer what the page shows.
func TestN3TheOAuthPageIsTrue(t *testing.T) {
	t.Parallel()
	needs.Time(t, "examines the machine")
	i := issuer.New(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "orla.yaml")
	parts, findings := 0, 0
	for _, block := range examples(t, "docs/OAUTH.md") {
		switch {
		case block.language == "yaml" && strings.HasPrefix(block.text, "auth:\n  oauth:\n"): // and not a part of an McpServer
			parts++
			testkit.WriteTool(t, dir, "orla.yaml", block.text)
			got := shell(t, dir, "orla config --json")
			_, address, _ := strings.Cut(block.text, "issuer: ")
			address, _, _ = strings.Cut(address, "\n")
			if !strings.Contains(got, address) {
				t.Errorf("with\n%s\norla config says\n%s", block.text, got)
			}
		case strings.HasPrefix(block.text, "$ orla doctor"):
			_, want := splitStep(strings.TrimPrefix(block.text, "$ "))
			written := testkit.ReadFile(t, config)
			_, address, _ := strings.Cut(written, "issuer: ")
			address, _, _ = strings.Cut(address, "\n")
			testkit.WriteTool(t, dir, "orla.yaml", strings.Replace(written, address, i.URL, 1))
			doctor := exec.Command(orlaBinary(t), "doctor", "--config", config)
			doctor.Dir = dir
			out, _ := doctor.CombinedOutput() // its status is about other checks, too
			got := comparable(string(out))
			for line := range strings.Lines(strings.ReplaceAll(want, address, i.URL)) {
				line, _, _ = strings.Cut(strings.TrimSpace(line), "…")
				if line == "" {
					continue
				}
				findings++
				if level, rest, _ := strings.Cut(line, " "); level == "ok" && strings.Contains(rest, "oauth_audience") {
					line = rest // nobody can be reached at the public_url of the page
				}
				if !strings.Contains(got, comparable(line)) {
					t.Errorf("orla doctor does not say %q:\n%s", line, out)
				}
			}
		}
	}
	if parts < 4 || findings < 5 {
		t.Errorf("%d configurations and %d findings", parts, findings)
	}
}

// comparable leaves out how many keys there are, and how wide columns are.
func comparable(text string) string {
	text = regexp.MustCompile(`\d+ keys?`).ReplaceAllString(text, "N keys")
	return strings.Join(strings.Fields(text), " ")
}
