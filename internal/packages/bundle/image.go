package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/orla-project/orla/manifest/keys"
)

// mebibyte is the unit in which sizes are said.
const mebibyte = 1 << 20

// InMiB says a size to a person.
func InMiB(size int64) string { return fmt.Sprintf("%d MiB", (size+mebibyte-1)/mebibyte) }

// Pull pulls the image that Measure has measured. One whose files have over most bytes is removed again, with an error, unless it
// was there before. engine is the one that the resource was made for.
func (m *Made) Pull(ctx context.Context, engine string, most int64) error {
	_, absent := output(ctx, engine, "image", "inspect", m.Image)
	if err := m.pull(ctx, engine, most); err != nil {
		return err
	}
	text, err := output(ctx, engine, "image", "inspect", "--format", "{{.Size}}", m.Image)
	if err != nil {
		return err
	}
	size, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	switch {
	case err != nil:
		err = fmt.Errorf("%s does not say the size of %s", engine, m.Image)
	case size > most:
		err = fmt.Errorf("the files of the image %s have %s, and an image may have at most %s: max_environment in orla.yaml", m.Image, InMiB(size), InMiB(most))
	default:
		return nil
	}
	if absent != nil {
		_, _ = output(ctx, engine, "image", "rm", m.Image) // the other error says what is wrong
	}
	return err
}

// Pin is for an image that cannot be measured: it puts the digest of the one that the engine has already in the place of the tag. The
// error says that the engine has none.
func (m *Made) Pin(ctx context.Context, engine string) error {
	text, err := output(ctx, engine, "image", "inspect", "--format", "{{json .RepoDigests}}", m.Image)
	if err != nil {
		return err
	}
	var digests []string
	if err := json.Unmarshal(bytes.TrimSpace(text), &digests); err != nil {
		return fmt.Errorf("%s does not say the digest of %s", engine, m.Image)
	}
	for _, name := range digests {
		if _, sum, ok := strings.Cut(name, "@"); ok && keys.CheckImage(name) == nil {
			m.pin(digest.Digest(sum))
			return nil
		}
	}
	return fmt.Errorf("%s has no digest of %s", engine, m.Image)
}

// pin makes Image, and the resource, name a digest, unless they do.
func (m *Made) pin(sum digest.Digest) {
	pinned := keys.PinnedImage(m.Image, sum.String())
	m.Resource = bytes.Replace(m.Resource, []byte(scalar(m.Image)), []byte(scalar(pinned)), 1)
	m.Image = pinned
}
