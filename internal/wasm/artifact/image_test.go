package artifact_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/wasm/artifact"
)

const wasm = "application/wasm"

// SPEC-TOOLS 3.7: a module is pulled by the client of OCI, by tag and by digest.
func TestT37Images(t *testing.T) {
	r := newRepository(t)
	echo := module("echo")
	v1 := r.push(t, "v1", layer{wasm, echo})
	r.push(t, "latest", layer{"application/vnd.wasm.content.layer.v1+wasm", module("latest")}, layer{"text/markdown", []byte("# Echo")})
	r.push(t, "bare", layer{"application/octet-stream", module("bare")})
	f := newStore(t, artifact.Options{})
	f.want(t, r.address("v1"), "", secret.Ref{}, echo)
	f.want(t, r.address("bare"), "", secret.Ref{}, module("bare"))
	f.want(t, strings.TrimSuffix(r.address(""), ":"), "", secret.Ref{}, module("latest"))
	f.want(t, r.address("v1"), v1.Digest.String(), secret.Ref{}, echo)
	f.want(t, strings.TrimSuffix(r.address(""), ":")+"@"+v1.Digest.String(), "", secret.Ref{}, echo)
	f.want(t, strings.TrimSuffix(r.address(""), ":"), v1.Digest.String(), secret.Ref{}, echo)

	// The tag moves; the digest does not.
	r.push(t, "v1", layer{wasm, module("moved")})
	f.want(t, r.address("v1"), v1.Digest.String(), secret.Ref{}, echo)
	f.age(t)
	f.want(t, r.address("v1"), "", secret.Ref{}, module("moved"))

	// What is there in part is completed, and what is there needs nobody.
	r.Close()
	f.want(t, r.address("v1"), v1.Digest.String(), secret.Ref{}, echo)
	f.want(t, r.address("v1"), "", secret.Ref{}, module("moved"))
	f.age(t)
	f.want(t, r.address("v1"), "", secret.Ref{}, module("moved"))
	if !strings.Contains(f.log.String(), "serving the module that was fetched before") {
		t.Errorf("the log does not say that the registry is down: %s", f.log)
	}
	if got := newStore(t, artifact.Options{}).refuse(t, r.address("v1"), "", secret.Ref{}, fault.ExecutionFailed, "cannot connect"); !got.Retryable() {
		t.Error("a registry that is down is not worth another attempt")
	}
}

// Something that is not a module is refused, by its manifest where that says so.
func TestT37ImagesThatAreNone(t *testing.T) {
	r := newRepository(t)
	r.push(t, "two", layer{wasm, module("a")}, layer{wasm, module("b")})
	r.push(t, "none")
	r.push(t, "texts", layer{"text/plain", []byte("a")}, layer{"text/plain", []byte("b")})
	r.push(t, "container", layer{"application/vnd.oci.image.layer.v1.tar+gzip", []byte("\x1f\x8b")})
	r.push(t, "component", layer{"application/vnd.bytecodealliance.wasm.component.layer.v0+wasm", []byte("\x00asm\x0d\x00\x01\x00")})
	r.push(t, "disguised", layer{wasm, []byte("\x00asm\x0d\x00\x01\x00")})
	r.push(t, "script", layer{wasm, []byte("#!/bin/sh\n")})
	large := append(module("large"), make([]byte, 2<<20)...)
	r.push(t, "large", layer{wasm, large})
	const manifest = "application/vnd.oci.image.manifest.v1+json"
	r.put(t, "text", manifest, "hello")
	r.put(t, "both", manifest, `{"manifests":[{}],"layers":[{}]}`)
	r.put(t, "other", manifest, `{"mediaType":"application/vnd.example+json"}`)
	r.put(t, "nothing", manifest, `{}`)
	r.put(t, "path", manifest, `{"layers":[{"mediaType":"application/wasm","digest":"sha256:../../../etc/passwd","size":10}]}`)
	r.put(t, "lost", manifest, `{"layers":[{"mediaType":"application/wasm","digest":"`+digestOf([]byte("lost"))+`","size":10}]}`)
	r.put(t, "huge", manifest, `{"layers":[]}`+strings.Repeat(" ", 5<<20))

	var fetched atomic.Bool
	r.blob = func(_ http.ResponseWriter, req *http.Request) bool {
		if strings.HasSuffix(req.URL.Path, digestOf(large)) {
			fetched.Store(true)
		}
		return false
	}
	f := newStore(t, artifact.Options{MaxBytes: 1 << 20})
	for tag, words := range map[string]string{
		"two": "2 layers", "none": "not a WebAssembly module", "texts": "no layer", "container": "container image",
		"component": "component", "disguised": "component", "script": "not a WebAssembly module", "large": "over 1 MiB",
		"text": "not a manifest in JSON", "both": "index at the same time", "other": "another kind", "nothing": "no layer",
		"path": "digest", "lost": "does not have it", "absent": "does not have it", "huge": "over 4 MiB",
	} {
		if got := f.refuse(t, r.address(tag), "", secret.Ref{}, fault.RuntimePolicyInvalid, words); got.Retryable() {
			t.Errorf("%s is worth another attempt", tag)
		}
	}
	if fetched.Load() {
		t.Error("what is too large by its manifest was asked for")
	}
	for address, words := range map[string]string{
		"oci://" + r.host:                          "REGISTRY/REPOSITORY",
		"oci://" + r.host + "/Team/Echo:1":         "REGISTRY/REPOSITORY",
		"oci://" + r.host + "/team/../echo:1":      "REGISTRY/REPOSITORY",
		"oci://" + r.host + "/team/echo:1?x=y":     "REGISTRY/REPOSITORY",
		"oci://ada:secret@" + r.host + "/t/echo:1": "credentials",
		"oci:///team/echo:1":                       "REGISTRY/REPOSITORY",
	} {
		f.refuse(t, address, "", secret.Ref{}, fault.RuntimePolicyInvalid, words)
	}
}

