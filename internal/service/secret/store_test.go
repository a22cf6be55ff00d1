package secret_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/testing/needs"
)

// write makes files below dir, and folders as they need them.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func environ(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		text, ok := vars[name]
		return text, ok
	}
}

func ref(t *testing.T, text string) secret.Ref {
	t.Helper()
	ref, err := secret.ParseRef(text, "")
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func mustResolve(t *testing.T, s *secret.Store, text string) string {
	t.Helper()
	value, err := s.Resolve(ref(t, text))
	if err != nil {
		t.Fatalf("Resolve(%s): %v", text, err)
	}
	return value.Reveal()
}

// unresolved asserts that there is no such secret, and returns the reason.
func unresolved(t *testing.T, s *secret.Store, of secret.Ref) string {
	t.Helper()
	value, err := s.Resolve(of)
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Code != fault.SecretResolutionFailed || f.Retryable() {
		t.Fatalf("Resolve(%s): got %v, %v, want secret_resolution_failed, not retryable", of, value, err)
	}
	if value != (secret.Value{}) {
		t.Errorf("Resolve(%s) gives a value beside its error", of)
	}
	return f.Reason
}

// SPEC-TOOLS 5.1: Secret resources, files, systemd credentials, the environment,
// in this order.
func TestResolveOrder(t *testing.T) {
	for _, c := range []struct {
		ref     string
		sources []string // in their order
	}{
		{"api", []string{"resource", "dir:api", "credential:api", "environ:ORLOJ_SECRET_API"}},
		{"api", []string{"resource", "dir:api/value", "credential:api", "environ:ORLOJ_SECRET_API"}},
		{"api:client_id", []string{"resource", "dir:api/client_id", "credential:api.client_id", "environ:ORLOJ_SECRET_API_CLIENT_ID"}},
		{"git.hub-app:key-2", []string{"resource", "dir:git.hub-app/key-2", "credential:git.hub-app.key-2", "environ:ORLOJ_SECRET_GIT_HUB_APP_KEY_2"}},
		{"prod/api:key", []string{"resource", "dir:prod/api/key"}},
		{"prod/api", []string{"resource", "dir:prod/api/value"}},
	} {
		t.Run(c.ref, func(t *testing.T) {
			of := ref(t, c.ref)
			for i := range c.sources {
				dir, credentials, vars := t.TempDir(), t.TempDir(), map[string]string{}
				var declared []secret.Secret
				for _, source := range c.sources[i:] { // the first of them wins
					kind, name, _ := strings.Cut(source, ":")
					switch kind {
					case "resource":
						declared = []secret.Secret{{Namespace: of.Namespace, Name: of.Name, Data: map[string]secret.Value{of.Key: secret.NewValue(source)}}}
					case "dir":
						write(t, dir, map[string]string{name: source + "\n"})
					case "credential":
						write(t, credentials, map[string]string{name: source})
					case "environ":
						vars[name] = source
					}
				}
				s := secret.New(secret.Options{Dir: dir, Credentials: credentials, Lookup: environ(vars)})
				s.Set(declared)
				if got := mustResolve(t, s, c.ref); got != c.sources[i] {
					t.Errorf("with %v: got %q", c.sources[i:], got)
				}
			}
			s := secret.New(secret.Options{Dir: t.TempDir(), Credentials: t.TempDir()})
			reason := unresolved(t, s, of)
			for _, source := range c.sources {
				_, name, _ := strings.Cut(source, ":")
				if !strings.Contains(reason, filepath.FromSlash(name)) {
					t.Errorf("the reason does not say that %q was looked at: %s", source, reason)
				}
			}
			if want := "; add a resource of kind Secret with the namespace " + of.Namespace + ", the name " + of.Name + " and the key " + of.Key; !strings.HasSuffix(reason, want) {
				t.Errorf("the reason does not end with %q: %s", want, reason)
			}
		})
	}
}

// SPEC-TOOLS 5.1: the file a/b is the key b of the secret a, and no secret of a
// namespace a.
func TestNamespacesDoNotMeet(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"prod/api": "key api of prod"})
	s := secret.New(secret.Options{Dir: dir, Credentials: dir, Lookup: environ(map[string]string{"ORLOJ_SECRET_TOKEN": "default's", "ORLOJ_SECRET_PROD_TOKEN": "x"})})
	if got := mustResolve(t, s, "prod:api"); got != "key api of prod" {
		t.Errorf("got %q", got)
	}
	unresolved(t, s, ref(t, "prod/api"))
	unresolved(t, s, ref(t, "prod/token"))
	s.Set([]secret.Secret{{Namespace: "prod", Name: "token", Data: map[string]secret.Value{"value": secret.NewValue("prod's")}}})
	if got := mustResolve(t, s, "prod/token"); got != "prod's" {
		t.Errorf("got %q", got)
	}
	if got := mustResolve(t, s, "token"); got != "default's" {
		t.Errorf("got %q", got)
	}
}

