//go:build !race

package simple_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/needs"
)

// What templates do is bounded, whatever a call makes of them.
func TestT36TemplatesAreBounded(t *testing.T) {
	needs.Time(t, "computes up to a bound")
	list := `[` + strings.Repeat("1,", 2000) + `1]`
	var object strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&object, `"k%d":1,`, i)
	}
	args := fmt.Sprintf(`{"o":{%s"k":1},"l":%s,"m":[%s1],"big":%q,"n":1000000000000}`, object.String(), list, strings.Repeat("1,", 20_000), strings.Repeat("'", 300<<10))
	for template, want := range map[string]string{
		"{{range .l}}{{range $.l}}{{range $.l}}{{$x := 1}}{{end}}{{end}}{{end}}":                     "more than",
		"{{if eq .big " + strings.Repeat("$.big ", 400) + "}}{{end}}":                                "more than",
		strings.Repeat(`{{printf "%.0s" .m}}`, 3000):                                                 "more than",
		strings.Repeat(`{{if .l}}{{end}}`, 4000) + `{{range .l}}{{if eq $.big $.big}}{{end}}{{end}}`: "more than",
		"{{range .n}}{{end}}":                                                                                                "more than",
		strings.Repeat("{{range .o}}{{break}}{{end}}", 20):                                                                   "more than", // each sorts the keys
		"{{range .l}}" + strings.Repeat("{{$.none}}", 6000) + "{{end}}":                                                      "more than",
		"{{range .l}}{{if and " + strings.Repeat("true ", 8000) + "}}{{end}}{{end}}":                                         "more than",
		`{{define "x"}}` + strings.Repeat("{{if false}}{{end}}", 3000) + `{{end}}` + strings.Repeat(`{{template "x"}}`, 500): "more than",
		`{{define "x"}}{{template "x"}}{{end}}{{template "x"}}`:                                                              "calls templates",
		`{{define "x"}}{{template "x"}}{{template "x"}}{{end}}{{template "x"}}`:                                              "calls templates",
		"{{$x := js .big}}{{$x = js $x}}{{$x = js $x}}{{$x = js $x}}":                                                        "functions make more",
		"{{$x := print .big .big}}{{$x = print $x $x}}{{$x = print $x $x}}":                                                  "functions make more",
		`{{$x := printf "%q%q%q%q%q%q%q%q" .big .big .big .big .big .big .big .big}}`:                                        "functions make more",
		`{{$x := printf "%[1]s%[1]s" .big}}`:                                                                                 "functions make more",
		`{{$x := printf "%999999d" 1}}{{$x := printf "%4000000d%4000000d" 1 1}}`:                                             "functions make more",
		`{{define "r"}}{{$a := printf "%1000000d" 1}}{{template "r" .}}{{end}}{{template "r" .}}`:                            "functions make more",
		`{{$x := printf "%*d" 100000000 1}}`:                                                                                 "width *",
		`{{$x := printf "%.[1]*[1]d" 100000000}}`:                                                                            "width *",
	} {
		if got := refused(t, args, template); !strings.Contains(got, want) {
			t.Errorf("%.100s: %.200s; want %s", template, got, want)
		}
	}
	// Who has left waits for no template.
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fault.New(fault.Canceled, "gone"))
	_, err := command(t, cliTool(t, "", []string{"{{range .l}}{{end}}"})).Call(ctx, peer.Call{Args: json.RawMessage(args)})
	wantCode(t, err, fault.Canceled)
}
