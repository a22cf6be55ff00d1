package container

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
)

// pullPatience bounds the pull of an image, however long callers wait for it.
const pullPatience = 15 * time.Minute

// Limits for the volumes that an image may declare: each becomes a flag.
const (
	maxVolumes = 64
	maxVolume  = 1024 // bytes of a path
)

// image is an image that the engine has.
type image struct {
	id      string
	volumes []string // the folders that it declares as volumes
}

// image returns the image of opts. It pulls a missing one.
func (e *Engine) image(ctx context.Context, m *made, opts Options) (image, error) {
	img, err := e.images.get(ctx, e, opts.imageKey(), pullPatience, func(ctx context.Context) (image, error) {
		img, err := e.inspectImage(ctx, m, opts.Image)
		if _, odd := errors.AsType[*fault.Error](err); err == nil || odd {
			return img, err
		}
		if err := e.pull(ctx, m, opts); err != nil {
			return image{}, err
		}
		img, err = e.inspectImage(ctx, m, opts.Image)
		if err != nil {
			return image{}, fault.New(fault.IsolationUnavailable, "%s pulled image %s and does not have it: %s", m, opts.Image, saidBy(err))
		}
		return img, nil
	})
	if f := fault.From(err); f != nil && ctx.Err() != nil {
		return image{}, fault.Wrap(f.Code, err, "image %s is not here yet; %s goes on pulling it", opts.Image, m)
	}
	return img, err
}

// imageKey is the key of an image in the cache. It includes the tool, since another tool may have
// another secret.
func (o Options) imageKey() string { return o.Image + " " + o.Tool }

func (e *Engine) inspectImage(ctx context.Context, m *made, name string) (image, error) {
	ctx, cancel := context.WithTimeout(ctx, stepPatience)
	defer cancel()
	out, err := e.command(ctx, nil, m.path, "image", "inspect", name)
	if err != nil {
		return image{}, err
	}
	var described []struct {
		ID     string `json:"Id"`
		Config struct{ Volumes map[string]struct{} }
	}
	if err := json.Unmarshal(out, &described); err != nil || len(described) == 0 {
		return image{}, fmt.Errorf("%s does not describe image %s as podman and docker do", m, name)
	}
	volumes := slices.Sorted(maps.Keys(described[0].Config.Volumes))
	if len(volumes) > maxVolumes {
		return image{}, fault.New(fault.RuntimePolicyInvalid, "image %s declares %d volumes, and %d can be replaced", name, len(volumes), maxVolumes)
	}
	for _, volume := range volumes {
		if !filepath.IsAbs(volume) || len(volume) > maxVolume || strings.ContainsAny(volume, ":,\n\"") {
			return image{}, fault.New(fault.RuntimePolicyInvalid, "image %s declares the volume %q, which cannot be replaced", name, printable(volume, lastLineBytes))
		}
	}
	return image{described[0].ID, volumes}, nil
}

// pull pulls an image. The credentials are in a folder that only this user can read, which is
// removed after the pull; they are never on a command line.
func (e *Engine) pull(ctx context.Context, m *made, opts Options) error {
	var environ []string
	if opts.PullSecret != nil {
		value, err := opts.PullSecret()
		if err != nil {
			return err
		}
		config, err := registryConfig(opts.Image, value.Reveal())
		if err != nil {
			return fault.New(fault.SecretResolutionFailed, "the pull secret of image %s: %v", opts.Image, err)
		}
		dir, err := e.temp()
		if err == nil {
			dir, err = os.MkdirTemp(dir, "pull-*") // 0700
		}
		if err != nil {
			return fault.Wrap(fault.StartFailed, err, "no folder can be made for what image %s is pulled with", opts.Image)
		}
		defer func() { _ = os.RemoveAll(dir) }() // only Orla uses it
		file := filepath.Join(dir, "config.json")
		if err := os.WriteFile(file, config, 0o600); err != nil {
			return fault.Wrap(fault.StartFailed, err, "what image %s is pulled with cannot be written down", opts.Image)
		}
		environ = e.credentials(ctx, m, dir, file)
	}
	spared, more, done := m.room.Pull(ctx, 0) // an operator's own image may have any size
	defer done()
	if _, err := e.command(spared, append(environ, more...), m.path, "pull", "--quiet", opts.Image); err != nil {
		why := saidBy(err)
		if spared.Err() != nil && ctx.Err() == nil {
			why = context.Cause(spared).Error()
		}
		return fault.Wrap(fault.IsolationUnavailable, nil, "%s does not have image %s and cannot pull it: %s", m, opts.Image, why)
	}
	return nil
}

// credentials returns the variables that make an engine read dir/config.json in place of its own
// configuration.
func (e *Engine) credentials(ctx context.Context, m *made, dir, file string) []string {
	if m.podman {
		return []string{"REGISTRY_AUTH_FILE=" + file}
	}
	environ := []string{"DOCKER_CONFIG=" + dir}
	// The configuration that this replaces may say where the daemon is.
	if !slices.ContainsFunc(e.opts.Environ, func(kv string) bool { return strings.HasPrefix(kv, "DOCKER_HOST=") }) {
		if out, err := e.command(ctx, nil, m.path, "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"); err == nil {
			if host := strings.TrimSpace(string(out)); host != "" {
				environ = append(environ, "DOCKER_HOST="+host)
			}
		}
	}
	return environ
}

// registryConfig returns a docker config file for a secret. The secret is such a file or
// user:password.
func registryConfig(ref, secret string) ([]byte, error) {
	if strings.HasPrefix(strings.TrimSpace(secret), "{") {
		var config struct {
			Auths map[string]json.RawMessage `json:"auths"`
		}
		if err := json.Unmarshal([]byte(secret), &config); err != nil || len(config.Auths) == 0 {
			return nil, fmt.Errorf("it is not a docker config file with auths")
		}
		// Only auths: credHelpers would run programs.
		return json.Marshal(config)
	}
	secret = strings.TrimRight(secret, "\r\n")
	if user, password, ok := strings.Cut(secret, ":"); !ok || user == "" || password == "" {
		return nil, fmt.Errorf("it is neither user:password nor a docker config file")
	}
	auth := map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(secret))}
	return json.Marshal(map[string]any{"auths": map[string]any{launch.RegistryOf(ref): auth}})
}
