package permission_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/packages/permission"
)

func TestM7Parse(t *testing.T) {
	for _, text := range []string{
		"filesystem:read", "filesystem:write", "filesystem:read:/data", "filesystem:write:~", "filesystem:read:~/My Files", "filesystem:read:/a:b",
		"network", "network:api.example.com", "network:*.example.com:443", "network:localhost", "env:API_KEY", "filesystem:write:/tmp/x",
	} {
		p, err := permission.Parse(text)
		if err != nil || p.String() != text || p.Explain() == "" {
			t.Errorf("%s is %q, %v", text, p, err)
		}
	}
	for _, text := range []string{
		"", "camera", "filesystem", "filesystem:", "filesystem:read:", "filesystem:read:data", "filesystem:read:../x", "filesystem:read:/a/../b", "filesystem:read:/a/",
		"filesystem:read:/", "filesystem:read:/proc/1", "filesystem:write:/dev/sda", "filesystem:read:~root/x", "filesystem:read:~/../x", "filesystem:read:~/",
		"filesystem:read:/a\x1b[2J", "filesystem:read:/a\u009bb", "filesystem:read:/a\u202eb", "filesystem:read:/a  b", "filesystem:read:/a\u3164", "filesystem:read:/a\u115f", "filesystem:read:/a\uffa0", "filesystem:read:/a\u2800", "filesystem:read:/a\u2028b", "filesystem:read:/tmp", "network:", "network:a b", "network:http://x", "network:-x", "env", "env:", "env:A=B", "env:1A",
		"env:ORLA_TOKEN", "env:ORLOJ_SECRET_X", "env:CREDENTIALS_DIRECTORY", "Network", "network:" + strings.Repeat("a", 400),
	} {
		if p, err := permission.Parse(text); err == nil {
			t.Errorf("%q is read as %v", text, p)
		}
	}
}

func all(t *testing.T, texts ...string) []permission.Permission {
	t.Helper()
	list, err := permission.ParseAll(texts)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// An update that asks for more asks again (SPEC M7), and one that asks for the same or less does not.
func TestM7More(t *testing.T) {
	granted := all(t, "filesystem:write:/data", "network:a.example.com", "env:A")
	asked := all(t, "filesystem:read:/data/x", "filesystem:write:/data", "network:a.example.com", "network:b.example.com", "network", "env:A", "env:B", "filesystem:read:/database", "filesystem:read")
	want := []string{"env:B", "filesystem:read", "filesystem:read:/database", "network", "network:b.example.com"}
	if got := permission.Texts(permission.More(asked, granted)); !slices.Equal(got, want) {
		t.Errorf("more is %v; want %v", got, want)
	}
	if got := permission.More(all(t, "network:x", "filesystem:read:/x", "filesystem:read"), all(t, "network", "filesystem:write")); len(got) != 0 {
		t.Errorf("%v is more than all", got)
	}
}

func TestM7Terms(t *testing.T) {
	dir := t.TempDir()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	home, data := filepath.Join(dir, "home"), filepath.Join(dir, "data")
	for _, path := range []string{home, data, filepath.Join(dir, "tools")} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(data, link); err != nil {
		t.Fatal(err)
	}
	m := permission.Machine{Home: home, Private: []string{filepath.Join(dir, "tools"), filepath.Join(home, "orla.lock")}}
	got, err := m.Of(all(t, "filesystem:write:"+data, "filesystem:read:"+data+"/x", "filesystem:read:~/docs", "filesystem:read:~/docs/a", "network:x", "env:A"))
	want := permission.Terms{Reads: []string{home + "/docs"}, Writes: []string{data}, Network: true, Env: []string{"A"}, Home: home}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the terms are %+v, %v; want %+v", got, err, want)
	}
	// Nothing of Orla's own is shown, also if it comes later.
	own := permission.Machine{Home: home, Private: append(slices.Clone(m.Private), filepath.Join(data, "token"), filepath.Join(home, "state", "secrets"))}
	if those, reasons := own.Unenforced(all(t, "filesystem:read", "filesystem:read:~", "filesystem:read:~/state", "filesystem:read:"+data)); len(those) != 0 {
		t.Errorf("unenforced are %v %v", those, reasons)
	}
	for _, text := range []string{"filesystem:read:" + link, "filesystem:write:" + link + "/x", "filesystem:read:" + dir + "/tools/a", "filesystem:read:~/orla.lock"} {
		if got, err := m.Of(all(t, text)); err == nil {
			t.Errorf("%s is granted: %+v", text, got)
		}
	}
	resolved, err := m.Resolve(all(t, "filesystem:read:"+link+"/x")[0])
	if err != nil || resolved.String() != "filesystem:read:"+data+"/x" {
		t.Errorf("it resolves to %v, %v", resolved, err)
	}
	// Who can change Orla's files, or what the user's other programs do, is not held to anything.
	asked := all(t, "filesystem:write", "filesystem:write:~", "filesystem:write:"+dir, "filesystem:write:~/.config", "filesystem:write:~/docs", "filesystem:write:~/.cache/x", "filesystem:write:"+data, "network", "network:x", "filesystem:read", "env:A")
	programs := permission.Machine{Home: home, Programs: []string{filepath.Join(home, "bin"), filepath.Join(dir, "opt", "bin"), filepath.Join(link, "cache")}}
	writes := all(t, "filesystem:write:~/bin", "filesystem:write:~/bin/uv", "filesystem:write:~/binary", "filesystem:write:"+dir+"/opt", "filesystem:write:"+dir+"/opt/bin2", "filesystem:write:"+data+"/cache/uv", "filesystem:read:~/bin")
	if those, _ := programs.Unenforced(writes); !slices.Equal(permission.Texts(those), []string{"filesystem:write:" + data + "/cache/uv", "filesystem:write:" + dir + "/opt", "filesystem:write:~/bin", "filesystem:write:~/bin/uv"}) {
		t.Errorf("unenforced are %v", those)
	}
	those, reasons := m.Unenforced(asked)
	if want := []string{"filesystem:write", "filesystem:write:" + dir, "filesystem:write:~", "filesystem:write:~/.cache/x", "filesystem:write:~/.config", "network:x"}; !slices.Equal(permission.Texts(those), want) || len(reasons) != len(want) {
		t.Errorf("unenforced are %v %v; want %v", those, reasons, want)
	}
}
