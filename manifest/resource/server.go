package resource

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/keys"
)

// serverStart is how long an McpServer may take to be ready: npx and uvx may have to download the program first.
const serverStart = 30 * time.Second

// readServer reads an McpServer, which is a capsule (SPEC-TOOLS 3.5).
func (d *Declaration) readServer() {
	document := serverResource{Spec: serverDefaults()}
	_ = d.Doc.Decode(&document) // the Doc keeps the faults, and more are added to them
	spec := document.Spec
	d.Name = d.identify(document.Metadata)
	if !d.hasSpec() {
		return
	}
	d.Sections = map[string]string{"runtime": "spec.default_tool_runtime"}
	d.Tool = manifest.Tool{
		Name:        d.Name,
		Kind:        manifest.Capsule,
		Dir:         d.File.Dir,
		Source:      d.File.Display,
		InputSchema: []byte(keys.AnyObject),
		Run:         manifest.Run{Timeout: d.timeout(spec.DefaultToolRuntime.toolRuntimeKeys)},
		Retry:       d.Retry(spec.DefaultToolRuntime.Retry),
		Runtime:     d.serverRuntime(spec),
	}
	d.Tool.Isolation = d.serverIsolation(spec)
	switch spec.Transport {
	case transportStdio:
		d.readStdio(spec)
	case transportHTTP:
		d.readRemote(spec)
	}
}

func (d *Declaration) serverRuntime(spec serverSpec) manifest.Runtime {
	if d.Doc.Has("spec.reconnect.max_attempts") && spec.Reconnect.MaxAttempts < 0 {
		d.Doc.Faultf("spec.reconnect.max_attempts", "must be at least 1, or 0 for no limit, got %d", spec.Reconnect.MaxAttempts)
	}
	backoff := time.Duration(spec.Reconnect.Backoff)
	if backoff < time.Millisecond {
		d.Doc.Faultf("spec.reconnect.backoff", "must be at least 1ms, got %s", spec.Reconnect.Backoff)
	}
	d.Runtime = keys.RuntimeDefaults()
	r := d.CapsuleRuntime()
	r.Handshake = manifest.HandshakeMCP
	r.Protocol = spec.Protocol
	r.Pin = spec.Pin
	r.StartupTimeout = serverStart
	r.IdleTimeout = time.Duration(spec.IdleTimeout)
	r.Include = d.include(spec.ToolFilter.Include)
	r.Generated = true
	r.HotLoad.Watch = nil // what npx runs is not in the folder, and all else there is not the server's
	r.Restart.Initial = backoff
	r.Restart.Max = max(r.Restart.Max, backoff)
	r.Restart.MaxFailures = spec.Reconnect.MaxAttempts
	return r
}

// include lists the tools that are served; nil for all.
func (d *Declaration) include(given []string) []string {
	var list []string
	has := make(map[string]bool, len(given))
	for i, name := range given {
		if name == "" {
			d.Doc.Faultf("spec.tool_filter.include"+keys.Indexed(i), "must not be empty")
		}
		if !has[name] {
			has[name] = true
			list = append(list, name)
		}
	}
	return list
}

// serverIsolation says where the server's process lives, if it has one here.
func (d *Declaration) serverIsolation(spec serverSpec) manifest.Isolation {
	k := spec.DefaultToolRuntime.isolation()
	if spec.Transport != transportHTTP {
		return d.Isolation(k, d.namespace)
	}
	const at = "spec.default_tool_runtime."
	if k.Mode != "" && k.Mode != manifest.IsolationNone {
		d.Doc.Faultf(at+"isolation_mode", "%s does not go with transport http, which runs nothing on this machine that could be isolated; only none does", k.Mode)
	}
	for _, key := range []string{"image", "image_pull_secret", "network", "resources"} {
		if d.Doc.Has(at + key) {
			d.Doc.Faultf(at+key, "is for transport stdio, and this server's is http")
		}
	}
	return manifest.Isolation{}
}

// foreign refuses keys of the other transport.
func (d *Declaration) foreign(of, is transport, keys ...string) {
	for _, key := range keys {
		if d.Doc.Has("spec." + key) {
			d.Doc.Faultf("spec."+key, "is for transport %s, and this server's is %s", of, is)
		}
	}
}

