package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// Pin pulls the image of a resource, and puts its digest in the place of its tag. engine is the one that the resource was made
// for. It does nothing if there is no image, or if it has a digest already.
func (m *Made) Pin(ctx context.Context, engine string) error {
	if m.Image == "" {
		return nil
	}
	if _, err := output(ctx, "/", engine, "pull", "--quiet", m.Image); err != nil {
		return err
	}
	text, err := output(ctx, "/", engine, "image", "inspect", "--format", "{{json .RepoDigests}}", m.Image)
	if err != nil {
		return err
	}
	var digests []string
	if err := json.Unmarshal(bytes.TrimSpace(text), &digests); err != nil {
		return fmt.Errorf("%s does not say the digest of %s", engine, m.Image)
	}
	for _, name := range digests {
		_, digest, ok := strings.Cut(name, "@")
		if !ok || !imageName().MatchString(name) {
			continue
		}
		pinned := repository(m.Image) + "@" + digest
		m.Resource = bytes.Replace(m.Resource, []byte(scalar(m.Image)), []byte(scalar(pinned)), 1)
		m.Image = ""
		return nil
	}
	return fmt.Errorf("%s has no digest of %s", engine, m.Image)
}

// repository returns the name of an image without its tag.
func repository(image string) string {
	if at := strings.LastIndexByte(image, ':'); at > strings.LastIndexByte(image, '/') {
		return image[:at]
	}
	return image
}
