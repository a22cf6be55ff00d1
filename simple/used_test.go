package simple

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/manifest"
)

// ofArgs is a command with one template.
func ofArgs(t *testing.T, template string) *cli {
	t.Helper()
	arguments, err := argumentsOf([]string{template})
	if err != nil {
		t.Fatal(err)
	}
	return &cli{CLI: manifest.CLI{Command: "command"}, arguments: arguments}
}

// SPEC-TOOLS 3.6: a template is known by what it can use of the arguments.
func TestT36WhatATemplateUses(t *testing.T) {
	for template, want := range map[string]string{
		"literal":                              "",
		"{{.a}}-{{.b.c}}":                      "a b",
		"{{if .a}}{{.b}}{{else}}{{.c}}{{end}}": "a b c",
		"{{range .a}}{{.b}}{{.}}{{$.c}}{{else}}{{.d}}{{end}}":          "a c d",
		"{{with $x := .a}}{{$x.b}}{{.c}}{{else with .d}}{{.e}}{{end}}": "a d",
		"{{(index .a 0).b | printf .c}}":                               "a c",
		`{{define "x"}}{{.b}}{{$.c}}{{.}}{{end}}{{template "x" .a}}`:   "a",
		`{{define "x"}}{{.b}}{{end}}{{template "x" .}}`:                "*",
		`{{block "x" .}}{{.b}}{{end}}`:                                 "*",
		`{{index . "a"}}`:                                              "*",
		"{{$x := .}}{{$x.a}}":                                          "*",
		"{{range .a}}{{$}}{{end}}":                                     "*",
		"{{with .}}{{.a}}{{end}}":                                      "*",
		"{{range .a}}{{else}}{{.}}{{end}}":                             "*",
		"{{len (print .)}}":                                            "*",
	} {
		got := ofArgs(t, template).arguments[0].uses
		names := strings.Join(slices.Sorted(maps.Keys(got.names)), " ")
		if got.all {
			names = "*"
		}
		if names != want {
			t.Errorf("%s uses %q; want %q", template, names, want)
		}
	}
}

// SPEC S2: the arguments of a call take a few times their bytes, whatever values are in them.
func TestS2ArgumentsOfACommandTakeAFewTimesTheirBytes(t *testing.T) {
	for name, values := range map[string]string{"empty": "{}", "members": `{"":0}`, "numbers": "0"} {
		many := "[" + strings.Repeat(values+",", 400_000) + values + "]"
		for template, refused := range map[string]bool{"{{.x}}": false, "{{.a}}": true, "{{index . `x`}}": true, "{{range .a}}{{end}}": true} {
			args := json.RawMessage(`{"x":"1","a":` + many + `}`)
			var err error
			c := ofArgs(t, template)
			took := allocated(func() { _, err = c.input(t.Context(), args) })
			if took > 2*len(args) {
				t.Errorf("%s: %s: %d bytes took %d", name, template, len(args), took)
			}
			if refused != (fault.CodeOf(err) == fault.InvalidInput) || refused != (err != nil) {
				t.Errorf("%s: %s: error = %v", name, template, err)
			}
		}
	}
}

// SPEC S2, N2: what many arguments take is counted before it is spent, and waits within the
// call's deadline. What templates take of it is given back.
func TestS2ManyArgumentsAreCounted(t *testing.T) {
	cli := ofArgs(t, "{{len .a}}")
	flags := &Command{tool: manifest.Tool{Run: manifest.Run{Arguments: manifest.ArgumentsFlags}}}
	for name, test := range map[string]struct {
		args string
		of   func(ctx context.Context, args json.RawMessage) (input, error)
		kept bool // until the call ends
	}{
		"templates": {`{"a":[` + strings.Repeat("0,", 5000) + `0]}`, cli.input, false},
		"flags":     {`{` + strings.TrimSuffix(numbered(3000), `,"":0`) + `}`, flags.input, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				args := json.RawMessage(test.args)
				room := turns.NewRoom(1 << 20)
				all := room.Free()
				var release []func()
				for range 2 { // the second goes beyond the limit, and a third one waits
					ctx, end := room.Open(t.Context(), turns.Owner{Caller: "other"})
					release = append(release, end)
					if err := turns.AccountOf(ctx).Need(ctx, 1<<20+turns.Little); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				ctx, end := room.Open(ctx, turns.Owner{Caller: "one"})
				done := make(chan error, 1)
				go func() { _, err := test.of(ctx, args); done <- err }()
				synctest.Wait()
				select {
				case err := <-done:
					t.Fatalf("it did not wait: %v", err)
				default:
				}
				over := errors.New("over")
				cancel(over)
				if err := <-done; !errors.Is(err, over) {
					t.Errorf("error = %v; want %v", err, over)
				}
				end()
				for _, end := range release {
					end()
				}
				ctx, end = room.Open(t.Context(), turns.Owner{Caller: "one"})
				if in, err := test.of(ctx, args); err != nil || len(in.flags) == 0 {
					t.Errorf("%q, %v", in.flags, err)
				}
				if kept := room.Free() < all; kept != test.kept {
					t.Errorf("%d of %d bytes are free", room.Free(), all)
				}
				end()
				if room.Free() != all {
					t.Errorf("%d of %d bytes are free at the end", room.Free(), all)
				}
			})
		})
	}
}
