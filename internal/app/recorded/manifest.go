package recorded

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/manifest/resource"
	"github.com/orla-project/orla/supervisor"
)

// maxManifest bounds the file of a tool that is shown, in bytes.
const maxManifest = 256 << 10

// Manifest returns the file that describes a tool, by the name of its manifest. Secrets in that file are left out.
func (r *Records) Manifest(name string) (control.Manifest, error) {
	served := r.Manifests()
	i := slices.IndexFunc(served, func(one supervisor.Served) bool { return one.Tool.Name == name })
	if i < 0 {
		return control.Manifest{}, r.Unknown(name)
	}
	source := config.Absolute(served[i].Tool.Source)
	text, err := config.ReadRegular(source, maxManifest+1)
	switch {
	case err != nil:
		return control.Manifest{}, &control.Error{Code: control.CodeRefused, Message: err.Error()}
	case len(text) > maxManifest || !utf8.Valid(text):
		return control.Manifest{}, &control.Error{Code: control.CodeRefused, Message: source + " is not a text of at most 256 KiB"}
	case resource.HasExtension(source):
		text = withoutSecrets(text)
	}
	return control.Manifest{Source: source, Text: string(text)}, nil
}

const (
	separator = "---\n"
	leftOut   = "# A Secret is here, which is not shown.\n"
)

// withoutSecrets returns a file of resources in which a line stands in the place of each document that is a Secret, or may be one.
func withoutSecrets(text []byte) []byte {
	documents := yamldoc.Documents(text)
	if !slices.ContainsFunc(documents, isSecret) {
		return text
	}
	var shown bytes.Buffer
	for i, d := range documents {
		switch {
		case !isSecret(d):
			shown.Write(d.Data)
			continue
		case i > 0:
			shown.WriteString(separator)
		}
		shown.WriteString(leftOut)
	}
	return shown.Bytes()
}

// isSecret reports whether a document is a Secret, or one that cannot be read and may be meant to be one.
func isSecret(d yamldoc.Document) bool {
	doc := yamldoc.Parse("", d.Data, yamldoc.Options{Hide: true})
	if doc.Err() != nil {
		lower := bytes.ToLower(d.Data)
		return bytes.Contains(lower, []byte("secret")) || bytes.Contains(lower, []byte("data"))
	}
	return saysSecret(doc)
}

// saysSecret reports whether a document says that it is a Secret, or one of the items of a list does.
func saysSecret(doc *yamldoc.Doc) bool {
	return slices.ContainsFunc(doc.Members(), func(m yamldoc.Member) bool {
		return strings.EqualFold(m.Key, "kind") && strings.EqualFold(strings.TrimSpace(m.Value), "Secret")
	}) || slices.ContainsFunc(doc.Items("items"), saysSecret)
}