// SPEC-TOOLS 5.1: only variables with the prefix, never any other.
func TestEnvironmentIsAskedWithThePrefixAlone(t *testing.T) {
	s := secret.New(secret.Options{Lookup: func(name string) (string, bool) {
		if !strings.HasPrefix(name, "ORLOJ_SECRET_") {
			t.Errorf("the variable %q was read", name)
		}
		return "", false
	}})
	for _, name := range []string{"PATH", "HOME", "AWS_SECRET_ACCESS_KEY", "path", "a.b", "x-y:PATH"} {
		unresolved(t, s, ref(t, name))
	}
}

// SPEC-TOOLS 5.3: resolved afresh each time; what is rotated holds from then on.
func TestRotation(t *testing.T) {
	dir, vars := t.TempDir(), map[string]string{}
	s := secret.New(secret.Options{Dir: dir, Lookup: environ(vars)})
	vars["ORLOJ_SECRET_API"] = "from the environment"
	if got := mustResolve(t, s, "api"); got != "from the environment" {
		t.Errorf("got %q", got)
	}
	for _, text := range []string{"one", "two"} {
		write(t, dir, map[string]string{"next": text})
		if err := os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "api")); err != nil {
			t.Fatal(err)
		}
		if got := mustResolve(t, s, "api"); got != text {
			t.Errorf("after the file has become %q: got %q", text, got)
		}
	}
	for _, text := range []string{"three", "four"} {
		s.Set([]secret.Secret{{Namespace: "default", Name: "api", Data: map[string]secret.Value{"value": secret.NewValue(text)}}})
		if got := mustResolve(t, s, "api"); got != text {
			t.Errorf("after Set to %q: got %q", text, got)
		}
	}
	s.Set(nil)
	if got := mustResolve(t, s, "api"); got != "two" {
		t.Errorf("without the resource: got %q", got)
	}
	other := t.TempDir()
	write(t, other, map[string]string{"api": "elsewhere"})
	s.SetDir(other)
	if got := mustResolve(t, s, "api"); got != "elsewhere" {
		t.Errorf("after SetDir: got %q", got)
	}
	s.SetDir("")
	if got := mustResolve(t, s, "api"); got != "from the environment" {
		t.Errorf("without a folder: got %q", got)
	}
}

// A secret as Kubernetes mounts it: links to links, all of them inside.
func TestMountedSecret(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"api/..2026_11_21/value": "mounted\n"})
	for link, target := range map[string]string{"api/..data": "..2026_11_21", "api/value": "..data/value"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if got := mustResolve(t, secret.New(secret.Options{Dir: dir}), "api"); got != "mounted" {
		t.Errorf("got %q", got)
	}
}

