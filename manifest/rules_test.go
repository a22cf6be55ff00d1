package manifest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// wide is a text of ASCII in UTF-16, as Windows writes it.
func wide(text string) string {
	var b strings.Builder
	for i := range len(text) {
		b.WriteByte(text[i])
		b.WriteByte(0)
	}
	return b.String()
}

// SPEC-TOOLS 8.3: whatever is or may be a governance document denies calls, and
// its place is told. Nothing else does.
func TestT83WhatDeniesCalls(t *testing.T) {
	const head = "apiVersion: orloj.dev/v1\n"
	const rule = head + "kind: ToolPermission\nmetadata: {name: a}\n"
	const tool = head + "kind: Tool\nmetadata: {name: tool}\nspec: {endpoint: 'http://127.0.0.1:1'}\n"
	const manifest = "name: pack\nversion: 1.0.0\ndescription: A package.\nentrypoint: main.sh\nmcp: {input_schema: {type: object}}\n"
	large := strings.Repeat("- {data: here}\n", 5000)
	for name, c := range map[string]struct {
		files map[string]string // NAME -> TARGET is a link
		want  []string          // the places of what denies
	}{
		"each kind":                 {map[string]string{"a.yaml": rule + "---\n" + head + "kind: AgentRole\n---\n" + head + "kind: AgentPolicy\n"}, []string{"a.yaml:2:7", "a.yaml:6:7", "a.yaml:9:7"}},
		"without a version":         {map[string]string{"a.yml": "kind: AgentPolicy\n"}, []string{"a.yml:1:7"}},
		"another version":           {map[string]string{"a.yaml": "apiVersion: other/v2\nkind: AgentRole\n"}, []string{"a.yaml:2:7"}},
		"another case":              {map[string]string{"a.yaml": "Kind: toolpermission\n"}, []string{"a.yaml:1:7"}},
		"an extension in capitals":  {map[string]string{"a.YAML": rule}, []string{"a.YAML:2:7"}},
		"quoted":                    {map[string]string{"a.yaml": head + "'kind': \"ToolPermission\"\n"}, []string{"a.yaml:2:9"}},
		"escaped":                   {map[string]string{"a.yaml": `kind: "Tool\x50ermission"`}, []string{"a.yaml:1:7"}},
		"tagged":                    {map[string]string{"a.yaml": "kind: !!str ToolPermission\n"}, []string{"a.yaml:1:7"}},
		"on another line":           {map[string]string{"a.yaml": "kind:\n  ToolPermission\n"}, []string{"a.yaml:2:3"}},
		"an alias":                  {map[string]string{"a.yaml": "x: &k ToolPermission\nkind: *k\n"}, []string{"a.yaml:2:7"}},
		"JSON":                      {map[string]string{"a.json": "{\n \"kind\": \"AgentRole\"}"}, []string{"a.json:2:10"}},
		"JSON, a list":              {map[string]string{"a.json": `[{"kind": "AgentRole"}]`}, []string{"a.json:1:11"}},
		"JSON, broken":              {map[string]string{"a.json": `{"kind": "AgentRole"`}, []string{"a.json:1:11"}},
		"JSON that only YAML takes": {map[string]string{"a.json": `{"kind": "AgentRole",}`}, []string{"a.json:1:10"}},
		"JSON below a comment":      {map[string]string{"a.json": `// for whom` + "\n" + `{"kind":"AgentRole"}`}, []string{"a.json:1:1"}},
		"UTF-16":                    {map[string]string{"a.yaml": "\xff\xfe" + wide(rule), "b.json": "\xfe\xff\x00" + wide(`{"kind": "AgentRole"} `)}, []string{"a.yaml:2:7", "b.json:1:13"}},
		"UTF-16, a large file":      {map[string]string{"a.yaml": "\xff\xfe" + wide(strings.Repeat("# a comment\n", 10_000)+rule)}, []string{"a.yaml:10002:7"}},
		"after too much data":       {map[string]string{"a.yaml": strings.Repeat("---\na: 1\n", maxDocuments) + "---\n" + rule}, []string{"a.yaml:2001:1"}},
		"a list of Kubernetes":      {map[string]string{"a.yaml": "apiVersion: v1\nkind: List\nitems:\n- kind: ToolPermission\n"}, []string{"a.yaml:4:9"}},
		"misspelt":                  {map[string]string{"a.yaml": head + "kind: ToolPermision\n"}, []string{"a.yaml:2:7"}},
		"with what nobody sees":     {map[string]string{"a.yaml": head + "kind: Agent\u200bRole\n", "b.yaml": "kind\ufeff: ToolPermission\n", "c.yaml": head + "kind: ToolPermision\u00ad\n"}, []string{"a.yaml:2:7", "b.yaml:1:8", "c.yaml:2:7"}},
		"of full width":             {map[string]string{"a.yaml": head + "kind: \uff34oolPermission\n"}, []string{"a.yaml:2:7"}},
		"a kind that is a list":     {map[string]string{"a.yaml": head + "kind: [ToolPermission]\n"}, []string{"a.yaml:2:8"}},
		"broken":                    {map[string]string{"a.yaml": rule + "spec: {\n"}, nil},
		"broken, and only named":    {map[string]string{"a.yaml": "a: {\n# for an AgentPolicy\n"}, nil},
		"two kinds":                 {map[string]string{"a.yaml": tool + "kind: ToolPermission\n"}, []string{"a.yaml:5:7"}},
		"after a tool":              {map[string]string{"a.yaml": tool + "---\n" + rule}, []string{"a.yaml:7:7"}},
		"after a broken tool":       {map[string]string{"a.yaml": strings.Replace(tool, "}", "", 1) + "---\n" + rule}, []string{"a.yaml:7:7"}},
		"far below":                 {map[string]string{"a.yaml": large + "---\n" + rule}, []string{"a.yaml:5003:7"}},
		"in too large a file":       {map[string]string{"a.yaml": rule + strings.Repeat(large, 20)}, []string{"a.yaml:1:1"}},
		"after too many documents":  {map[string]string{"a.yaml": strings.Repeat("---\n"+tool, maxDocuments) + "---\n" + rule}, []string{"a.yaml:5001:1"}},
		"in a package":              {map[string]string{"pack/tool.yaml": manifest, "pack/main.sh": "#!/bin/sh\n", "pack/policy.yaml": rule}, []string{"pack/policy.yaml:2:7"}},
		"as a package":              {map[string]string{"pack/tool.yaml": rule}, []string{"pack/tool.yaml:2:7"}},
		"beside tool.yml":           {map[string]string{"pack/tool.yml": "", "pack/policy.yaml": rule}, []string{"pack/policy.yaml:2:7"}},
		"as a sidecar":              {map[string]string{"a.sh": "#!/bin/sh\n", "a.tool.yaml": rule}, []string{"a.tool.yaml:2:7"}},
		"as a stray sidecar":        {map[string]string{"a.tool.yaml": rule}, []string{"a.tool.yaml:2:7"}},
		"a link out of the folder":  {map[string]string{"a.yaml": "-> ../out.yaml", "../out.yaml": rule}, []string{"a.yaml:2:7"}},
		"a link to itself":          {map[string]string{"a.yaml": "-> a.yaml"}, []string{""}},

		"hidden":                   {map[string]string{".a.yaml": rule, ".git/a.yaml": rule}, nil},
		"a backup":                 {map[string]string{"a.yaml~": rule}, nil},
		"a link to nothing":        {map[string]string{"a.yaml": "-> gone.yaml"}, nil},
		"a comment":                {map[string]string{"a.yaml": tool + "# kind: ToolPermission\n"}, nil},
		"a tool that speaks of it": {map[string]string{"a.yaml": tool[:len(tool)-2] + ", description: 'kind: ToolPermission'}\n"}, nil},
		"data that speaks of it":   {map[string]string{"a.yaml": "text: an AgentPolicy\n", "b.json": `{"text": "AgentRole"}`}, nil},
		"another tool's fault":     {map[string]string{"a.yaml": strings.Replace(tool, "endpoint", "endpiont", 1)}, nil},
		"another kind":             {map[string]string{"a.yaml": head + "kind: Agent\n"}, nil},
		"below a package":          {map[string]string{"pack/tool.yaml": manifest, "pack/main.sh": "#!/bin/sh\n", "pack/data/policy.yaml": rule}, nil},
		"a folder":                 {map[string]string{"a.yaml/b.yaml": tool}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "tools")
			for file, text := range c.files {
				file = filepath.Join(dir, file)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				var err error
				if target, link := strings.CutPrefix(text, "-> "); link {
					err = os.Symlink(target, file)
				} else {
					err = os.WriteFile(file, []byte(text), 0o755)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			for _, p := range Discover(Options{UserDir: dir}).Problems {
				if !p.Denies {
					continue
				}
				if p.Severity != Fault {
					t.Errorf("%s is a %s", p.Path, p.Severity)
				}
				for line := range strings.Lines(p.Err.Error()) {
					if strings.Contains(line, "every call is denied") {
						place, _, _ := strings.Cut(strings.TrimPrefix(line, dir+"/"), ": ")
						if !strings.HasPrefix(line, dir) {
							place = ""
						}
						got = append(got, place)
					}
				}
			}
			broken := strings.HasPrefix(name, "broken")
			if broken && len(got) == 0 || !broken && !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
