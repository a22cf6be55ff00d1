package recorded

import (
	"strings"
	"testing"
)

// SPEC O3: who looks at the file of a tool does not see the Secrets that stand in it.
func TestO3TheFileOfAToolIsShownWithoutSecrets(t *testing.T) {
	const (
		tool   = "# Ours.\napiVersion: orloj.dev/v1\nkind: Tool\nmetadata: {name: a}\nspec: {endpoint: 'https://example.com', auth: {secretRef: a}}\n"
		secret = "apiVersion: orloj.dev/v1\nkind: Secret\nmetadata: {name: a}\nspec:\n  stringData: {value: hidden}\n"
	)
	for name, c := range map[string]struct{ text, want string }{
		"below the tool":   {tool + "---\n" + secret, tool + "---\n" + leftOut},
		"above the tool":   {secret + "---\n" + tool, leftOut + "---\n" + tool},
		"below a line":     {"---\n" + tool + "--- # the key\n" + secret + "---\n" + tool, "---\n" + tool + "---\n" + leftOut + "---\n" + tool},
		"of Kubernetes":    {tool + "---\napiVersion: v1\nkind: Secret\ndata: {value: hidden}\n", tool + "---\n" + leftOut},
		"in another case":  {tool + "---\n" + strings.Replace(secret, "kind: Secret", "Kind: secret", 1), tool + "---\n" + leftOut},
		"quoted":           {tool + "---\n" + strings.Replace(secret, "Secret", `"\x53ecret"`, 1), tool + "---\n" + leftOut},
		"in a list":        {tool + "---\nkind: List\nitems:\n- kind: Secret\n  data: {value: hidden}\n", tool + "---\n" + leftOut},
		"that is at fault": {tool + "---\n" + secret + "x: [hidden\n", tool + "---\n" + leftOut},
		"a broken tool":    {tool + "x: [\n", ""}, // it may be the end of a Secret: it names one
		"no Secret":        {tool + "---\n" + tool, tool + "---\n" + tool},
		"a tool.yaml":      {"name: a\nversion: 1.0.0\n", "name: a\nversion: 1.0.0\n"},
	} {
		if c.want == "" {
			c.want = leftOut
		}
		if got := string(withoutSecrets([]byte(c.text))); got != c.want || strings.Contains(got, "hidden") {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}
