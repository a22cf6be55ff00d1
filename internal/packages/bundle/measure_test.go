package bundle_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/packages/bundle"
)

const (
	ociImage = "application/vnd.oci.image.manifest.v1+json"
	ociIndex = "application/vnd.oci.image.index.v1+json"
)

// hub is a registry of images with what it answers for each reference: the type, a space and the manifest.
type hub map[string]string

func (h hub) add(kind, text string) (digest string) {
	sum := sha256.Sum256([]byte(text))
	digest = "sha256:" + hex.EncodeToString(sum[:])
	h[digest] = kind + " " + text
	return digest
}

func (h hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, reference, _ := strings.Cut(r.URL.Path, "/manifests/")
	kind, text, has := strings.Cut(h[reference], " ")
	switch {
	case reference == "private":
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Path == "/token":
		_, _ = w.Write([]byte(`{"token":"anybody"}`))
	case reference == "token" && r.Header.Get("Authorization") != "Bearer anybody":
		w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+r.Host+`/token",service="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	case reference == "far":
		w.Header().Set("WWW-Authenticate", `Bearer realm="https://127.0.0.1:1/token",service="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	case reference == "elsewhere":
		http.Redirect(w, r, "http://127.0.0.1:1/v2/x", http.StatusFound)
	case !has:
		w.WriteHeader(http.StatusNotFound)
	default:
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		_, _ = w.Write([]byte(text))
	}
}

