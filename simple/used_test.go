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

// SPEC S2, N2: what decoded arguments take is counted before it is spent, within the call's
// deadline, and given back.
func TestS2DecodedArgumentsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := turns.NewRoom(1 << 20)
		args := json.RawMessage(`{"a":[` + strings.Repeat("0,", 2500) + `0]}`)
		c := ofArgs(t, "{{len .a}}")
		all := room.Free()
		var letGo []func()
		for range 2 { // the second goes beyond the limit, and a third one waits
			ctx, release := room.Hold(t.Context(), turns.Owner{Caller: "other"})
			letGo = append(letGo, release)
			if err := turns.HeldBy(ctx).Need(ctx, 1<<20+turns.Little); err != nil {
				t.Fatal(err)
			}
		}
		ctx, end := context.WithCancelCause(t.Context())
		ctx, release := room.Hold(ctx, turns.Owner{Caller: "one"})
		defer release()
		done := make(chan error, 1)
		go func() { _, err := c.input(ctx, args); done <- err }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
		over := errors.New("over")
		end(over)
		if err := <-done; !errors.Is(err, over) {
			t.Errorf("error = %v; want %v", err, over)
		}
		for _, release := range letGo {
			release()
		}
		ctx, release = room.Hold(t.Context(), turns.Owner{Caller: "one"})
		defer release()
		if in, err := c.input(ctx, args); err != nil || !slices.Equal(in.flags, []string{"2501"}) {
			t.Errorf("%q, %v", in.flags, err)
		}
		if room.Free() != all {
			t.Errorf("%d of %d bytes are free", room.Free(), all)
		}
	})
}
