package container

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/recovered"
)

// Labels of a container.
const (
	labelInstance = "orla.instance"
	labelTool     = "orla.tool"
	labelFolder   = "orla.folder"
	labelOwner    = "orla.owner"
)

func (e *Engine) labels(tool string) []string {
	return []string{
		"--label=" + labelInstance + "=" + e.instance,
		"--label=" + labelTool + "=" + tool,
		"--label=" + labelFolder + "=" + e.folder,
		"--label=" + labelOwner + "=" + e.owner,
	}
}

// owner identifies the process that asked for a container.
type owner struct {
	space string // the boot and the namespace in which its id counts; "" if that is not known
	pid   int
	start string // when it was started
}

func (o owner) String() string { return fmt.Sprintf("%s.%d.%s", o.space, o.pid, o.start) }

// parseOwner parses the text that String returns.
func parseOwner(text string) (owner, bool) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return owner{}, false
	}
	pid, err := strconv.Atoi(parts[1])
	return owner{parts[0], pid, parts[2]}, err == nil
}

// gone reports whether the process has ended. known is false if that cannot be found out here: the
// process ran on another machine, in another container, or before the last boot.
func (o owner) gone() (gone, known bool) {
	here := thisProcess()
	if o.space == "" || o.space != here.space {
		return false, false
	}
	return startOf(o.pid) != o.start, true
}

// listed is a container, as both engines list it.
type listed struct {
	name, state, owner string
	created            time.Time
}

// sweepPatience bounds a sweep.
const sweepPatience = 2 * time.Minute

// strangerAge is how long a container must have existed without running before it is swept if its
// Orla cannot be checked.
const strangerAge = 24 * time.Hour

// Sweep removes the containers of killed Orlas that served the same folder, and the temporary
// folders of all killed Orlas of this user. It runs once, in the background; further calls do
// nothing.
func (e *Engine) Sweep() {
	e.swept.Do(func() {
		if e.enter() != nil {
			return // Orla is stopping
		}
		go func() {
			defer e.work.Done()
			defer recovered.To(e.opts.Log, "look for containers that an earlier Orla left", nil)
			e.sweepFolders()
			ctx, cancel := e.bounded(context.Background(), sweepPatience)
			defer cancel()
			if err := e.sweep(ctx); err != nil && ctx.Err() == nil {
				e.opts.Log.Warn("look for containers that an earlier Orla left", "err", err)
			}
		}()
	})
}

func (e *Engine) sweep(ctx context.Context) error {
	m, err := e.found(ctx)
	if err != nil {
		return nil //nolint:nilerr // without an engine there is nothing to sweep; calls report the error
	}
	all, err := e.list(ctx, m)
	if err != nil {
		return err
	}
	for _, c := range all {
		o, ok := parseOwner(c.owner)
		gone, known := o.gone()
		switch {
		case !ok, known && !gone, !ourName().MatchString(c.name): // labels may be those of an image
			continue
		case !known && (c.state == "running" || c.created.IsZero() || time.Since(c.created) < strangerAge):
			continue // its Orla may run where this one cannot see it
		}
		if err := e.remove(ctx, m, c.name, 1); err != nil {
			e.opts.Log.Warn("remove a container that an earlier Orla left", "container", c.name, "err", err)
			continue
		}
		e.opts.Log.Info("removed a container that an earlier Orla left", "container", c.name, "state", c.state)
	}
	return nil
}

// inspect is repeated this often, with a pause, if it fails: podman's fails if one of the containers
// is removed at that moment.
const (
	listTries = 10
	listPause = 500 * time.Millisecond
)

// list lists the containers of this folder.
func (e *Engine) list(ctx context.Context, m *made) (all []listed, err error) {
	for range listTries {
		if all, err = e.listOnce(ctx, m); err == nil {
			return all, nil
		}
		if !pace.Sleep(ctx, listPause) {
			return nil, err
		}
	}
	return nil, err
}

func (e *Engine) listOnce(ctx context.Context, m *made) ([]listed, error) {
	ours := "--filter=label=" + labelFolder + "=" + e.folder
	if m.podman {
		return e.listPodman(ctx, m, ours)
	}
	out, err := e.command(ctx, nil, m.path, "ps", "--all", "--quiet", "--no-trunc", ours)
	if err != nil {
		return nil, err
	}
	ids := strings.Fields(string(out))
	if len(ids) == 0 {
		return nil, nil
	}
	out, err = e.command(ctx, nil, slices.Concat([]string{m.path, "container", "inspect"}, ids)...)
	var described []struct {
		Name    string
		Created time.Time
		State   struct{ Status string }
		Config  struct{ Labels map[string]string }
	}
	if jsonErr := json.Unmarshal(out, &described); jsonErr != nil { // a container that is gone is an error, but the others are printed
		return nil, cmp.Or(err, jsonErr)
	}
	var all []listed
	for _, d := range described {
		all = append(all, listed{strings.TrimPrefix(d.Name, "/"), d.State.Status, d.Config.Labels[labelOwner], d.Created})
	}
	return all, nil
}

// listPodman lists them with podman ps. podman inspect fails for a container with missing files, as
// a podman that was killed leaves it.
func (e *Engine) listPodman(ctx context.Context, m *made, ours string) ([]listed, error) {
	out, err := e.command(ctx, nil, m.path, "ps", "--all", ours, "--format=json")
	if err != nil {
		return nil, err
	}
	var described []struct {
		Names   []string
		State   string
		Created int64 // seconds since 1970
		Labels  map[string]string
	}
	if err := json.Unmarshal(out, &described); err != nil {
		return nil, err
	}
	var all []listed
	for _, d := range described {
		if len(d.Names) > 0 {
			all = append(all, listed{d.Names[0], d.State, d.Labels[labelOwner], time.Unix(d.Created, 0)})
		}
	}
	return all, nil
}

// thisProcess returns the owner for this Orla.
func thisProcess() owner {
	return owner{space: space(), pid: os.Getpid(), start: startOf(os.Getpid())}
}
