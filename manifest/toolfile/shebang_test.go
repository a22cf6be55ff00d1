package toolfile_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/manifesttest"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/discover"
	"github.com/orla-project/orla/manifest/toolfile"
)

func TestA5Shebangs(t *testing.T) {
	type i = manifest.Interpreter
	for line, want := range map[string]i{
		"#!/bin/bash":                         {Name: "bash", Path: "/bin/bash"},
		"#!/bin/bash\r\n":                     {Name: "bash", Path: "/bin/bash"},
		"\xef\xbb\xbf#!/bin/sh\nexit":         {Name: "sh", Path: "/bin/sh"},
		"#!  /bin/sh  -e  -u \t":              {Name: "sh", Path: "/bin/sh", Args: []string{"-e  -u"}},
		"#!/usr/bin/env python3":              {Name: "python3"},
		"#!/usr/bin/env python3\r":            {Name: "python3"},
		"#! /usr/bin/env\tpython3":            {Name: "python3"},
		"#!/usr/bin/env -S python3 -u":        {Name: "python3", Args: []string{"-u"}},
		"#!/usr/bin/env -Spython3 -u":         {Name: "python3", Args: []string{"-u"}},
		"#!/usr/bin/env --split-string=a b c": {Name: "a", Args: []string{"b", "c"}},
		"#!/usr/bin/env -S A=1 B= python3":    {Name: "python3", Env: []string{"A=1", "B="}},
		"#!/usr/bin/env -S /opt/py -u":        {Name: "py", Path: "/opt/py", Args: []string{"-u"}},
		"#!.venv/bin/python":                  {Name: "python", Path: ".venv/bin/python", Local: true},
		"#!./venv/bin/python -u":              {Name: "python", Path: "./venv/bin/python", Args: []string{"-u"}, Local: true},
		"#!/usr/bin/env .venv/bin/python":     {Name: "python", Path: ".venv/bin/python", Local: true},
		"#!/usr/bin/env /bin/sh":              {Name: "sh", Path: "/bin/sh"},
		"#!/usr/bin/env -S ./py -u":           {Name: "py", Path: "./py", Args: []string{"-u"}, Local: true},
		"#!/usr/bin/env -S -i python3":        {Name: "env", Path: "/usr/bin/env", Args: []string{"-S -i python3"}},
		`#!/usr/bin/env -S sh -c "a b"`:       {Name: "env", Path: "/usr/bin/env", Args: []string{`-S sh -c "a b"`}},
	} {
		got, ok, err := toolfile.ParseShebang([]byte(line))
		if !ok || err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, %v, %v; want %+v", line, got, ok, err, want)
		}
	}
	for _, line := range []string{"", "#", "# !/bin/sh", " #!/bin/sh", "\x7fELF\x02", "\n#!/bin/sh"} {
		if _, ok, err := toolfile.ParseShebang([]byte(line)); ok || err != nil {
			t.Errorf("%q is taken for a shebang (%v)", line, err)
		}
	}
	for line, want := range map[string]string{
		"#!":                                "names no interpreter",
		"#!  \r\n":                          "names no interpreter",
		"#!python3":                         "write #!/usr/bin/env python3",
		"#!env -S python3":                  "write #!/usr/bin/env",
		"#!/usr/bin/env":                    "names no interpreter after env",
		"#!/usr/bin/env -S":                 "names no interpreter after env -S",
		"#!/usr/bin/env -S A=1":             "names no interpreter after env -S",
		"#!/usr/bin/env python3 -u":         "write #!/usr/bin/env -S python3 -u",
		"#!/usr/bin/env -i":                 "write #!/usr/bin/env -S -i",
		"#!/bin/\x00sh":                     "NUL",
		"#!/" + strings.Repeat("x", 60_000): "longer than 1024 bytes",
	} {
		if _, ok, err := toolfile.ParseShebang([]byte(line)); !ok || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v; want an error with %q", line, ok, err, want)
		}
	}
}

func TestA5AMissingInterpreterIsNamed(t *testing.T) {
	dir := t.TempDir()
	manifesttest.Write(t, dir, "bin/mytool", "", 0o755)
	manifesttest.Write(t, dir, "bin/plain", "", 0o644)
	bin := filepath.Join(dir, "bin")
	t.Setenv("PATH", bin)
	for _, c := range []struct {
		i          manifest.Interpreter
		path, want string
	}{
		{manifest.Interpreter{}, "", ""},
		{manifest.Interpreter{Name: "mytool"}, filepath.Join(bin, "mytool"), ""},
		{manifest.Interpreter{Name: "x", Path: filepath.Join(bin, "mytool")}, filepath.Join(bin, "mytool"), ""},
		{manifest.Interpreter{Name: "mytool", Path: "/elsewhere/mytool"}, filepath.Join(bin, "mytool"), ""},
		{manifest.Interpreter{Name: "gone"}, "", `interpreter "gone" is not there: no gone in PATH; install it`},
		{manifest.Interpreter{Name: "gone", Path: "/x/gone"}, "", `neither /x/gone nor a gone in PATH`},
		{manifest.Interpreter{Name: "plain", Path: filepath.Join(bin, "plain")}, "", `interpreter "plain" is not there`},
		{manifest.Interpreter{Name: "bin", Path: bin}, "", `interpreter "bin" is not there`},
	} {
		path, err := c.i.Resolve()
		if path != c.path || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %q, %v; want %q, %q", c.i, path, err, c.path, c.want)
		}
	}
	manifesttest.Write(t, dir, "tools/a.py", "#!/usr/bin/env gone\n", 0o755)
	manifesttest.Write(t, dir, "tools/b.sh", "#!"+filepath.Join(bin, "mytool")+"\n", 0o755)
	r := discover.Tools(discover.Options{ToolsDir: filepath.Join(dir, "tools")})
	if got := manifesttest.Names(r); !reflect.DeepEqual(got, []string{"b"}) {
		t.Errorf("served are %v", got)
	}
	if p := r.Problems; len(p) != 1 || p[0].Severity != manifest.Fault || p[0].Tool != "a" || !strings.Contains(p[0].Err.Error(), `interpreter "gone"`) {
		t.Errorf("problems %v", manifesttest.Texts(r))
	}
	if err := os.Remove(filepath.Join(bin, "mytool")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Tools[0].Interpreter.Resolve(); err == nil {
		t.Error("the interpreter is not looked up again")
	}
}
