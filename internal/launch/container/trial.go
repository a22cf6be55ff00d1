package container

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"strings"

	"github.com/orla-project/orla/internal/call/fault"
)

// Try starts a container with opts, and reports why that fails or which of its restrictions is not
// in effect; nil if all are. name is that of the engine, if there is one. Try ignores opts.Image: it
// makes an empty image with Orla's own program, and removes it. If that fails, it uses the first of
// images that the engine has. It pulls nothing.
func (e *Engine) Try(ctx context.Context, opts Options, images []string) (name string, err error) {
	if err := e.enter(); err != nil {
		return "", err
	}
	defer e.work.Done()
	m, err := e.found(ctx)
	if err != nil {
		return "", err
	}
	if err := m.limits(opts.Limits); err != nil {
		return m.String(), err
	}
	if err := e.canLook(m); err != nil {
		return m.String(), err
	}
	opts.Engine, opts.User, opts.Network = e, cmp.Or(opts.User, DefaultUser), cmp.Or(opts.Network, noNetwork)
	p := plan{opts: opts, made: m, trial: true}
	if !e.elsewhere(m) {
		if p.opts.Image, err = e.ownImage(ctx, m); err != nil {
			return m.String(), untried(ctx, m, err)
		}
		defer e.discard(ctx, m, p.opts.Image)
	} else if p.image, p.opts.Image = e.present(ctx, m, images); p.opts.Image == "" {
		return m.String(), fault.New(fault.IsolationUnavailable, "%s answers, and has no image that a container could be tried with; pull the image of a tool", m)
	}
	if err := p.opts.check(); err != nil {
		return m.String(), err
	}
	_, err = e.probe(ctx, p)
	return m.String(), untried(ctx, m, err)
}

// ownImage makes an image with only empty folders. The caller discards it.
func (e *Engine) ownImage(ctx context.Context, m *made) (name string, err error) {
	name = "localhost/orla-trial-" + strings.ToLower(rand.Text()[:10]) + ":1"
	if _, err := e.run(ctx, order{input: emptyImage(), most: answerBytes}, m.path, "import", "-", name); err != nil {
		e.discard(ctx, m, name)
		return "", fault.New(fault.IsolationUnavailable, "%s cannot make an image: %s", m, saidBy(err))
	}
	return name, nil
}

// untried returns err, or an error that says that there was no time for Try.
func untried(ctx context.Context, m *made, err error) error {
	if err != nil && ctx.Err() != nil {
		return fault.New(fault.IsolationUnavailable, "%s answers, and has not run a container in the time that there was", m)
	}
	return err
}

// present returns the first of images that the engine has.
func (e *Engine) present(ctx context.Context, m *made, images []string) (image, string) {
	for _, name := range images {
		if checkImage(name) != nil {
			continue
		}
		if found, err := e.inspectImage(ctx, m, name); err == nil {
			return found, name
		}
	}
	return image{}, ""
}

// discard removes an image that ownImage made.
func (e *Engine) discard(ctx context.Context, m *made, name string) {
	ctx, cancel := e.lasting(ctx)
	defer cancel()
	if _, err := e.command(ctx, nil, m.path, "rmi", "--force", name); err != nil {
		e.opts.Log.Warn("remove an image", "image", name, "err", err)
	}
}

// emptyImage returns a tar with the folders that a container needs as mount points.
func emptyImage() []byte {
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for _, dir := range [...]string{"dev/", "etc/", "proc/", "run/", "sys/", "tmp/"} {
		if err := w.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
			panic(err) // writing to memory cannot fail
		}
	}
	_ = w.Close() // writing to memory cannot fail
	return text.Bytes()
}
