package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/observe/logging"
	"github.com/orla-project/orla/internal/service/address"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// check returns the faults of values from flags and the environment, each with the place to fix. The
// faults of values from the file go to c.doc. Keys in bad have values that could not be read.
func (c *Loaded) check(bad map[string]bool) []error {
	v := verdict{Loaded: c, bad: bad}
	for key, text := range map[string]string{"tools_dir": c.ToolsDir, "listen": c.Listen} {
		if text == "" {
			v.wrong(key, "must not be empty")
		}
	}
	if c.Port < 0 || c.Port > maxPort {
		v.wrong("port", "must be between 0 and %d, got %d", maxPort, c.Port)
	}
	if _, ok := logging.Levels[c.LogLevel]; !ok {
		v.wrong("log_level", "must be debug, info, warn, error or fatal, got %q", c.LogLevel)
	}
	switch c.LogFormat {
	case logging.JSON, logging.Pretty:
	case logging.Journal:
		if c.LogFile != "" {
			v.refuse("log_file", "does not go with log_format journald, whose lines go to the journal")
		}
	default:
		v.wrong("log_format", "must be json, pretty or journald, got %q", c.LogFormat)
	}
	if values := outbound.Private("").Values(); !slices.Contains(values, c.AllowPrivateEndpoints) {
		v.wrong("allow_private_endpoints", "must be none, loopback or all, got %q", c.AllowPrivateEndpoints)
	}
	if values := manifest.Pin("").Values(); !slices.Contains(values, c.Pin) {
		v.wrong("pin", "must be off, warn or hold, got %q", c.Pin)
	}
	if c.Console != ConsoleOn && c.Console != ConsoleOff {
		v.wrong("console", "must be on or off, got %q", c.Console)
	}
	if c.KubernetesNamespace != "" && !dnsLabel().MatchString(c.KubernetesNamespace) {
		v.wrong("kubernetes_namespace", "%q is not the name of a namespace", c.KubernetesNamespace)
	}
	for key, n := range map[string]int64{
		"timeout":              int64(c.Timeout),
		"max_output":           int64(c.MaxOutput),
		"max_inline":           int64(c.MaxInline),
		"max_request":          int64(c.MaxRequest),
		"max_concurrent_calls": int64(c.MaxConcurrentCalls),
		"session_timeout":      int64(c.SessionTimeout),
		"max_sessions":         int64(c.MaxSessions),
	} {
		if n <= 0 {
			v.wrong(key, "must be above 0, got %s", Text(Value(&c.Config, key)))
		}
	}
	for i, o := range c.AllowedOrigins {
		if err := webOrigin(o); err != nil {
			v.wrongItem("allowed_origins", i, "%v", err)
		}
	}
	for i, h := range c.AllowedHosts {
		if err := allowedHost(h); err != nil {
			v.wrongItem("allowed_hosts", i, "%v", err)
		}
	}
	v.tildes()
	v.switches()
	for i, folder := range c.HotLoadFolders {
		if !hasTilde(folder) && (!filepath.IsAbs(folder) || filepath.Clean(folder) != folder) {
			v.wrongItem("hot_load_folders", i, "%q is not an absolute path without . and ..", folder)
		}
	}
	if c.ClientMetadataURL != "" {
		if err := documentURL(c.ClientMetadataURL); err != nil {
			v.wrong("client_metadata_url", "%v", err)
		}
	}
	v.tokens()
	v.oauth()
	v.callers()
	v.approvals()
	v.audit()
	v.traces()
	v.isolation()
	v.packages()
	v.replicas()
	if len(v.faults) == 0 && (c.doc == nil || c.doc.Err() == nil) {
		v.address() // what it says depends on several keys
	}
	slices.SortFunc(v.faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return v.faults
}

const maxPort = 65535

// verdict collects the faults of values.
type verdict struct {
	*Loaded
	bad    map[string]bool
	faults []error
}

// wrong adds a fault of a key's value, at the place that the value came from.
func (v *verdict) wrong(key, format string, args ...any) {
	if v.bad[key] {
		return // it has been said that the value is none
	}
	switch err := fmt.Errorf(format, args...); v.OriginOf(key).Rank {
	case FromFile:
		v.doc.Faultf(key, "%w", err)
	case FromFlag:
		v.faults = append(v.faults, flagFault{error: v.At(key, err)})
	case FromDefault, FromEnviron:
		v.faults = append(v.faults, v.At(key, err))
	}
}

// At returns an error about the value of a key, such as auth.tokens[0].file, with the place that the value came from.
func (c *Loaded) At(key string, err error) error {
	top := key
	if end := strings.IndexAny(key, ".["); end > 0 {
		top = key[:end]
	}
	switch c.OriginOf(top).Rank {
	case FromFile:
		return c.doc.At(key, "%w", err)
	case FromEnviron:
		return fmt.Errorf("%s: %s: %w", variable(key), key, err)
	case FromFlag:
		return flagError(key, err.Error())
	case FromDefault:
	}
	return fmt.Errorf("%s: %w", key, err)
}

// wrongItem adds a fault of an item of a list.
func (v *verdict) wrongItem(key string, i int, format string, args ...any) {
	if v.OriginOf(key).Rank == FromFile {
		v.doc.Faultf(fmt.Sprintf("%s[%d]", key, i), format, args...)
		return
	}
	v.wrong(key, format, args...)
}

// refuse adds a fault of a value that is valid alone, but not together with others.
func (v *verdict) refuse(key, format string, args ...any) {
	if v.OriginOf(key).Rank == FromFlag {
		v.faults = append(v.faults, flagError(key, fmt.Sprintf(format, args...)))
		return
	}
	v.wrong(key, format, args...)
}

func flagError(key, msg string) error {
	return fmt.Errorf("--%s: %s", strings.ReplaceAll(key, "_", "-"), msg)
}

// tokens checks auth.tokens, which can only be set in a file.
func (v *verdict) tokens() {
	names := map[string]bool{}
	for i, t := range v.Auth.Tokens {
		key := fmt.Sprintf("auth.tokens[%d]", i)
		switch {
		case t.Name == "":
			v.doc.Faultf(key+".name", "is required")
		case names[t.Name]:
			v.doc.Faultf(key+".name", "%q is there twice", t.Name)
		case terminal.Printable(t.Name) != t.Name || strings.TrimSpace(t.Name) != t.Name:
			v.doc.Faultf(key+".name", "must not have characters that nobody sees, or a blank at an end")
		case IsIssued(t.Name):
			v.doc.Faultf(key+".name", "must not begin with %s, as the names of callers with access tokens do", httpfront.IssuedPrefix)
		case isDecider(t.Name):
			v.doc.Faultf(key+".name", "must not begin with user: or client of, which records of approvals have for people without a token")
		case (t.File == "") == (t.Credential == ""):
			v.doc.Faultf(key, "wants either file or credential")
		}
		names[t.Name] = true
	}
}

// address checks the address to listen on, and that it is not open to everybody.
func (v *verdict) address() {
	if v.bad["listen"] || v.bad["port"] {
		return
	}
	host, port, err := net.SplitHostPort(v.Address())
	if err == nil {
		err = wellFormed(host, port)
	}
	// A port that another source outranks is to be one all the same.
	if _, own, split := net.SplitHostPort(v.Listen); err == nil && split == nil {
		err = wellFormed(host, own)
	}
	switch {
	case err != nil:
		v.wrong("listen", "%q is not an address or address:port such as 127.0.0.1 or 127.0.0.1:8080", v.Listen)
	case !v.Stdio && !IsLoopback(host) && !v.Auth.Required() && !v.Insecure:
		// The value may be one; it is the configuration as a whole that is refused.
		v.refuse("listen", "%s is reachable from other machines and neither auth.tokens nor auth.oauth is set; set one, or use --insecure if something else protects it", v.Listen)
	}
}

var hostName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?$`) })

// webOrigin returns why a text is not an origin as browsers send it.
func webOrigin(text string) error {
	u, err := url.Parse(text)
	switch {
	case strings.Contains(text, "@"): // not repeated: it may hold a password
		return errors.New("holds a user, which no web origin does; write it as https://host or https://host:port")
	case err != nil || u.Hostname() == "" || u.Path != "" || strings.ContainsAny(text, "?#") || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%q is not a web origin; write it as https://host or https://host:port", text)
	case address.CheckHost(u) != nil:
		return fmt.Errorf("%q %w", text, address.CheckHost(u))
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r > '~' }):
		return fmt.Errorf("%q: browsers send the ASCII form of a host, which begins with xn--; write that", text)
	}
	return nil
}

// allowedHost returns why a text is not a name that a Host header can have.
func allowedHost(text string) error {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.Trim(text, "[]"), "0"
	}
	if host == "" || wellFormed(host, port) != nil {
		return fmt.Errorf("%q is not a host or host:port such as orla.example.com; names must be ASCII, and * is not supported", text)
	}
	return nil
}

// wellFormed refuses an invalid host or port. An empty host means every address of this machine.
func wellFormed(host, port string) error {
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > maxPort {
		return errors.New("no port")
	}
	ip, _, _ := strings.Cut(host, "%") // fe80::1%eth0
	if host != "" && net.ParseIP(ip) == nil && !hostName().MatchString(host) {
		return errors.New("no host")
	}
	return nil
}
