package bundle

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/orla-project/orla/internal/file/diskroom"
)

// pull pulls the image. It is ended when it takes too much of the disk. The disk of an engine on another machine is not seen.
func (m *Made) pull(ctx context.Context, engine string, most int64) error {
	at := diskroom.Engine{Store: infoOf(ctx, engine, "{{.Store.GraphRoot}}"), Copies: infoOf(ctx, engine, "{{.Store.ImageCopyTmpDir}}")}
	if at.Store == "" {
		at.Store = infoOf(ctx, engine, "{{.DockerRootDir}}")
	}
	ctx, environ, done := at.Pull(ctx, most)
	defer done()
	if environ != nil {
		environ = append(os.Environ(), environ...)
	}
	_, err := outputOf(ctx, environ, engine, "pull", "--quiet", m.Image)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%s: %w", m.Image, context.Cause(ctx))
	}
	return err
}

// infoOf is what an engine says of itself; "" if it does not.
func infoOf(ctx context.Context, engine, format string) string {
	text, err := output(ctx, engine, "info", "--format", format)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
