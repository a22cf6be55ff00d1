//go:build !race

package discover

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/testing/manifesttest"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/manifest"
)

const (
	// maxDocuments is how many documents of a file are read.
	maxDocuments = 1000
	// tooLarge is the size of a file that is not decoded.
	tooLarge = yamldoc.MaxFile + 1
)

// SPEC-TOOLS 8.3: whatever is or may be a governance document denies calls, and
// its place is told. Nothing else does.
func TestT83WhatDeniesCalls(t *testing.T) {
	const head = "apiVersion: orloj.dev/v1\n"
	const rule = head + "kind: ToolPermission\nmetadata: {name: a, faulty: 1}\n"
	const tool = head + "kind: Tool\nmetadata: {name: tool}\nspec: {endpoint: 'http://127.0.0.1:1'}\n"
	const whole = head + "kind: ToolPermission\nmetadata: {name: no-rm}\nspec: {tool_ref: rm, operation_rules: [{operation_class: '*', verdict: deny}]}\n"
	const described = "name: pack\nversion: 1.0.0\ndescription: A package.\nentrypoint: main.sh\nmcp: {input_schema: {type: object}}\n"
	large := strings.Repeat("- {data: here}\n", 5000) // 14 of it are a large file
	long := strings.Repeat("words ", 80)              // and so are 2500 of it
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
		"JSON, broken":              {map[string]string{"a.json": `{"kind": "AgentRole"`}, []string{"a.json:1:11"}},
		"JSON that only YAML takes": {map[string]string{"a.json": `{"kind": "AgentRole",}`}, []string{"a.json:1:10"}},
		"JSON below a comment":      {map[string]string{"a.json": `// for whom` + "\n" + `{"kind":"AgentRole"}`}, []string{"a.json:1:1"}},
		"UTF-16":                    {map[string]string{"a.yaml": "\xff\xfe" + manifesttest.UTF16(rule), "b.json": "\xfe\xff\x00" + manifesttest.UTF16(`{"kind": "AgentRole"} `)}, []string{"a.yaml:2:7", "b.json:1:13"}},
		"UTF-16, a large file":      {map[string]string{"a.yaml": "\xff\xfe" + manifesttest.UTF16(strings.Repeat("# a comment\n", 10_000)+rule)}, []string{"a.yaml:10002:7"}},
		"after too much data":       {map[string]string{"a.yaml": strings.Repeat("---\na: 1\n", maxDocuments) + "---\n" + rule}, []string{"a.yaml:2003:7"}},
		"after too much data, not in its words": {map[string]string{
			"a.yaml": strings.Repeat("---\na: 1\n", maxDocuments) + "---\n" + head + "spec: {operation_rules: []}\n",
			"b.yaml": strings.Repeat("---\na: 1\n", maxDocuments) + "---\nkind: ToolPermision\n",
			"c.yaml": strings.Repeat("---\na: 1\n", maxDocuments) + "---\nkind: !!binary QWdlbnRSb2xl\n",
		}, []string{"a.yaml:2001:1", "b.yaml:2002:7", "c.yaml:2002:7"}},
		"tagged in another way": {map[string]string{
			"a.yaml": "%TAG !b! tag:yaml.org,2002:bin\n---\nkind: !b!ary QWdlbnRSb2xl\n",
			"b.yaml": "kind: !!%62inary QWdlbnRSb2xl\n", "c.yaml": "kind: !<tag:yaml.org,2002:%62inary> QWdlbnRSb2xl\n",
			"d.yaml": large + large + "---\nkind: !!b%69nary QWdlbnRSb2xl\n",
		}, []string{"a.yaml:3:7", "b.yaml:1:7", "c.yaml:1:7", "d.yaml:10002:7"}},
		"a list of Kubernetes":     {map[string]string{"a.yaml": "apiVersion: v1\nkind: List\nitems:\n- kind: ToolPermission\n"}, []string{"a.yaml:4:9"}},
		"misspelt":                 {map[string]string{"a.yaml": head + "kind: ToolPermision\n"}, []string{"a.yaml:2:7"}},
		"with what nobody sees":    {map[string]string{"a.yaml": head + "kind: Agent\u200bRole\n", "b.yaml": "kind\ufeff: ToolPermission\n", "c.yaml": head + "kind: ToolPermision\u00ad\n"}, []string{"a.yaml:2:7", "b.yaml:1:8", "c.yaml:2:7"}},
		"of full width":            {map[string]string{"a.yaml": head + "kind: \uff34oolPermission\n"}, []string{"a.yaml:2:7"}},
		"a kind that is a list":    {map[string]string{"a.yaml": head + "kind: [ToolPermission]\n"}, []string{"a.yaml:2:8"}},
		"broken":                   {map[string]string{"a.yaml": rule + "spec: {\n"}, nil},
		"broken, and only named":   {map[string]string{"a.yaml": "a: {\n# for an AgentPolicy\n"}, nil},
		"two kinds":                {map[string]string{"a.yaml": tool + "kind: ToolPermission\n"}, []string{"a.yaml:5:7"}},
		"after a tool":             {map[string]string{"a.yaml": tool + "---\n" + rule}, []string{"a.yaml:7:7"}},
		"after a broken tool":      {map[string]string{"a.yaml": strings.Replace(tool, "}", "", 1) + "---\n" + rule}, []string{"a.yaml:7:7"}},
		"far below":                {map[string]string{"a.yaml": large + "---\n" + rule}, []string{"a.yaml:5003:7"}},
		"in too large a file":      {map[string]string{"a.yaml": rule + strings.Repeat(large, 14)}, []string{"a.yaml:1:1"}},
		"after too many documents": {map[string]string{"a.yaml": strings.Repeat("---\n"+tool, maxDocuments) + "---\n" + rule}, []string{"a.yaml:5003:7"}},
		"in order, after too many documents": {map[string]string{
			"a.yaml": strings.Repeat("---\n"+tool, maxDocuments) + "---\n" + whole, "b.yaml": strings.Repeat("---\n", maxDocuments+1) + whole,
			"c.yaml": strings.Repeat("---\na: 1\n", maxDocuments+200) + "---\n" + whole,
		}, []string{"a.yaml:5001:1", "b.yaml:1001:1", "c.yaml:2001:1"}},
		"in a package":                             {map[string]string{"pack/tool.yaml": described, "pack/main.sh": "#!/bin/sh\n", "pack/policy.yaml": rule}, []string{"pack/policy.yaml:2:7"}},
		"as a package":                             {map[string]string{"pack/tool.yaml": rule}, []string{"pack/tool.yaml:2:7"}},
		"beside tool.yml":                          {map[string]string{"pack/tool.yml": "", "pack/policy.yaml": rule}, []string{"pack/policy.yaml:2:7"}},
		"as a sidecar":                             {map[string]string{"a.sh": "#!/bin/sh\n", "a.tool.yaml": rule}, []string{"a.tool.yaml:2:7"}},
		"as a stray sidecar":                       {map[string]string{"a.tool.yaml": rule}, []string{"a.tool.yaml:2:7"}},
		"a link out of the folder":                 {map[string]string{"a.yaml": "-> ../out.yaml", "../out.yaml": rule}, []string{"a.yaml:2:7"}},
		"a link to itself":                         {map[string]string{"a.yaml": "-> a.yaml"}, []string{""}},
		"a link to nothing":                        {map[string]string{"a.yaml": "-> gone.yaml", "pack/tool.yaml": described, "pack/main.sh": "#!/bin/sh\n", "pack/data/b.json": "-> gone"}, []string{"", ""}},
		"a manifest that is a link to nothing":     {map[string]string{"pack/tool.yaml": "-> gone.yaml"}, []string{""}},
		"a sidecar that is a link to nothing":      {map[string]string{"a.sh": "#!/bin/sh\n", "a.tool.yaml": "-> gone.yaml", "b.tool.yaml": "-> gone"}, []string{"a.tool.yaml", ""}},
		"a link of another name":                   {map[string]string{"a": "-> ../out.yaml", "../out.yaml": rule}, []string{"a:2:7"}},
		"a link to a folder outside":               {map[string]string{"a": "-> ../out", "../out/b/c.yaml": rule}, []string{"a/b/c.yaml:2:7"}},
		"links from one folder outside to another": {map[string]string{"a": "-> ../out", "../out/b": "-> ../more", "../out/d": "-> .", "../more/c.yaml": rule}, []string{"a/b/c.yaml:2:7"}},
		"a link to a hidden folder":                {map[string]string{"a": "-> .store/x", ".store/x/b.yaml": rule}, []string{"a/b.yaml:2:7"}},
		"a link from a package":                    {map[string]string{"pack/tool.yaml": described, "pack/main.sh": "#!/bin/sh\n", "pack/a": "-> ../../out", "../out/c.yaml": rule}, []string{"pack/a/c.yaml:2:7"}},
		"below a package":                          {map[string]string{"pack/tool.yaml": described, "pack/main.sh": "#!/bin/sh\n", "pack/data/more/policy.yaml": rule}, []string{"pack/data/more/policy.yaml:2:7"}},
		"below tool.yml":                           {map[string]string{"pack/tool.yml": "", "pack/data/policy.yaml": rule}, []string{"pack/data/policy.yaml:2:7"}},
		"as the other manifest of a package":       {map[string]string{"pack/tool.yaml": described, "pack/main.sh": "#!/bin/sh\n", "pack/orla-tool.json": `{"kind": "AgentRole"}`}, []string{"pack/orla-tool.json:1:10"}},
		"beside a lower version": {map[string]string{
			"pack/2.0.0/tool.yaml": strings.Replace(described, "1.0.0", "2.0.0", 1), "pack/2.0.0/main.sh": "#!/bin/sh\n",
			"pack/1.0.0/tool.yaml": described, "pack/1.0.0/policy.yaml": rule,
		}, []string{"pack/1.0.0/policy.yaml:2:7"}},
		"far down":                           {map[string]string{strings.Repeat("d/", maxLevels+1) + "a.yaml": rule}, []string{""}},
		"below a comment that ends with CR":  {map[string]string{"a.yaml": "# c\rkind: ToolPermission\n"}, []string{"a.yaml:2:7"}},
		"below a comment that ends with NEL": {map[string]string{"a.yaml": "# c\u0085kind: ToolPermission\n"}, []string{"a.yaml:2:7"}},
		"below a comment that ends with LS":  {map[string]string{"a.yaml": "# c\u2028kind: ToolPermission\n"}, []string{"a.yaml:2:7"}},
		"below a comment that ends with PS":  {map[string]string{"a.yaml": "# c\u2029kind: ToolPermission\n"}, []string{"a.yaml:2:7"}},
		"below an end that ends with CR":     {map[string]string{"a.yaml": "...\rkind: ToolPermission\n"}, []string{"a.yaml:1:11"}},
		"lines that end with CR":             {map[string]string{"a.yaml": strings.ReplaceAll("# c\n"+rule+"---\n"+tool, "\n", "\r"), "b.yaml": strings.ReplaceAll(tool+"---\n"+rule, "\n", "\r")}, []string{"a.yaml:1:36", "b.yaml:1:134"}},
		"lines that end with LS":             {map[string]string{"b.yaml": strings.ReplaceAll(tool+"---\n"+rule, "\n", "\u2028")}, []string{"b.yaml:1:146"}},
		"UTF-16 without a mark":              {map[string]string{"a.yaml": manifesttest.UTF16("# a\n" + rule), "b.json": "\x00" + manifesttest.UTF16(`{"kind": "AgentRole"} `), "c.yaml": "\x00" + manifesttest.UTF16("# a\n"+strings.Repeat("# b\n", 20_000)+rule)}, []string{"a.yaml:3:7", "b.json:1:13", "c.yaml:20003:7"}},
		"with a NUL":                         {map[string]string{"a.yaml": rule + "# \x00\n"}, []string{"a.yaml:2:7"}},
		"escaped, and broken":                {map[string]string{"a.yaml": "kind: \"Tool\\x50ermission\"\na: [\n"}, []string{"a.yaml:1:1"}},
		"encoded":                            {map[string]string{"a.yaml": head + "kind: !!binary QWdlbnRSb2xl\n", "b.yaml": "kind: !<tag:yaml.org,2002:binary> QWdlbnRSb2xl\n"}, []string{"a.yaml:2:7", "b.yaml:1:7"}},
		"a key that is an alias":             {map[string]string{"a.yaml": "a: &k kind\n*k : ToolPermission\n"}, []string{"a.yaml:2:6"}},
		"a key of another form":              {map[string]string{"a.yaml": "\"\u212aind \": ToolPermi\u017f\u017fion\n"}, []string{"a.yaml:1:10"}},
		"an old version":                     {map[string]string{"a.yaml": "apiVersion: orloj.ai/v1alpha1\nkind: ToolPermision\n", "b.yaml": "apiVersion: Orloj.dev/v1\nkind: Approval\n"}, []string{"a.yaml:2:7", "b.yaml:1:1"}},
		"misspelt, without a version":        {map[string]string{"a.yaml": "kind: ToolPermision\n", "b.yaml": "kind: TOOLPERMISION\n", "c.json": `{"kind": "AgentRol"}`, "d.yaml": large + large + "---\nkind: AgentPolcy\n"}, []string{"a.yaml:1:7", "b.yaml:1:7", "c.json:1:10", "d.yaml:10002:7"}},
		"the plural":                         {map[string]string{"a.yaml": "kind: AgentPolicies\n", "b.yaml": "kind: tool-permissions\n", "c.yaml": "kind: List\nitems: [{a: 1}, {kind: agentroles}]\n", "d.yaml": "kind: AgentRoleList\n"}, []string{"a.yaml:1:7", "b.yaml:1:7", "c.yaml:2:24", "d.yaml:1:7"}},
		"a kind that nobody knows":           {map[string]string{"a.yaml": head + "kind: ToolApproval\n"}, []string{"a.yaml:1:1"}},
		"a broken part beside one":           {map[string]string{"a.yaml": whole + "---\nap\x00\x00\x00\n", "b.yaml": tool + "---\na: [\n", "c.yaml": "a: ]\n---\n" + tool + "---\n" + strings.Replace(whole, "no-rm", "no-mv", 1)}, []string{"a.yaml:5:1", "c.yaml:1:1"}},
		"broken, of such a kind":             {map[string]string{"a.yaml": head + "kind: Approval\na: [\n"}, nil},
		"without a kind":                     {map[string]string{"a.yaml": "spec: {operation_rules: [{verdict: deny}]}\n", "b.json": `{"spec": {"blocked_tools": ["*"]}}`, "c.yaml": head + "spec: {x: 1}\n"}, []string{"a.yaml:1:1", "b.json:1:1", "c.yaml:1:1"}},
		"JSON, one text after another":       {map[string]string{"a.json": `{"kind": "x"}` + "\n" + `{"kind": "AgentRole"}`, "b.json": `{"kind":"AgentRole"}{}`}, []string{"a.json:2:11", "b.json:1:10"}},
		"JSON of a list":                     {map[string]string{"a.json": `{"items": [{"kind": "AgentRole"}], "kind": "List"}`}, []string{"a.json:1:21"}},
		"in a list, misspelt":                {map[string]string{"a.yaml": "apiVersion: v1\nkind: List\nitems:\n- kind: ToolPermision\n", "b.json": `{"kind": "List", "items": [{"spec": {"blocked_tools": []}}]}`}, []string{"a.yaml:1:1", "b.json:1:1"}},
		"by a merge key":                     {map[string]string{"a.yaml": "x: &k {kind: AgentRole}\n<<: *k\n"}, []string{"a.yaml:1:14"}},
		"two kinds, of Kubernetes":           {map[string]string{"a.yaml": "apiVersion: v1\nkind: Secret\nKind: AgentRole\n"}, []string{"a.yaml:3:7"}},
		"at the end of a large file":         {map[string]string{"a.yaml": strings.Repeat(large, 14) + "---\n" + rule}, []string{"a.yaml:1:1"}},
		"a large file of UTF-16":             {map[string]string{"a.yaml": "\xff\xfe" + manifesttest.UTF16(strings.Repeat(large, 10)+"---\n"+rule)}, []string{"a.yaml:1:1"}},
		"a large file, escaped":              {map[string]string{"a.yaml": strings.Repeat(large, 14) + "---\nkind: \"Tool\\u0050er\\\n   mission\"\n"}, []string{"a.yaml:1:1"}},
		"a large file of resources":          {map[string]string{"a.yaml": strings.Repeat(large, 14) + "---\n" + tool}, nil},
		"large JSON":                         {map[string]string{"a.json": `{"x": "` + strings.Repeat("x", tooLarge) + `", "kind": "AgentRole"}`, "b.json": `{"items": [{"x": "` + strings.Repeat("x", tooLarge) + `", "kind": "AgentRole"}], "kind": "List"}`, "c.json": `{"spec": {"x": "` + strings.Repeat("x", tooLarge) + `", "operation_rules": []}}`}, []string{"a.json:1:1", "b.json:1:1", "c.json:1:1"}},
		"large JSON, broken":                 {map[string]string{"a.json": `{"x": "` + strings.Repeat("x", tooLarge) + `", "text": "an AgentRole"]`, "b.json": `{"x": "` + strings.Repeat("x", tooLarge) + `"} # AgentRole`, "c.json": `{"x": "` + strings.Repeat("x", tooLarge) + `", "text": AgentRole}`}, []string{"a.json:1:1"}},
		"large YAML": {map[string]string{
			"a.yaml": strings.Repeat(large, 14) + "---\nkind: !!binary QWdlbnRSb2xl\n", "b.yaml": strings.Repeat(large, 14) + "---\nspec: {operation_rules: []}\n",
			"c.yaml": strings.Repeat(large, 14) + "---\nkind: ToolPermision\n", "d.yaml": strings.Repeat(large, 14) + "a: [\n# AgentRole\n",
			"e.yaml": strings.Repeat("- {data: here, text: an AgentRole}\n", (16<<20)/30),
		}, []string{"a.yaml:1:1", "b.yaml:1:1", "c.yaml:1:1", "d.yaml:1:1", "e.yaml:1:1"}},
		"large YAML that speaks of it": {map[string]string{
			"a.yaml": strings.Repeat(large, 14) + "- {text: 'kind: ToolPermission', kind: AgentRole, of: orloj.dev}\n# AgentRole\n",
			"b.yaml": "a:\n" + strings.Repeat("- text: |\n    apiVersion: orloj.dev/v1\n    kind: ToolPermission\n    "+long+"\n", 2500),
			"c.yaml": strings.Repeat("---\ntext: an AgentRole "+long+"\n", 2500),
		}, nil},

		"a text in data": {map[string]string{
			"a.yaml": "kind: ConfigMap\napiVersion: v1\ndata:\n  a.yaml: |\n    apiVersion: orloj.dev/v1\n    kind: ToolPermission\n",
			"b.yaml": "|\n  kind: ToolPermission\n", "c.json": `[{"text": "kind: ToolPermission"}]`,
			"d.json": `{"notes": [{"text": "apiVersion: orloj.dev/v1\nkind: ToolPermission"}]}`,
		}, nil},
		"an object in data": {map[string]string{
			"a.json": `[{"kind": "AgentRole"}]`, "b.json": `{"notes": [{"apiVersion": "orloj.dev/v1", "kind": "AgentRole", "operation_rules": []}]}`,
			"c.yaml": "- kind: AgentRole\n", "d.yaml": "items: [{kind: agentroles}]\n", "e.json": `{"kind": ["AgentRole"], "list": {"kind": "List", "items": [{"kind": "AgentRole"}]}}`,
			"f.json": `{"<<": {"kind": "AgentRole"}}`,
		}, nil},
		// A stranger can have a tool write JSON that the decoder of YAML refuses.
		"JSON that YAML does not take": {map[string]string{
			"a.json": `[{"text": "` + "\x7f" + `kind: ToolPermission"}]`, "b.json": `[{"text": "\ud800 ToolPermission"}]`,
			"c.json": `{"` + strings.Repeat("x", 2000) + `": "ToolPermission"}`, "d.json": `[NaN, "ToolPermission"]`,
			"e.json": `{"text": "ToolPermission"}` + "\n" + `{"text": "kind: AgentRole"}` + "\n", "f.json": strings.Repeat("[", 200) + `"ToolPermission"` + strings.Repeat("]", 200),
			"g.yaml": `["\/", "` + "\u0081" + `kind: AgentRole"]`,
		}, nil},
		"JSON that is being written":         {map[string]string{"a.json": `[{"text": "kind: ToolPermission"`, "b.json": `{"notes": ["kind: ToolPermission", "b`, "c.json": `[1, "AgentRole", tru`}, nil},
		"a mention after too many documents": {map[string]string{"a.yaml": strings.Repeat("---\na: 1\n", maxDocuments) + "---\ntext: 'kind: ToolPermission'\n", "b.yaml": strings.Repeat("---\n"+tool, maxDocuments) + "---\n# AgentRole\n" + tool}, nil},
		"hidden":                             {map[string]string{".a.yaml": rule, ".git/a.yaml": rule}, nil},
		"a backup":                           {map[string]string{"a.yaml~": rule}, nil},
		"a comment":                          {map[string]string{"a.yaml": tool + "# kind: ToolPermission\n"}, nil},
		"a tool that speaks of it":           {map[string]string{"a.yaml": tool[:len(tool)-2] + ", description: 'kind: ToolPermission'}\n"}, nil},
		"data that speaks of it":             {map[string]string{"a.yaml": "text: an AgentPolicy\n", "b.json": `{"text": "AgentRole"}`}, nil},
		"another tool's fault":               {map[string]string{"a.yaml": strings.Replace(tool, "endpoint", "endpiont", 1)}, nil},
		"another kind":                       {map[string]string{"a.yaml": head + "kind: Agent\n"}, nil},
		"a folder":                           {map[string]string{"a.yaml/b.yaml": tool}, nil},
		"links that lead nowhere":            {map[string]string{"a": "-> gone", "b.sh": "-> ../gone.sh", "c": "-> c", ".#a.yaml": "-> somebody@host", "pack/tool.yaml": described, "pack/main.sh": "#!/bin/sh\n", "pack/d": "-> gone"}, nil},
		"links to folders":                   {map[string]string{"a": "-> ../out", "../out/a.json": `{"kind": "data"}`, "../out/up": "-> ../tools", "../out/.git/a.yaml": rule, "b": "-> .", "venv": "-> ../more", "../more/a.yaml": rule}, nil},
		"of package managers":                {map[string]string{"node_modules/a/a.yaml": rule, "pack/tool.yaml": described, "pack/main.sh": "#!/bin/sh\n", "pack/node_modules/a.yaml": rule, "pack/.venv/a.yaml": rule, "pack/.git/a.yaml": rule}, nil},
		"data of a package":                  {map[string]string{"pack/tool.yaml": described, "pack/main.sh": "#!/bin/sh\n", "pack/data/a.yaml": "a: [\n", "pack/data/b.json": "\x00\x01\xff", "pack/lib/tool.yaml": described, "pack/values.yaml": "{{ .x }}\n"}, nil},
		"binary data":                        {map[string]string{"a.json": "\x00\x01\x02\xff", "b.yaml": strings.Repeat("\x00\xfe\x01", 1000), "c.bin": rule}, nil},
		"large data":                         {map[string]string{"a.json": `{"x": "` + strings.Repeat("x", tooLarge) + `"}`, "b.yaml": strings.Repeat(large, 14), "c.json": "{" + strings.Repeat(" ", tooLarge)}, nil},
		"large data that speaks of it":       {map[string]string{"a.json": "\ufeff" + `[-1.5e+3, true, null, {}, [], {"x": "` + strings.Repeat("x", tooLarge) + `", "text": "an AgentRole of orloj.dev \"and\" \\", "kind": {"AgentRole": 1}, "kinds": ["AgentRole"]}]` + "\n", "b.json": `{"x": "` + strings.Repeat("x", tooLarge) + `", "y": [1, {"kind": "AgentRole"}]}`}, nil},
		"a text that speaks of it":           {map[string]string{"a.json": `{"kind": "x", "text": "a document of\nkind: ToolPermission is one\n"}`, "b.yaml": "a: |\n  the AgentRole\n"}, nil},
		"other kinds":                        {map[string]string{"a.yaml": head + "kind: AgentSystem\n", "b.yaml": head + "kind: Tol\n", "c.yaml": head, "d.yaml": "apiVersion: other/v1\nkind: AgentRule\n", "e.yaml": "kind: Toolbox\n"}, nil},
		"a broken tool":                      {map[string]string{"a.yaml": head + "kind: Tool\nmetadata: {name: a\n", "b.json": `{"apiVersion": "orloj.dev/v1", "kind": "Tool", "metadata": {`, "c.yaml": head + "kind: Tol\na: [\n"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "tools")
			for file, text := range c.files {
				if len(text) > 1<<20 {
					needs.Time(t, "reads a file of megabytes")
				}
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
			for _, p := range Tools(Options{UserDir: dir}).Problems {
				if !p.Denies {
					continue
				}
				if p.Severity != manifest.Fault {
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

// SPEC-TOOLS 8.3: a link may lead to more than is searched.
func TestT83MoreThanIsSearchedDenies(t *testing.T) {
	dir := t.TempDir()
	tools, outside := filepath.Join(dir, "tools"), filepath.Join(dir, "outside")
	for at, names := range map[string][]string{tools: {"a", "b", "c", "d"}, outside: {"e", "f"}, filepath.Join(outside, "more"): {"g", "h"}} {
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(at, name), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Symlink("../outside", filepath.Join(tools, "link")); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int]int{4: 1, 5: 0} {
		w := newWalker()
		w.mostLinked = most
		w.tree(tools)
		denies := 0
		for _, p := range w.problems {
			if p.Denies {
				denies++
			}
		}
		if denies != want {
			t.Errorf("at most %d: %v", most, w.problems)
		}
	}
}
