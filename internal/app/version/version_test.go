package version

import (
	"runtime/debug"
	"testing"
)

func TestVersionIsNeverEmpty(t *testing.T) {
	if Version() == "" {
		t.Error("Version() is empty")
	}
}

func TestPick(t *testing.T) {
	built := func(v string) *debug.BuildInfo { return &debug.BuildInfo{Main: debug.Module{Version: v}} }
	tests := []struct {
		name   string
		linked string
		info   *debug.BuildInfo
		want   string
	}{
		{"the linker's comes first", "v1.2.3", built("v9.9.9"), "v1.2.3"},
		{"then the module's", "", built("v1.2.4"), "v1.2.4"},
		{"a build in the work tree has none", "", built("(devel)"), "devel"},
		{"no build information", "", nil, "devel"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := pick(tt.linked, tt.info); got != tt.want {
				t.Errorf("pick(%q, %v) = %q, want %q", tt.linked, tt.info, got, tt.want)
			}
		})
	}
}

func TestCommit(t *testing.T) {
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123abcd"}
	dirty := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	clean := debug.BuildSetting{Key: "vcs.modified", Value: "false"}
	tests := []struct {
		name     string
		settings []debug.BuildSetting
		want     string
	}{
		{"clean", []debug.BuildSetting{revision, clean}, "0123abcd"},
		{"dirty", []debug.BuildSetting{dirty, revision}, "0123abcd-dirty"},
		{"unknown", []debug.BuildSetting{dirty}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := commit(&debug.BuildInfo{Settings: tt.settings}); got != tt.want {
				t.Errorf("commit(%v) = %q, want %q", tt.settings, got, tt.want)
			}
		})
	}
}

func TestWithoutBuildInformationNothingIsKnown(t *testing.T) {
	if got := commit(nil) + setting(nil, "vcs.time"); got != "" {
		t.Errorf("it says %q of nothing", got)
	}
}
