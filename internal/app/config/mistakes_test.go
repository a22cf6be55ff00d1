package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// SPEC H1: a wrong value is one error, with its place and what is right.
func TestH1AWrongValueIsOneClearError(t *testing.T) {
	for text, want := range map[string]string{
		"audit_log: true":                     "1:12: audit_log: wants a file, journal or none, got true; ./true would be a path",
		"audit_log: off":                      "1:12: audit_log: wants a file, journal or none, got off; ./off would be a path",
		"log_file: on":                        "1:11: log_file: wants a file, got on; ./on would be a path",
		"socket: false":                       "1:9: socket: wants a path or none, got false; ./false would be a path",
		"state_dir: no":                       "1:12: state_dir: wants a folder, got no; ./no would be a path",
		"secrets_dir: true":                   "1:14: secrets_dir: wants a folder, got true; ./true would be a path",
		"listen: ''":                          "1:9: listen: must not be empty",
		"auth: {tokens: [a-secret]}":          `1:17: auth.tokens[0]: wants a mapping, got "a-secret"`,
		"auth: {oauth: {issuer: ''}}":         "1:24: auth.oauth.issuer: is required",
		"callers: [ci]":                       `1:11: callers[0]: wants a mapping, got "ci"`,
		"packages: [{isolation: none}]":       "1:12: packages[0].name: is required",
		"max_sessions: -5":                    "1:15: max_sessions: must be above 0, got -5",
		"timeout: 0":                          "1:10: timeout: must be above 0, got 0s",
		"registries: [ftp://a.example/b]":     `1:14: registries[0]: a registry is read by https or ssh, and not by "ftp"`,
		"max_package: 0":                      "1:14: max_package: must be above 0, got 0",
		"tracing: {sample_ratio: 2}":          "1:25: tracing.sample_ratio: must be between 0 and 1, got 2",
		"approvals: {ttl: 0}":                 "1:18: approvals.ttl: must be from 1s to 168h, got 0s",
		"tool_container_max_cpus: -5":         "1:26: tool_container_max_cpus: must be between 0.01 and 4096, got -5",
		"tool_container_image: a b":           `1:23: tool_container_image: "a b" is not the name of an image, such as docker.io/library/busybox:1.37`,
		"tool_container_runtime: a b":         `1:25: tool_container_runtime: "a b" is not the name of a runtime, such as runsc or /usr/bin/runsc`,
		"tool_k8s_ttl: 0":                     "1:15: tool_k8s_ttl: must be at least 1s, got 0s",
		"replica_listen: everywhere":          `1:17: replica_listen: must be an address with a port, such as 0.0.0.0:8081, got "everywhere"`,
		"replica_capsules: none":              `1:19: replica_capsules: must be kubernetes or all, got "none"`,
		"max_sessions: 0\nlog_level: loud":    "1:15: max_sessions: must be above 0, got 0\nFILE:2:12: log_level: must be debug, info, warn, error or fatal, got \"loud\"",
		"replica_listen: 'x:1'\nlisten: true": "2:9: listen: true is reachable from other machines and neither auth.tokens nor auth.oauth is set; set one, or use --insecure if something else protects it",
	} {
		path := filepath.Join(t.TempDir(), "orla.yaml")
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := (&Loader{Path: path, Home: "/home/ada"}).Load()
		if err == nil {
			t.Errorf("%s: accepted", text)
			continue
		}
		if got := strings.ReplaceAll(err.Error(), path, "FILE"); got != "FILE:"+want {
			t.Errorf("%s:\ngot  %s\nwant FILE:%s", text, got, want)
		}
	}
}

// SPEC H1: a variable for what only a file can have is an error, and not the end of the program.
func TestH1VariablesOfKeysThatOnlyAFileHas(t *testing.T) {
	for _, key := range []string{"auth", "callers", "toolsets", "approvals", "packages", "tracing"} {
		_, err := (&Loader{Path: os.DevNull, Environ: []string{variable(key) + "=x"}}).Load()
		if want := variable(key) + ": " + key + ": can be set in the configuration file only"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