// SPEC-TOOLS 5.1: what a file says is the secret, less the line break at its end.
func TestFileContents(t *testing.T) {
	dir := t.TempDir()
	s := secret.New(secret.Options{Dir: dir})
	for text, want := range map[string]string{
		"plain":                     "plain",
		"one break\n":               "one break",
		"windows\r\n":               "windows",
		"two\n\n":                   "two\n",
		" blanks stay ":             " blanks stay ",
		"line 1\nline 2\n":          "line 1\nline 2",
		"nul\x00 and \xff\xfe":      "nul\x00 and \xff\xfe",
		"":                          "",
		strings.Repeat("x", 64<<10): strings.Repeat("x", 64<<10),
	} {
		write(t, dir, map[string]string{"api": text})
		if got := mustResolve(t, s, "api"); got != want {
			t.Errorf("%.20q: got %.20q", text, got)
		}
	}
}

// What cannot be the file that is meant ends the search: the next source must
// not take its place in silence.
func TestUnfitFiles(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	write(t, filepath.Dir(outside), map[string]string{"outside": planted})
	for name, c := range map[string]struct {
		make func(t *testing.T, path string) error
		want string
	}{
		"too large": {func(_ *testing.T, path string) error {
			return os.WriteFile(path, []byte(strings.Repeat(planted, 64<<10)), 0o600)
		}, "over 64 KiB"},
		"a fifo":           {func(_ *testing.T, path string) error { return syscall.Mkfifo(path, 0o600) }, "not a regular file"},
		"a link out of it": {func(_ *testing.T, path string) error { return os.Symlink(outside, path) }, "escapes"},
		"a relative link out of it": {func(t *testing.T, path string) error {
			relative, err := filepath.Rel(filepath.Dir(path), outside)
			if err != nil {
				t.Fatal(err)
			}
			return os.Symlink(relative, path)
		}, "escapes"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := secret.New(secret.Options{Dir: dir, Lookup: environ(map[string]string{"ORLOJ_SECRET_API": planted})})
			if err := c.make(t, filepath.Join(dir, "api")); err != nil {
				t.Fatal(err)
			}
			reason := unresolved(t, s, ref(t, "api"))
			if !strings.Contains(reason, c.want) || strings.Contains(reason, planted) {
				t.Errorf("got %q, want it to say %q and not the secret", reason, c.want)
			}
		})
	}
}

func TestFileThatMayNotBeRead(t *testing.T) {
	if !needs.Unprivileged(t) {
		return
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "api"), []byte(planted), 0o000); err != nil {
		t.Fatal(err)
	}
	s := secret.New(secret.Options{Dir: dir, Lookup: environ(map[string]string{"ORLOJ_SECRET_API": planted})})
	if reason := unresolved(t, s, ref(t, "api")); !strings.Contains(reason, "permission denied") || strings.Contains(reason, planted) {
		t.Errorf("got %q, want it to say that the file may not be read, and not the secret", reason)
	}
}

// Nothing that a resource says leads out of the folder of secrets.
func TestNamesStayInside(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"outside": planted, "secrets/in": "in"})
	s := secret.New(secret.Options{
		Dir: filepath.Join(dir, "secrets"), Credentials: filepath.Join(dir, "secrets"),
		Lookup: func(string) (string, bool) { return planted, true },
	})
	for _, of := range []secret.Ref{
		{Name: "../outside"},
		{Name: ".."},
		{Name: "."},
		{Name: "in", Key: "../../outside"},
		{Namespace: "..", Name: "outside"},
		{Namespace: "..", Name: "..", Key: "etc"},
		{Name: filepath.Join(dir, "outside")},
		{Name: "in\x00"},
		{Name: "a\\b"},
		{},
	} {
		unresolved(t, s, of)
	}
}

// SPEC-TOOLS 5.2: several keys of one secret, all or none.
func TestKeys(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"idp/client_id": "orla", "idp/client_secret": planted})
	s := secret.New(secret.Options{Dir: dir})
	got, err := s.Keys(ref(t, "idp"), "client_id", "client_secret")
	if err != nil || got["client_id"].Reveal() != "orla" || got["client_secret"].Reveal() != planted {
		t.Errorf("got %v, %v", got, err)
	}
	_, err = s.Keys(ref(t, "idp:ignored"), "client_id", "tenant")
	if err == nil || !strings.Contains(err.Error(), `"idp:tenant"`) {
		t.Errorf("got %v, want an error that names idp:tenant", err)
	}
}

