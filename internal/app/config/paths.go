package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// paths returns the settings that are paths, by key. Those in sections and lists are in morePaths.
func (c *Config) paths() map[string]*string {
	return map[string]*string{
		"tools_dir": &c.ToolsDir, "state_dir": &c.StateDir, "secrets_dir": &c.SecretsDir,
		"socket": &c.Socket, "tool_k8s_kubeconfig": &c.K8sKubeconfig, "log_file": &c.LogFile, "audit_log": &c.AuditLog,
	}
}

// morePaths returns the paths in sections and lists.
func (c *Config) morePaths() []*string {
	list := []*string{&c.Tracing.HeadersFile, &c.Approvals.Webhook.SecretFile, &c.Auth.OAuth.ClientSecret}
	for i := range c.Auth.Tokens {
		list = append(list, &c.Auth.Tokens[i].File)
	}
	for _, of := range [][]string{c.SandboxPaths, c.HotLoadFolders} {
		for i := range of {
			list = append(list, &of[i])
		}
	}
	return list
}

// SecretFiles returns the files, absolute, that the configuration names and that hold secrets.
func (c *Loaded) SecretFiles() (paths []string) {
	add := func(path, credential string) {
		switch dir := os.Getenv("CREDENTIALS_DIRECTORY"); {
		case credential != "" && dir != "" && credential == filepath.Base(credential):
			path = filepath.Join(dir, credential)
		case path == "":
			return
		case !filepath.IsAbs(path):
			path = filepath.Join(filepath.Dir(c.File), path)
		}
		paths = append(paths, Absolute(path))
	}
	for _, t := range c.Auth.Tokens {
		add(t.File, t.Credential)
	}
	add(c.Approvals.Webhook.SecretFile, c.Approvals.Webhook.SecretCredential)
	add(c.Auth.OAuth.ClientSecret, "")
	add(c.Tracing.HeadersFile, "")
	return paths
}

// locate replaces ~ in every path by the home. A relative path in the configuration file is relative to
// the folder of the file. A tools folder that was set becomes absolute, so that messages name it fully.
func (l *Loader) locate(c *Loaded) {
	for key, path := range c.paths() {
		*path = l.expandHome(*path)
		fromFile := c.OriginOf(key).Rank == FromFile && key != "log_file"
		word := key == "socket" && *path == NoSocket || key == "audit_log" && !c.auditsToFile()
		if fromFile && *path != "" && !filepath.IsAbs(*path) && !hasTilde(*path) && !word {
			*path = filepath.Join(filepath.Dir(c.File), *path)
		}
	}
	for _, path := range c.morePaths() {
		*path = l.expandHome(*path)
	}
	for i, path := range c.HotLoadFolders {
		if c.OriginOf("hot_load_folders").Rank == FromFile && path != "" && !filepath.IsAbs(path) && !hasTilde(path) {
			c.HotLoadFolders[i] = Absolute(filepath.Join(filepath.Dir(c.File), path))
		}
	}
	if named := c.OriginOf("tools_dir").Rank != FromDefault; (named || l.Serving) && !hasTilde(c.ToolsDir) {
		c.ToolsDir = Absolute(c.ToolsDir)
	}
}

// expandHome replaces the ~ of ~ and ~/… by the home. A shell does not do this in quotes, in
// --flag=~/…, or in a file.
func (l *Loader) expandHome(path string) string {
	if rest, ok := strings.CutPrefix(path, "~"); ok && l.Home != "" && (rest == "" || rest[0] == '/') {
		return filepath.Join(l.Home, rest)
	}
	return path
}

// PathOf returns the path that an argument, or a flag that is not a setting, means: ~ is the home. It
// returns an error for a ~ that is not the home of a known user.
func PathOf(argument string) (string, error) {
	home, _ := os.UserHomeDir() // "" if there is none
	path := (&Loader{Home: home}).expandHome(argument)
	if hasTilde(path) {
		return "", errors.New(tilde(path))
	}
	return path, nil
}

func hasTilde(path string) bool { return strings.HasPrefix(path, "~") }

// tildes adds a fault for each path with a ~ that Orla cannot replace.
func (v *verdict) tildes() {
	for key, path := range v.paths() {
		if hasTilde(*path) {
			v.wrong(key, "%s", tilde(*path))
		}
	}
	for i, path := range v.HotLoadFolders {
		if hasTilde(path) {
			v.wrongItem("hot_load_folders", i, "%s", tilde(path))
		}
	}
}

// switches adds a fault for each path that is the value of a switch: who writes audit_log: true wants no file of that name.
func (v *verdict) switches() {
	for key, wants := range map[string]string{
		"audit_log": "a file, journal or none", "log_file": "a file", "socket": "a path or none",
		"secrets_dir": "a folder", "state_dir": "a folder",
	} {
		text := *v.paths()[key]
		if v.OriginOf(key).Rank == FromFile {
			text, _ = v.doc.Text(key)
		}
		switch strings.ToLower(text) {
		case "true", "false", "yes", "no", "on", "off":
			v.wrong(key, "wants %s, got %s; ./%s would be a path", wants, text, text)
		}
	}
}

func tilde(path string) string {
	return fmt.Sprintf("%q: Orla replaces only ~ and ~/… by a home, and only if there is one; write the whole path, or ./… for a name that begins with ~", path)
}

// CheckToolsDir returns what is wrong with a tools folder that a flag, the environment or the file sets.
// The default folder need not exist.
func (c *Loaded) CheckToolsDir() error {
	from := c.OriginOf("tools_dir")
	if c.Only != "" || from.Rank == FromDefault {
		return nil
	}
	info, err := os.Stat(c.ToolsDir)
	var msg string
	switch {
	case err == nil && !info.IsDir():
		msg = c.ToolsDir + " is a file, not a folder"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		msg = c.ToolsDir + " does not exist; mkdir -p makes it"
	default: // the search reports a folder that cannot be read
		return nil
	}
	err = c.At("tools_dir", errors.New(msg))
	if from.Rank == FromFlag {
		return flagFault{err, true}
	}
	return err
}

// Missing returns an error for each folder of the configuration that is not there, or is none. It may come later.
func (c *Loaded) Missing() (list []error) {
	look := func(key, dir string) {
		switch info, err := os.Stat(dir); {
		case errors.Is(err, fs.ErrNotExist):
			list = append(list, c.At(key, fmt.Errorf("%s is not there", Absolute(dir))))
		case err == nil && !info.IsDir():
			list = append(list, c.At(key, fmt.Errorf("%s is not a folder", Absolute(dir))))
		}
	}
	if c.SecretsDir != "" {
		look("secrets_dir", c.SecretsDir)
	}
	for i, dir := range c.HotLoadFolders {
		look(fmt.Sprintf("hot_load_folders[%d]", i), dir)
	}
	return list
}
