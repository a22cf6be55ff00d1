package running

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/control/unixsocket"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/manifest"
)

// NearName returns err. If it is about an unknown tool, it says why that tool is not served, or has a hint: a
// tool with a similar name.
func NearName(ctx context.Context, client *control.Client, names []string, err error) error {
	f, _ := errors.AsType[*exit.Error](err)
	refused, isRefused := errors.AsType[*control.Error](err)
	if f == nil || f.Hint != "" || !isRefused || refused.Code != string(fault.UnsupportedTool) {
		return err
	}
	status, statusErr := client.Status(ctx)
	if statusErr != nil {
		return err
	}
	found := foundBy(status)
	for _, name := range names {
		known, unserved := notServed(name, found)
		if unserved != nil {
			return unserved
		}
		for i := range status.Tools {
			known = append(known, status.Tools[i].Name)
		}
		if near := yamldoc.Nearest(name, known); near != "" && near != name {
			return &exit.Error{Code: f.Code, Err: f.Err, Hint: fmt.Sprintf("did you mean %q?", near)}
		}
	}
	return err
}

// foundBy is what the search of a running Orla found, as far as its status says.
func foundBy(status *control.Status) (found manifest.Result) {
	for _, t := range status.Tools {
		found.Tools = append(found.Tools, manifest.Tool{Name: t.Name, Kind: manifest.Kind(t.Kind)})
	}
	for _, p := range status.Problems {
		found.Problems = append(found.Problems, manifest.Problem{Tool: p.Tool, Path: p.Path, Err: errors.New(strings.Join(p.Messages, "\n"))})
	}
	return found
}

// NoToolOf says why a running Orla has no tool with a name, if Orla knows. served reports whether a capsule has that name.
func NoToolOf(ctx context.Context, client *control.Client, name string, tools []control.ListedTool) (served bool, _ error) {
	status, err := client.Status(ctx)
	if err != nil {
		return false, Explain(err)
	}
	served, err = noToolIn(status, name, tools)
	return served, err
}

func noToolIn(status *control.Status, name string, tools []control.ListedTool) (served bool, _ error) {
	var listed, others []string
	for _, t := range tools {
		if t.Of != "" && discovery.BelongsTo(name, t.Of) {
			listed = append(listed, t.Name)
		} else {
			others = append(others, t.Name)
		}
	}
	of := slices.IndexFunc(status.Tools, func(t control.ToolStatus) bool {
		return t.State != "" && (t.Name == name || isDown(t) && discovery.BelongsTo(name, t.Name))
	})
	if of < 0 {
		return false, NoTool(name, foundBy(status), listed, others)
	}
	t := status.Tools[of]
	f := &exit.Error{Code: exit.Failed, Hint: fmt.Sprintf("orla status %s says more", t.Name)}
	switch {
	case isDown(t) && (len(listed) == 0 || slices.Equal(listed, []string{t.Name})): // nobody knows which tools it has
		f.Err = fmt.Errorf("%s is %s: %s", t.Name, t.State, t.Reason)
	case len(listed) == 0:
		f.Err = fmt.Errorf("%s is %s, and none of its tools is served", t.Name, t.State)
	default:
		return true, NoTool(name, foundBy(status), listed, others)
	}
	return true, f
}

// isDown reports whether a capsule has no process, and not because nobody calls it.
func isDown(t control.ToolStatus) bool {
	return t.State == "CRASHED" || t.State == "STOPPED" && (t.Held || t.Failures > 0)
}

// NoTool says why there is no tool with a name, if the search knows. listed are the tools of the
// capsules that might have had it, and others are further tools.
func NoTool(name string, found manifest.Result, listed, others []string) error {
	known, err := notServed(name, found)
	if err != nil {
		return err
	}
	for _, t := range found.Tools {
		if t.Name != name { // a capsule need not have a tool of its own name
			known = append(known, t.Name)
		}
	}
	f := &exit.Error{Code: exit.Failed, Err: fmt.Errorf("there is no tool %q", name), Hint: noToolHint}
	if near := nearTool(name, slices.Concat(known, listed, others)); near != "" {
		f.Hint = fmt.Sprintf("did you mean %q? orla tools lists all tools", near)
	} else if hint := hintOfCapsule(name, found.Tools, listed); hint != "" {
		f.Hint = hint
	}
	return f
}

