package resource

import (
	"errors"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/service/address"
	"github.com/orla-project/orla/manifest"
)

// wasmKeys are spec.wasm (SPEC-TOOLS 1.2, 3.7).
type wasmKeys struct {
	Module          string       `json:"module,omitempty" jsonschema:"The module: a path inside the file's folder, https:// or oci://, with @sha256: and its digest if it is to be checked"`
	Entrypoint      string       `json:"entrypoint,omitempty" jsonschema:"The function to call, if the module exports it; else _start is called. Default run"`
	MaxMemoryBytes  yamldoc.Size `json:"max_memory_bytes,omitempty" jsonschema:"Memory of a call: 64MiB or a number of bytes. Default 67108864"`
	Fuel            int64        `json:"fuel,omitempty" jsonschema:"Work of a call, in units of 100 instructions each. Default 1000000"`
	EnableWASI      bool         `json:"enable_wasi,omitempty" jsonschema:"Whether the module has stdin, stdout and stderr, by WASI; most need them. Default false"`
	ImagePullSecret string       `json:"image_pull_secret,omitempty" jsonschema:"The secret to pull an oci:// module with"`
}

var digest = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`@sha256:[0-9a-f]{64}$`) })

// readWASM checks spec.wasm, and returns what it says.
func (d *Declaration) readWASM(k wasmKeys) *manifest.WASM {
	const at = "spec.wasm."
	w := &manifest.WASM{Entrypoint: k.Entrypoint, MaxMemory: int64(k.MaxMemoryBytes), Fuel: k.Fuel, WASI: k.EnableWASI}
	if k.Module == "" {
		d.Doc.Faultf(at+"module", "is required for type wasm")
	} else {
		d.faultIf(at+"module", d.module(k.Module, w))
	}
	if k.Entrypoint == "" {
		d.Doc.Faultf(at+"entrypoint", "must not be empty; leave it out for run")
	}
	if k.MaxMemoryBytes < 64<<10 || k.MaxMemoryBytes > 4<<30 {
		d.Doc.Faultf(at+"max_memory_bytes", "must be between 64KiB, which is one page, and 4GiB, got %s", k.MaxMemoryBytes)
	}
	if k.Fuel < 1 {
		d.Doc.Faultf(at+"fuel", "must be above 0, got %d", k.Fuel)
	}
	if !d.Doc.Has(at + "image_pull_secret") {
		return w
	}
	pull := d.secretRef(at+"image_pull_secret", k.ImagePullSecret)
	if strings.HasPrefix(k.Module, "oci://") {
		w.PullSecret = pull
	} else if k.Module != "" {
		d.Warnings = append(d.Warnings, d.Doc.At(at+"image_pull_secret", "has no effect: it is for a module that begins with oci://"))
	}
	return w
}

var (
	schemeLike = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`) })
	// A repository and a tag (OCI distribution specification, "Pulling manifests").
	ociReference = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^oci://[^/?#]+(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)+(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$`)
	})
)

// module finds out where a module is.
func (d *Declaration) module(text string, w *manifest.WASM) error {
	ref := digest().ReplaceAllString(text, "")
	if strings.Contains(ref, "@sha256:") {
		return errors.New("a digest is @sha256: and 64 hexadecimal digits in lower case, at the end")
	}
	w.Module = ref
	w.Digest = strings.TrimPrefix(text[len(ref):], "@")
	scheme, _, remote := strings.Cut(ref, "://")
	if !remote {
		file, err := d.localModule(ref)
		w.Module = file
		return err
	}
	u, err := url.Parse(ref)
	switch {
	case scheme != "https" && scheme != "oci":
		got := ""
		if schemeLike().MatchString(scheme) { // else a password may stand before the ://
			got = ", got " + scheme + "://"
		}
		return errors.New("must be a path inside the file's folder, https:// or oci://" + got)
	case err != nil, u.Hostname() == "", u.User != nil, strings.Trim(u.Path, "/") == "":
		return errors.New("is not an " + scheme + ":// address with a host and a path, and without user and password")
	}
	if err := address.CheckDialled(u); err != nil {
		return err
	}
	if scheme == "oci" && !ociReference().MatchString(ref) {
		return errors.New("must be oci://REGISTRY/REPOSITORY:TAG or …@sha256:DIGEST, the repository in lower case")
	}
	return nil
}

// localModule finds a module in the file's folder.
func (d *Declaration) localModule(ref string) (string, error) {
	if !filepath.IsLocal(filepath.FromSlash(ref)) {
		return "", errors.New("must be a relative path inside the file's folder")
	}
	file, info, err := d.inFolder(ref)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("is not a regular file but " + regularfile.KindOf(info.Mode()))
	}
	return file, err
}
