package resource

import (
	"encoding/base64"
	"maps"
	"slices"

	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest/keys"
)

// readSecret reads a Secret (SPEC-TOOLS 5.1). Nothing of its values is in a fault.
func (d *Declaration) readSecret() {
	var document secretResource
	_ = d.Doc.Decode(&document) // the Doc keeps the faults, and more are added to them
	name := d.identify(document.Metadata)
	at, given := "spec.", document.Spec
	if !d.Doc.Has("spec") {
		at, given = "", document.secretKeys
	} else {
		for _, key := range []string{"data", "stringData"} {
			if d.Doc.Has(key) {
				d.Doc.Faultf(key, "is next to spec; move it into spec")
			}
		}
	}
	values := map[string]secret.Value{}
	for _, key := range sortedKeys(given.Data) {
		d.checkSecretKey(at+"data."+key, key, given.Data[key])
		text, err := base64.StdEncoding.DecodeString(given.Data[key])
		if err != nil {
			d.Doc.Faultf(at+"data."+key, "must be base64: %v; put plain text into stringData", err)
		}
		values[key] = d.secretValue(at+"data."+key, string(text))
	}
	for _, key := range sortedKeys(given.StringData) {
		d.checkSecretKey(at+"stringData."+key, key, given.StringData[key])
		values[key] = d.secretValue(at+"stringData."+key, given.StringData[key])
	}
	if len(values) == 0 && d.Doc.Err() == nil {
		d.Doc.Faultf("spec", "wants data or stringData with at least one key; the key of a secret with one value is %s", secret.DefaultKey)
	}
	d.Secret = secret.Secret{Namespace: d.namespace, Name: name, Data: values, Source: d.File.Display}
}

// secretValue returns a value, which must not be too long: all forms of it are searched for.
func (d *Declaration) secretValue(at, text string) secret.Value {
	if len(text) > secret.MaxValue {
		d.Doc.Faultf(at, "must have at most %d bytes, has %d", secret.MaxValue, len(text))
	}
	return secret.NewValue(text)
}

func (d *Declaration) checkSecretKey(at, key, value string) {
	if err := secret.CheckWord(key); err != nil {
		d.Doc.Faultf(at, "the key %v", err)
	}
	if value == "" {
		d.Doc.Faultf(at, "must not be empty")
	}
}

func sortedKeys(m keys.Env) []string { return slices.Sorted(maps.Keys(m)) }