const noToolHint = "orla tools lists all tools"

// OrElsewhere returns err, the failure of a call that no running Orla has made. If there is no such tool here, its hint names
// the only Orla that runs: other commands mean that one.
func OrElsewhere(ctx context.Context, err error, cfg *config.Loaded, l *config.Loader) error {
	f, ok := errors.AsType[*exit.Error](err)
	if !ok || f.Hint != noToolHint || cfg.GivenHere("tools_dir") || cfg.Socket != "" {
		return err
	}
	if all, failure := unixsocket.All(ctx, cfg.SocketDirs(l)); failure == nil && len(all) == 1 {
		f.Hint = "the Orla that runs serves another folder: --tools-dir " + all[0].ToolsDir + " means that one"
	}
	return err
}

// notServed returns the problem of the tool with a name as an error; if there is none, the names of all tools that
// have one.
func notServed(name string, found manifest.Result) (known []string, _ error) {
	for _, p := range found.Problems {
		if slices.ContainsFunc(found.Tools, func(t manifest.Tool) bool { return t.Name == p.Tool }) {
			continue // it is served
		}
		names := namesOfProblem(p)
		if slices.Contains(names, name) {
			return nil, &exit.Error{Code: exit.Invalid, Err: fmt.Errorf("%s is not served: %s", name, located(p))}
		}
		known = append(known, names...)
	}
	return known, nil
}

// namesOfProblem returns the names by which somebody may call the tool of a problem: that of the tool, of
// its file with or without extension, and of its package.
func namesOfProblem(p manifest.Problem) []string {
	if p.Tool != "" {
		return []string{p.Tool, filepath.Base(p.Path)}
	}
	base := filepath.Base(p.Path)
	if base == "tool.yaml" || base == "orla-tool.json" {
		return []string{filepath.Base(filepath.Dir(p.Path))}
	}
	return []string{strings.TrimSuffix(base, filepath.Ext(base)), base}
}

// located returns the text of a problem, with its file.
func located(p manifest.Problem) string {
	messages := discovery.Messages(p)
	for i, text := range messages {
		switch {
		case p.Path == "" || strings.HasPrefix(text, p.Path):
		case strings.HasPrefix(text, "is "), strings.HasPrefix(text, "has "), strings.HasPrefix(text, "cannot "):
			messages[i] = p.Path + " " + text
		default:
			messages[i] = p.Path + ": " + text
		}
	}
	return strings.Join(messages, "\n")
}

// nearTool returns the tool that was probably meant by an unknown name; "" for none. It is one with a
// similar name, with the name that MCP allows, with the name of the file, or with the name of a capsule's tool without its prefix.
func nearTool(name string, known []string) string {
	if allowed := manifest.AllowedName(name); allowed != name && slices.Contains(known, allowed) {
		return allowed
	}
	if near := yamldoc.Nearest(name, known); near != "" {
		return near
	}
	base := filepath.Base(name)
	for _, short := range []string{base, strings.TrimSuffix(base, filepath.Ext(base))} {
		for _, k := range known {
			if k == short || strings.HasSuffix(k, "__"+short) || strings.HasSuffix(k, "--"+short) {
				return k
			}
		}
	}
	return ""
}

// hintOfCapsule lists the tools of the capsule that a name belongs to; "" if there is none.
func hintOfCapsule(name string, tools []manifest.Tool, listed []string) string {
	i := slices.IndexFunc(tools, func(t manifest.Tool) bool {
		return t.Kind == manifest.Capsule && !t.Runtime.Declared && discovery.BelongsTo(name, t.Name)
	})
	if i < 0 {
		return ""
	}
	capsule := tools[i].Name
	const most = 20
	switch {
	case len(listed) == 0:
		return ""
	case len(listed) == 1 && listed[0] == capsule: // it stands for those that nobody knows yet, unless it is one
		return fmt.Sprintf("%s offers %[1]s alone so far; orla call %[1]s says if it is down, and why", capsule)
	}
	return fmt.Sprintf("%s offers %s", capsule, strings.Join(listed[:min(len(listed), most)], ", "))
}