// SPEC-TOOLS 5.3: the keys of a secret that is rotated while they are read are of
// one version.
func TestKeysBelongTogether(t *testing.T) {
	dir := t.TempDir()
	var s *secret.Store
	for name, rotate := range map[string]func(version string){
		"resource": func(version string) {
			value := secret.NewValue(version)
			s.Set([]secret.Secret{{Namespace: "default", Name: "idp", Data: map[string]secret.Value{"client_id": value, "client_secret": value}}})
		},
		"files": func(version string) {
			write(t, dir, map[string]string{"idp/client_id": version, "idp/client_secret": version})
		},
		"folder": func(version string) {
			other := t.TempDir()
			write(t, other, map[string]string{"idp/client_id": version, "idp/client_secret": version})
			s.SetDir(other)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var once sync.Once
			s = secret.New(secret.Options{Dir: dir, Lookup: func(string) (string, bool) {
				once.Do(func() { rotate("new") }) // when the client id has been read, and the client secret has not
				return "", true
			}})
			rotate("old")
			got, err := s.Keys(ref(t, "idp"), "client_id", "between", "client_secret")
			if err != nil {
				t.Fatal(err)
			}
			if id, key := got["client_id"].Reveal(), got["client_secret"].Reveal(); id != "new" || key != "new" {
				t.Errorf("the client id is %s and the client secret %s", id, key)
			}
		})
	}
}

// A resource without the key does not hide the other places, and the reason says so.
func TestResourceWithoutTheKey(t *testing.T) {
	s := secret.New(secret.Options{})
	s.Set([]secret.Secret{{Namespace: "default", Name: "api", Data: map[string]secret.Value{"token": secret.NewValue(planted)}}})
	reason := unresolved(t, s, ref(t, "api"))
	if !strings.Contains(reason, "no such key") || !strings.HasSuffix(reason, "; add the key value to that resource") || strings.Contains(reason, planted) {
		t.Errorf("got %q", reason)
	}
}

func TestStoreIsSafeWhileItChanges(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		write(t, dir, map[string]string{"api": "file"})
	}
	s := secret.New(secret.Options{Dir: dirs[0]})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 200 {
				switch i {
				case 0:
					s.SetDir(dirs[n%2])
				case 1:
					s.Set([]secret.Secret{{Namespace: "default", Name: "api", Data: map[string]secret.Value{"value": secret.NewValue(fmt.Sprint(n))}}})
				default:
					if _, err := s.Resolve(secret.Ref{Name: "api"}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}

// SPEC P2: a Secret of the cluster comes after Secret resources and before files. One without the key does not end the
// search, one that cannot be read does.
func TestP2SecretsOfACluster(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{"a", "b", "c", "d"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte("file"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	store := secret.New(secret.Options{Dir: dir, Cluster: func(_, name string) (map[string]secret.Value, bool, error) {
		switch name {
		case "a", "b":
			return map[string]secret.Value{"value": secret.NewValue("cluster")}, true, nil
		case "c":
			return map[string]secret.Value{"other": secret.NewValue("cluster")}, true, nil
		case "broken":
			return nil, false, errors.New("forbidden")
		}
		return nil, false, nil
	}})
	store.Set([]secret.Secret{{Namespace: "default", Name: "a", Data: map[string]secret.Value{"value": secret.NewValue("resource")}}})
	for name, want := range map[string]string{"a": "resource", "b": "cluster", "c": "file", "d": "file"} {
		if got, err := store.Resolve(secret.Ref{Name: name}); err != nil || got.Reveal() != want {
			t.Errorf("%s: %q, %v; want %s", name, got.Reveal(), err, want)
		}
	}
	if _, err := store.Resolve(secret.Ref{Name: "broken"}); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("broken: %v", err)
	}
	if _, err := store.Resolve(secret.Ref{Name: "none"}); err == nil || !strings.Contains(err.Error(), "the Secrets of the cluster") || !strings.Contains(err.Error(), "add a Secret of the cluster with") {
		t.Errorf("none: %v", err)
	}
}
