package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// SPEC H1: a variable whose name is nearly that of a setting is pointed out. Those that Orla gives to tools, and those of others, are not.
func TestH1AMisspelledVariableIsPointedOut(t *testing.T) {
	l := &Loader{Environ: []string{
		"ORLA_LOG_LEVL=debug", "ORLA_TOOLSDIR=x", "ORLA_Port=1", "ORLA_PORTS=", "LOG_LEVL=debug", "ORLA=1", "ORLA_=1",
		"ORLA_LOG_LEVEL=debug", "ORLA_PORT=1",
		"ORLA_TOOL=a", "ORLA_CALL_ID=a", "ORLA_INSTANCE=a", "ORLA_ENV=a", "ORLA_GENERATION=1", "ORLA_SECRET_TOKEN=a", "ORLA_ARGUMENT_0=a",
		"ORLA_TEST_CLIENTS=require", "ORLA_TEST_RACE=1", "ORLA_TEST_ROUNDS=1", "ORLA_VERSION=1", "ORLA_LDFLAGS=-s",
		"ORLA_SERVICE_HOST=10.0.0.1", "ORLA_SERVICE_PORT=80", "ORLA_SERVICE_PORT_HTTP=80", "ORLA_PORT_80_TCP=tcp://10.0.0.1:80", "ORLA_PORT_80_TCP_PORT=80",
	}}
	want := []string{
		"ORLA_LOG_LEVL is not a setting; did you mean ORLA_LOG_LEVEL?",
		"ORLA_Port is not a setting; did you mean ORLA_PORT?",
		"ORLA_TOOLSDIR is not a setting; did you mean ORLA_TOOLS_DIR?",
	}
	if got := l.Misspelled(); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// SPEC H1: a folder of the configuration that is not there is pointed out, with its place: who wrote it may have meant another.
func TestH1AFolderThatIsNotThereIsPointedOut(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "orla.yaml")
	for _, text := range []string{"secrets_dir: gone\nhot_load_folders: [/, gone2, orla.yaml]\n", "secrets_dir: .\n", "port: 1\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := (&Loader{Path: path, Home: dir}).Load()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, err := range cfg.Missing() {
			got = append(got, strings.ReplaceAll(err.Error(), dir, "DIR"))
		}
		want := []string{
			"DIR/orla.yaml:1:14: secrets_dir: DIR/gone is not there", "DIR/orla.yaml:2:23: hot_load_folders[1]: DIR/gone2 is not there",
			"DIR/orla.yaml:2:30: hot_load_folders[2]: DIR/orla.yaml is not a folder",
		}
		if !strings.Contains(text, "gone") {
			want = nil
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q", text, got)
		}
	}
}