// An index has one manifest that is for WebAssembly, or none.
func TestT37Indexes(t *testing.T) {
	r := newRepository(t)
	entry := func(tag, platform string) string {
		d := r.push(t, tag, layer{wasm, module(tag)})
		if platform != "" {
			platform = `,"platform":` + platform
		}
		return fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":%d%s}`, d.MediaType, d.Digest, d.Size, platform)
	}
	const kind = "application/vnd.oci.image.index.v1+json"
	index := func(tag string, entries ...string) string {
		text := `{"schemaVersion":2,"mediaType":"` + kind + `","manifests":[` + strings.Join(entries, ",") + `]}`
		r.put(t, tag, kind, text)
		return text
	}
	linux := entry("linux", `{"os":"linux","architecture":"amd64"}`)
	wasip1 := entry("wasip1", `{"os":"wasip1","architecture":"wasm"}`)
	wasip2 := entry("wasip2", `{"os":"wasip2","architecture":"wasm"}`)
	browser := entry("browser", `{"os":"js","architecture":"wasm"}`)
	attested := entry("attested", `{"os":"unknown","architecture":"unknown"}`)
	multi := index("multi", linux, attested, wasip1)
	index("wasis", linux, wasip2, wasip1)
	index("one", entry("alone", ""), attested)
	index("native", linux)
	index("which", wasip2, browser)
	deep := index("deep0", wasip1)
	for n := 1; n < 4; n++ {
		deep = index(fmt.Sprintf("deep%d", n), fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":%d}`, kind, digestOf([]byte(deep)), len(deep)))
	}

	f := newStore(t, artifact.Options{})
	f.want(t, r.address("multi"), "", secret.Ref{}, module("wasip1"))
	f.want(t, r.address("wasis"), "", secret.Ref{}, module("wasip1"))
	f.want(t, r.address("one"), "", secret.Ref{}, module("alone"))
	f.want(t, r.address("deep1"), "", secret.Ref{}, module("wasip1"))
	f.refuse(t, r.address("native"), "", secret.Ref{}, fault.RuntimePolicyInvalid, "no manifest for WebAssembly")
	f.refuse(t, r.address("which"), "", secret.Ref{}, fault.RuntimePolicyInvalid, "2 manifests")
	f.refuse(t, r.address("deep3"), "", secret.Ref{}, fault.RuntimePolicyInvalid, "deep")
	r.Close()
	f.want(t, r.address("any"), digestOf([]byte(multi)), secret.Ref{}, module("wasip1")) // the digest of an index
}

// What a registry gives is what was asked for, or nothing.
func TestT37LyingRegistries(t *testing.T) {
	r := newRepository(t)
	v1 := r.push(t, "v1", layer{wasm, module("good")})
	r.blob = func(w http.ResponseWriter, _ *http.Request) bool {
		_, _ = w.Write(module("evil"))
		return true
	}
	f := newStore(t, artifact.Options{MaxBytes: 1 << 20})
	f.refuse(t, r.address("v1"), "", secret.Ref{}, fault.RuntimePolicyInvalid, "instead of")
	r.blob = func(w http.ResponseWriter, _ *http.Request) bool { // of more bytes than it says
		w.(http.Flusher).Flush()
		for block := make([]byte, 64<<10); ; {
			if _, err := w.Write(block); err != nil {
				return true
			}
		}
	}
	f.refuse(t, r.address("v1"), "", secret.Ref{}, fault.RuntimePolicyInvalid, "over 1 MiB")
	r.blob = nil
	f.want(t, r.address("v1"), "", secret.Ref{}, module("good"))

	honest := r.open
	r.open = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.Contains(req.URL.Path, "/manifests/sha256:") {
			req.URL.Path = "/v2/team/echo/manifests/evil"
		}
		honest.ServeHTTP(w, req)
	})
	back := newRepository(t)
	back.open = honest
	back.push(t, "evil", layer{wasm, module("evil")})
	f = newStore(t, artifact.Options{})
	f.refuse(t, r.address("v1"), v1.Digest.String(), secret.Ref{}, fault.ExecutionFailed, "cannot be used")
}