func imageOf(sizes ...int64) string {
	layers := make([]string, 0, len(sizes))
	for _, size := range sizes {
		layers = append(layers, fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","size":%d,"digest":"sha256:%064d"}`, size, 1))
	}
	return `{"schemaVersion":2,"mediaType":"` + ociImage + `","config":{"size":100,"digest":"sha256:` + strings.Repeat("0", 64) + `"},"layers":[` + strings.Join(layers, ",") + `]}`
}

// SPEC M3, S2: what an image has is known before it is pulled, and that is what is pulled. What a registry says that is not so, or that
// nobody may ask it, is an error.
func TestM3ImagesAreMeasured(t *testing.T) {
	t.Parallel()
	h := hub{}
	one, large := h.add(ociImage, imageOf(1000, 2000)), h.add(ociImage, imageOf(9000))
	h["one"], h["token"], h["large"] = h[one], h[one], h[large]
	variants := func(platforms ...string) string {
		list := make([]string, 0, len(platforms))
		for i, p := range platforms {
			list = append(list, fmt.Sprintf(`{"mediaType":%q,"size":1,"digest":%q,"platform":{"os":"linux","architecture":%q}}`, ociImage, []string{one, large}[i%2], p))
		}
		return `{"schemaVersion":2,"mediaType":"` + ociIndex + `","manifests":[` + strings.Join(list, ",") + `]}`
	}
	index := h.add(ociIndex, variants(runtime.GOARCH, "other"))
	h["index"] = h[index]
	h["largest"] = h[h.add(ociIndex, variants(runtime.GOARCH, runtime.GOARCH))]
	h["other"] = h[h.add(ociIndex, variants("other"))]
	h["many"] = h[h.add(ociIndex, variants(strings.Split(strings.Repeat(runtime.GOARCH+" ", 17), " ")...))]
	h["loop"] = h[h.add(ociIndex, strings.ReplaceAll(variants(runtime.GOARCH), one, index))]
	h["negative"] = h[h.add(ociImage, imageOf(1000, -900))]
	h["huge"] = h[h.add(ociImage, imageOf(1<<62, 1<<62, 1<<62))]
	h["empty"] = h[h.add(ociImage, `{"schemaVersion":2}`)]
	h["damaged"] = h[h.add(ociImage, `{"layers":`)]
	h["named"] = h[h.add(ociIndex, strings.ReplaceAll(variants(runtime.GOARCH), one, "one"))]
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	host := strings.TrimPrefix(s.URL, "http://")
	for tag, want := range map[string]struct {
		size   int64
		digest string
		fault  string
	}{
		":one": {3100, one, ""}, ":token": {3100, one, ""}, ":far": {fault: "not accepted"}, ":index": {3100, index, ""}, ":largest": {9100, "", ""}, "@" + large: {9100, large, ""}, ":one@" + large: {9100, large, ""},
		":other": {fault: "is not for linux/" + runtime.GOARCH}, ":many": {fault: "over 16 variants"}, ":loop": {fault: "not one of an image"},
		":negative": {fault: "layer without a size"}, ":huge": {fault: "layer without a size"}, ":empty": {fault: "not one of an image"}, ":damaged": {fault: "JSON"},
		":named": {fault: "digest"}, ":private": {fault: "does not say it without a login"}, ":gone": {fault: "does not have it"}, ":elsewhere": {fault: "not accepted"},
	} {
		image := host + "/a/thing" + tag
		m := bundle.Made{Image: image, Resource: []byte("args: [\"" + image + "\"]\n")}
		size, err := m.Measure(t.Context(), nil)
		if size != want.size || (err == nil) != (want.fault == "") || err != nil && !strings.Contains(err.Error(), want.fault) {
			t.Errorf("%s has %d bytes, %v", tag, size, err)
		}
		pinned := host + "/a/thing@" + want.digest
		if strings.Contains(tag, "@") {
			pinned = image
		}
		if want.digest != "" && (m.Image != pinned || !strings.Contains(string(m.Resource), `"`+pinned+`"`)) {
			t.Errorf("%s is pulled as %s; the resource is %s", tag, m.Image, m.Resource)
		}
		if want.fault != "" && m.Image != image {
			t.Errorf("%s is pulled as %s", tag, m.Image)
		}
	}
}

// SPEC M3: an image whose files are too large is removed, unless it was there before.
func TestM3ImagesThatUnpackToTooMuch(t *testing.T) {
	for _, c := range []struct {
		there, size string
		removed     bool
		want        string
	}{
		{"false", "2000000", false, ""}, {"false", "20000000", true, "may have at most 10 MiB"}, {"true", "20000000", false, "have 20 MiB"}, {"false", "x", true, "does not say the size"},
	} {
		dir := folder(t, map[string]string{"podman": "#!/bin/sh\necho \"$*\" >>" + t.TempDir() + "/log\ncase \"$*\" in\n*Size*) echo " + c.size + ";;\n'image inspect '*) " + c.there + ";;\n'image rm '*) touch \"$0.removed\";;\nesac\n"})
		t.Setenv("PATH", dir+":/usr/bin:/bin")
		m := bundle.Made{Image: "example.com/a/thing@sha256:" + strings.Repeat("1", 64)}
		err := m.Pull(t.Context(), "podman", 10<<20)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || exists(dir+"/podman.removed") != c.removed {
			t.Errorf("%+v: %v, removed: %v", c, err, exists(dir+"/podman.removed"))
		}
	}
}

// SPEC M3, S2: a registry that sends more than it has said fills no disk, and what was sent is removed.
func TestS2APullThatTakesTooMuchIsEnded(t *testing.T) {
	copies := t.TempDir()
	dir := folder(t, map[string]string{"podman": "#!/bin/sh\ncase \"$*\" in\n*ImageCopyTmpDir*) echo " + copies + ";;\npull*) head -c 12000000 /dev/zero >$TMPDIR/blob; exec sleep 60;;\n'image inspect '*) false;;\nesac\n"})
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	m := bundle.Made{Image: "example.com/a/thing@sha256:" + strings.Repeat("1", 64)}
	err := m.Pull(t.Context(), "podman", 10<<20)
	if err == nil || !strings.Contains(err.Error(), "sends more than the 10 MiB") {
		t.Errorf("a pull without an end: %v", err)
	}
	if left, err := os.ReadDir(copies); err != nil || len(left) > 0 {
		t.Errorf("%v stays of it, %v", left, err)
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
