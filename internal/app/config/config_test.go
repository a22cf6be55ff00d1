package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/observe/logging"
)

// The sample has every key, and says what holds without it (SPEC H1).
func TestSampleConfigIsTheDefaults(t *testing.T) {
	var written strings.Builder
	if err := WriteSample(&written); err != nil {
		t.Fatal(err)
	}
	sample := written.String()
	for line := range strings.Lines(sample) {
		if line != "\n" && !strings.HasPrefix(line, "#") {
			t.Errorf("it sets something: %s", line)
		}
	}
	set := regexp.MustCompile(`(?m)^#([a-z]|  )`).ReplaceAllString(sample, "$1")
	path := filepath.Join(t.TempDir(), "orla.yaml")
	if err := os.WriteFile(path, []byte(set), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := (&Loader{Path: path}).Load()
	if err != nil {
		t.Fatalf("without its comment signs it has faults: %v\n%s", err, set)
	}
	want := Defaults()
	want.ToolsDir = filepath.Join(filepath.Dir(path), want.ToolsDir)
	for _, key := range Keys() {
		if got.OriginOf(key).Rank != FromFile {
			t.Errorf("%s is not there", key)
		}
		if isSample := slices.ContainsFunc(sampleKeys(), func(s string) bool { return s == key }); isSample {
			continue
		}
		if have, want := Value(&got.Config, key).Interface(), Value(&want, key).Interface(); !same(have, want) {
			t.Errorf("%s is shown as %v; the default is %v", key, have, want)
		}
	}
}

// sampleKeys are the keys whose value in the sample is not the default.
func sampleKeys() []string {
	var list []string
	for _, field := range settings(reflect.TypeFor[Config]()) {
		if _, isSample := field.Tag.Lookup("sample"); isSample || field.Type == reflect.TypeFor[AuthConfig]() {
			list = append(list, jsonKey(field))
		}
	}
	return list
}

// same takes an empty list for none.
func same(a, b any) bool {
	v, w := reflect.ValueOf(a), reflect.ValueOf(b)
	if v.Kind() == reflect.Slice && v.Len() == 0 && w.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a, b)
}

// SPEC I1: on a terminal the log is for people, unless it goes to a file or somebody says
// otherwise.
func TestI1OnATerminalTheLogIsForPeople(t *testing.T) {
	for _, c := range []struct {
		terminal, journal bool
		flag              Setting
		want              string
	}{
		{false, false, Setting{}, logging.JSON},
		{true, false, Setting{}, logging.Pretty},
		{true, true, Setting{}, logging.Journal},
		{true, false, Setting{"log_format", "json", "log-format"}, logging.JSON},
		{true, false, Setting{"log_file", "orla.log", "log-file"}, logging.JSON},
	} {
		l := &Loader{Path: os.DevNull, terminal: c.terminal, journal: c.journal}
		if c.flag.Key != "" {
			l.Flags = append(l.Flags, c.flag)
		}
		cfg, err := l.Load()
		if err != nil {
			t.Fatal(err)
		}
		if cfg.LogFormat != c.want {
			t.Errorf("%+v: %s, want %s", c, cfg.LogFormat, c.want)
		}
	}
}