// A registry that sends a byte now and then ends with its caller's patience.
func TestT37SlowRegistries(t *testing.T) {
	r := newRepository(t)
	r.push(t, "v1", layer{wasm, module("good")})
	r.blob = func(w http.ResponseWriter, req *http.Request) bool {
		_, _ = io.WriteString(w, "\x00asm")
		w.(http.Flusher).Flush()
		<-req.Context().Done()
		return true
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, fault.New(fault.Timeout, "over"))
	defer cancel()
	newStore(t, artifact.Options{}).refuseCtx(ctx, t, r.address("v1"), "", secret.Ref{}, fault.Timeout, "over")
}

// SPEC-TOOLS 3.7: pull credentials, in all forms that they have, and for their host
// alone.
func TestT37PullSecrets(t *testing.T) {
	r := newRepository(t)
	r.push(t, "v1", layer{wasm, module("private")})
	known := secrets{
		"pair:value":      "ada:" + password + "\n",
		"wrong:value":     "ada:not-" + password,
		"empty:value":     "",
		"half:value":      "ada:",
		"token:value":     "given-for-team-echo",
		"docker:value":    dockerConfig(map[string]string{"registry.example.com": "eve:other", r.host: "ada:" + password}),
		"url:value":       dockerConfig(map[string]string{"https://" + r.host + "/v1/": "ada:" + password}),
		"elsewhere:value": dockerConfig(map[string]string{"registry.example.com": "ada:" + password}),
		"broken:value":    `{"auths":{"x":{"auth":"` + password + `"}}}`,

		"kubernetes:.dockerconfigjson": dockerConfig(map[string]string{r.host: "ada:" + password}),
	}
	opts := artifact.Options{Secrets: known.resolve}
	service := tokens(t)
	for scheme, admit := range map[string]func(http.ResponseWriter, *http.Request) bool{"basic": basic, "bearer": bearer(service.URL)} {
		r.admit = admit
		for _, name := range []string{"pair", "docker", "url", "kubernetes"} {
			newStore(t, opts).want(t, r.address("v1"), "", ref(name), module("private"))
		}
		f := newStore(t, opts)
		f.refuse(t, r.address("v1"), "", secret.Ref{}, fault.AuthInvalid, "image_pull_secret")
		f.refuse(t, r.address("v1"), "", ref("wrong"), fault.AuthInvalid, "does not accept the secret wrong")
		before := r.requests.Load() + service.requests.Load()
		for name, words := range map[string]string{
			"empty": "empty", "half": "USER:PASSWORD", "broken": "not a configuration of docker",
			"elsewhere": "no credentials for " + r.host, "absent": "not there",
		} {
			f.refuse(t, r.address("v1"), "", ref(name), fault.SecretResolutionFailed, words)
		}
		if got := r.requests.Load() + service.requests.Load(); got != before {
			t.Errorf("%s: without credentials the registry was asked %d times", scheme, got-before)
		}
	}
	r.admit = bearer(service.URL)
	newStore(t, opts).want(t, r.address("v1"), "", ref("token"), module("private"))
	r.admit = basic
	newStore(t, opts).refuse(t, r.address("v1"), "", ref("token"), fault.AuthInvalid, "cannot be logged in to")
}

// What one pull secret has opened is not open without it.
func TestT37TagsAreOpenedBySecrets(t *testing.T) {
	r := newRepository(t)
	r.push(t, "v1", layer{wasm, module("private")})
	r.admit = basic
	f := newStore(t, artifact.Options{Secrets: secrets{"pair:value": "ada:" + password}.resolve})
	f.want(t, r.address("v1"), "", ref("pair"), module("private"))
	f.refuse(t, r.address("v1"), "", secret.Ref{}, fault.AuthInvalid, "requires authentication")
}

// Credentials go to the registry that they are for, and to the token service that
// it names, if that speaks TLS; nowhere else.
func TestT37CredentialsStayHome(t *testing.T) {
	r := newRepository(t)
	r.push(t, "v1", layer{wasm, module("private")})
	opts := artifact.Options{Secrets: secrets{"pair:value": "ada:" + password}.resolve}
	r.admit = basic

	cdn := newServer(t, func(w http.ResponseWriter, req *http.Request) {
		if shown := req.Header.Get("Authorization"); shown != "" {
			t.Errorf("another host was shown %q", shown)
		}
		if strings.HasPrefix(req.URL.Path, "/locked") {
			w.Header().Set("WWW-Authenticate", `Basic realm="give it to me"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write(module("private"))
	})
	to := "/open"
	r.blob = func(w http.ResponseWriter, req *http.Request) bool {
		http.Redirect(w, req, cdn.URL+to+"?signature="+password, http.StatusTemporaryRedirect)
		return true
	}
	newStore(t, opts).want(t, r.address("v1"), "", ref("pair"), module("private"))
	to = "/locked"
	newStore(t, opts).refuse(t, r.address("v1"), "", ref("pair"), fault.AuthInvalid, "401")

	r.blob = nil
	plain := newServer(t, func(_ http.ResponseWriter, req *http.Request) {
		t.Errorf("a token service without TLS was asked: %v", req.Header)
	})
	r.admit = bearer(strings.Replace(plain.URL, "https", "http", 1))
	newStore(t, opts).refuse(t, r.address("v1"), "", ref("pair"), fault.ExecutionFailed, "cannot be used")
}