func (d *Declaration) readRemote(spec serverSpec) {
	d.foreign(transportStdio, transportHTTP, "command", "args", "env")
	d.Tool.Runtime.Remote = &manifest.Remote{Endpoint: d.endpoint(spec.Endpoint, false), Auth: d.serverAuth(spec.Auth)}
}

func (d *Declaration) readStdio(spec serverSpec) {
	d.foreign(transportHTTP, transportStdio, "endpoint", "auth")
	if spec.Command == "" {
		d.Doc.Faultf("spec.command", "is required for transport stdio")
	} else if path, err := d.command(spec.Command); err != nil {
		d.Doc.Faultf("spec.command", "%q %v", spec.Command, err)
	} else {
		d.Tool.Path = path
	}
	if d.File.cluster {
		d.Tool.Runtime.FromCluster = spec.Command
	}
	d.CheckArgs("spec.args", spec.Args)
	d.Tool.Run.Args = spec.Args
	if files := d.Tool.Exposed(); len(files) > 0 && d.Tool.Isolation.Mode == manifest.IsolationKubernetes {
		d.Doc.Faultf("spec.command", "and args name %s, and with isolation_mode kubernetes a server has no files of this machine: build an image that has it, and name its path there",
			strings.Join(files, ", "))
	}
	names := map[string]bool{}
	for i, e := range spec.Env {
		at := "spec.env" + keys.Indexed(i)
		if d.Doc.Has(at + ".name") {
			d.CheckVariable(at+".name", e.Name)
			if names[e.Name] {
				d.Doc.Faultf(at+".name", "%q is there twice", e.Name)
			}
		}
		names[e.Name] = true
		switch {
		case (e.Value == nil) == (e.SecretRef == ""):
			d.Doc.Faultf(at, "wants either value or secretRef")
		case e.Value == nil:
			d.Tool.Run.SecretEnv = append(d.Tool.Run.SecretEnv, manifest.SecretEnv{Name: e.Name, Secret: d.secretRef(at+".secretRef", e.SecretRef)})
		default:
			d.CheckNUL(at+".value", string(*e.Value))
			if d.Tool.Run.Env == nil {
				d.Tool.Run.Env = map[string]string{}
			}
			d.Tool.Run.Env[e.Name] = string(*e.Value)
		}
	}
}

// command finds the program of a server. Links are kept, since programs look at the name that they were called by.
// The program of an isolated server is looked for where the server lives, unless it is in the file's folder.
func (d *Declaration) command(name string) (string, error) {
	if strings.HasPrefix(name, "-") || strings.ContainsFunc(name, isControl) {
		return "", errors.New("is not the name of a program")
	}
	isolation := d.Tool.Isolation
	if !strings.ContainsRune(name, '/') {
		return d.named(name)
	}
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(d.File.Dir, path)
		if isolation.Isolated() && !regularfile.Within(d.File.Dir, path) {
			return "", fmt.Errorf("leaves the file's folder, and with isolation_mode %s nothing else of this machine is seen", isolation.Mode)
		}
	} else if isolation.Isolated() {
		return path, nil
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", errors.New("does not exist; a relative path is relative to the file's folder")
	case err != nil:
		return "", regularfile.ReadError(err)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("is not a regular file but %s", regularfile.KindOf(info.Mode()))
	case info.Mode()&0o111 == 0:
		return "", fmt.Errorf("is not executable: chmod +x %s", path)
	}
	return path, nil
}

// named finds the program of a server by its name.
func (d *Declaration) named(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil && !d.Tool.Isolation.Isolated() {
		return path, nil
	}
	if strings.ContainsAny(name, " \t") {
		return "", errors.New("is not in PATH; its arguments belong in args")
	}
	switch {
	case err != nil && d.File.cluster && !d.Tool.Isolation.Isolated():
		return "", errors.New("is not in PATH of Orla; use an isolation_mode with an image, or transport http")
	case err != nil:
		err = errors.New("is not in PATH; install it, or give its path")
	}
	warning, err := keys.MissingInterpreter(d.Tool.Isolation, err)
	if warning != nil {
		d.Warnings = append(d.Warnings, d.Doc.At("spec.command", "%q %v", name, warning))
	}
	return name, err
}
