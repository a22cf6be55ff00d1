package declared

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/deps/printed"
	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/yamldoc"
)

const (
	nodeName    = `(?:@[A-Za-z0-9~_-][A-Za-z0-9._~-]*/)?[A-Za-z0-9~_-][A-Za-z0-9._~-]*`
	nodeVersion = `[0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?`
)

var (
	nodeNameOnly    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^` + nodeName + `$`) })
	nodeVersionOnly = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^` + nodeVersion + `$`) })
	nodeAlias       = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^npm:` + nodeName + `@(.*)$`) })
	nodeRange       = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:\|\||-|[\^~<>=v]*(?:[0-9]+|[xX*])(?:[0-9A-Za-z.*+-]*)|[<>=^~]+|[A-Za-z][A-Za-z0-9_-]*)$`)
	})
	nodePlace = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^node_modules/` + nodeName + `(?:/node_modules/` + nodeName + `)*$`)
	})
	nodeHash = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^sha(?:1|256|384|512)-[A-Za-z0-9+/=]+(?: sha(?:1|256|384|512)-[A-Za-z0-9+/=]+)*$`)
	})
	pnpmPackage  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^` + nodeName + `@` + nodeVersion + `$`) })
	pnpmSnapshot = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^` + nodeName + `@` + nodeVersion + pnpmPeers + `$`) })
	pnpmVersion  = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:` + nodeName + `@)?` + nodeVersion + pnpmPeers + `$`)
	})
	webAddress = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^https?://`) })
)

// mostLock bounds a lock that pnpm has read.
const mostLock = 32 << 20

const pnpmPeers = `(?:\([A-Za-z0-9@/._~+()-]*\))?`

// object is a JSON object of which some keys count.
type object map[string]json.RawMessage

// only returns the keys that count.
func (o object) only(keys ...string) object {
	some := object{}
	for _, key := range keys {
		if value, ok := o[key]; ok {
			some[key] = value
		}
	}
	return some
}

// text returns the text of a key; "" without one.
func (o object) text(key string) (text string, err error) {
	if raw, ok := o[key]; ok {
		err = json.Unmarshal(raw, &text)
	}
	return text, err
}

// texts returns the texts of a key that has an object.
func (o object) texts(key string) (texts map[string]string, err error) {
	if raw, ok := o[key]; ok {
		err = json.Unmarshal(raw, &texts)
	}
	return texts, err
}

// objects returns the objects of a key that has an object, in the order of their names.
func (o object) objects(key string) (list map[string]object, names []string, err error) {
	if raw, ok := o[key]; ok {
		err = json.Unmarshal(raw, &list)
	}
	return list, slices.Sorted(maps.Keys(list)), err
}

func (o object) put(key string, value any) error {
	raw, err := json.Marshal(value)
	o[key] = raw
	return err
}

// isRange reports whether a version that is asked for is one of a registry, and neither a path, a URL, nor a repository.
func isRange(text string) bool {
	if m := nodeAlias().FindStringSubmatch(text); m != nil {
		text = m[1]
	}
	for word := range strings.FieldsSeq(strings.ReplaceAll(text, "||", " || ")) {
		if !nodeRange().MatchString(word) || archive().MatchString(word) {
			return false
		}
	}
	return true
}

// dependencyKeys are those whose packages npm or pnpm may look for.
var dependencyKeys = []string{"dependencies", "devDependencies", "optionalDependencies", "peerDependencies"}

// rangesOnly returns an error if something else than a version of a registry is asked for.
func (o object) rangesOnly(keys ...string) error {
	for _, key := range keys {
		list, err := o.texts(key)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		for name, wanted := range list {
			if !nodeNameOnly().MatchString(name) || !isRange(wanted) {
				return fmt.Errorf("%s: %.200q is not a version of a registry, which is all that an installed package may need; %s", key+"."+name, wanted, howAllowed)
			}
		}
	}
	return nil
}

// Node returns what counts of the package.json and the lock, by the names of the files: nothing but what is known to name
// packages of the operator's registry.
func (f Files) Node() (map[string][]byte, error) {
	text, err := ReadBelow(f.Root, f.File)
	if err != nil {
		return nil, err
	}
	var all object
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", f.File, err)
	}
	for _, key := range []string{"workspaces", "overrides", "resolutions", "pnpm"} {
		if _, has := all[key]; has {
			return nil, fmt.Errorf("%s has %s, which an installed package may not have; %s", f.File, key, howAllowed)
		}
	}
	project := all.only(append([]string{"name", "version", "private", "type", "peerDependenciesMeta"}, dependencyKeys...)...)
	if err := project.rangesOnly(dependencyKeys...); err != nil {
		return nil, fmt.Errorf("%s: %w", f.File, err)
	}
	lock, err := ReadBelow(f.Root, f.Lock)
	if err != nil {
		return nil, err
	}
	name, read := filepath.Base(f.Lock), lockOfNPM
	if name == "pnpm-lock.yaml" {
		read = lockOfPNPM
	}
	made, err := read(lock, project)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Lock, err)
	}
	files := map[string][]byte{}
	for name, value := range map[string]object{"package.json": project, name: made} {
		if files[name], err = json.MarshalIndent(value, "", "  "); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// lockOfNPM returns what counts of a package-lock.json. Where a package is fetched from is left out: npm asks the
// operator's registry for that version, and compares the digest.
func lockOfNPM(text []byte, project object) (object, error) {
	var lock object
	if err := json.Unmarshal(text, &lock); err != nil {
		return nil, err
	}
	if version := string(lock["lockfileVersion"]); version != "2" && version != "3" {
		return nil, errors.New("its lockfileVersion is not 2 or 3; npm install --package-lock-only of npm 7 or newer writes it")
	}
	packages, places, err := lock.objects("packages")
	if err != nil {
		return nil, err
	}
	for _, place := range places {
		if place == "" {
			packages[""] = project
			continue
		}
		one, err := packageOfNPM(place, packages[place])
		if err != nil {
			return nil, fmt.Errorf("packages: %q %w; %s", place, err, howAllowed)
		}
		packages[place] = one
	}
	made := object{"lockfileVersion": json.RawMessage("3"), "requires": json.RawMessage("true")}
	maps.Copy(made, project.only("name", "version"))
	return made, made.put("packages", packages)
}

func packageOfNPM(place string, all object) (object, error) {
	if !nodePlace().MatchString(place) || strings.Contains(place, "/..") {
		return nil, errors.New("is not a place below node_modules")
	}
	for _, key := range []string{"link", "hasShrinkwrap"} {
		if value, has := all[key]; has && string(value) != "false" {
			return nil, fmt.Errorf("has %s, which an installed package may not have", key)
		}
	}
	one := all.only("name", "version", "integrity", "dependencies", "optionalDependencies", "peerDependencies", "peerDependenciesMeta",
		"dev", "optional", "devOptional", "peer", "engines", "os", "cpu", "libc", "bin", "deprecated")
	values := map[string]string{}
	for _, key := range []string{"name", "version", "integrity", "resolved", "deprecated"} {
		value, err := all.text(key)
		if err != nil {
			return nil, fmt.Errorf("has a %s that is not a text", key)
		}
		values[key] = value
	}
	switch {
	case values["name"] != "" && !nodeNameOnly().MatchString(values["name"]):
		return nil, errors.New("has a name that is not one of a registry")
	case !nodeVersionOnly().MatchString(values["version"]):
		return nil, fmt.Errorf("has %.200q in place of a version of a registry", values["version"])
	case values["resolved"] != "" && !webAddress().MatchString(values["resolved"]):
		return nil, fmt.Errorf("comes from %.200q, which is not a registry", values["resolved"])
	case !nodeHash().MatchString(values["integrity"]): // also inBundle: npm would fetch it if the package that has to bring it does not
		return nil, errors.New("has no digest (integrity); packages that others bring (inBundle) have none, and are not installed")
	}
	return one, one.rangesOnly(dependencyKeys...)
}

// lockOfPNPM returns what counts of a pnpm-lock.yaml.
func lockOfPNPM(text []byte, _ object) (object, error) {
	raw, err := yamldoc.Whole("pnpm-lock.yaml", text, yamldoc.Options{MaxSize: mostLock})
	if err != nil {
		return nil, err
	}
	var lock object
	if err := json.Unmarshal(raw, &lock); err != nil {
		return nil, err
	}
	if version := bytes.Trim(lock["lockfileVersion"], `"`); string(version) != "9.0" {
		return nil, errors.New("its lockfileVersion is not 9.0, which pnpm 9 and newer write")
	}
	for key := range lock {
		if !slices.Contains([]string{"lockfileVersion", "settings", "importers", "packages", "snapshots"}, key) {
			return nil, fmt.Errorf("has %.100q, which an installed package may not have; %s", key, howAllowed)
		}
	}
	made := object{"lockfileVersion": json.RawMessage(`"9.0"`)}
	settings, err := onlySwitches(lock)
	if err != nil {
		return nil, err
	}
	if err := made.put("settings", settings); err != nil {
		return nil, err
	}
	for key, read := range map[string]func(name string, all object) (object, error){
		"importers": importerOfPNPM, "packages": packageOfPNPM, "snapshots": snapshotOfPNPM,
	} {
		list, names, err := lock.objects(key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		for _, name := range names {
			if list[name], err = read(name, list[name]); err != nil {
				return nil, fmt.Errorf("%s: %.200q %w; %s", key, name, err, howAllowed)
			}
		}
		if _, has := lock[key]; has {
			if err := made.put(key, list); err != nil {
				return nil, err
			}
		}
	}
	return made, nil
}

// onlySwitches returns the settings that pnpm compares with its own.
func onlySwitches(lock object) (object, error) {
	var settings object
	if raw, ok := lock["settings"]; ok {
		if err := json.Unmarshal(raw, &settings); err != nil {
			return nil, fmt.Errorf("settings: %w", err)
		}
	}
	some := settings.only("autoInstallPeers", "excludeLinksFromLockfile")
	for key, value := range some {
		if s := string(value); s != "true" && s != "false" {
			return nil, fmt.Errorf("settings: %s is not true or false", key)
		}
	}
	return some, nil
}

func importerOfPNPM(name string, all object) (object, error) {
	if name != "." {
		return nil, errors.New("is another folder than the package's own")
	}
	made := object{}
	for _, key := range dependencyKeys[:3] {
		list, names, err := all.objects(key)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			specifier, err1 := list[name].text("specifier")
			version, err2 := list[name].text("version")
			if err := errors.Join(err1, err2); err != nil {
				return nil, err
			}
			if !nodeNameOnly().MatchString(name) || !isRange(specifier) || !pnpmVersion().MatchString(version) {
				return nil, fmt.Errorf("needs %s as %.100q (%.100q), which is not a version of a registry", name, version, specifier)
			}
			list[name] = list[name].only("specifier", "version")
		}
		if len(list) > 0 {
			if err := made.put(key, list); err != nil {
				return nil, err
			}
		}
	}
	return made, nil
}

func packageOfPNPM(name string, all object) (object, error) {
	if !pnpmPackage().MatchString(name) {
		return nil, errors.New("is not a version of a registry")
	}
	resolution, err := all.texts("resolution")
	if err != nil || len(resolution) != 1 || !nodeHash().MatchString(resolution["integrity"]) {
		return nil, errors.New("is not a package of the registry with a digest (resolution: {integrity})")
	}
	one := all.only("resolution", "engines", "os", "cpu", "libc", "hasBin", "peerDependencies", "peerDependenciesMeta", "deprecated", "bundledDependencies")
	return one, one.rangesOnly("peerDependencies")
}

func snapshotOfPNPM(name string, all object) (object, error) {
	if !pnpmSnapshot().MatchString(name) {
		return nil, errors.New("is not a version of a registry")
	}
	if value, has := all["patched"]; has && string(value) != "false" {
		return nil, errors.New("is patched")
	}
	one := all.only("dependencies", "optionalDependencies", "transitivePeerDependencies", "optional")
	for _, key := range dependencyKeys {
		list, err := one.texts(key)
		if err != nil {
			return nil, err
		}
		for name, version := range list {
			if !nodeNameOnly().MatchString(name) || !pnpmVersion().MatchString(version) {
				return nil, fmt.Errorf("needs %s as %.100q, which is not a version of a registry", name, version)
			}
		}
	}
	return one, nil
}

// DeprecatedInPNPM returns the versions in a pnpm-lock.yaml that are deprecated. pnpm does not print them when it installs them.
func DeprecatedInPNPM(file string) (list []printed.Withdrawal) {
	const most = 20
	text, err := regularfile.Read(file, mostLock)
	if err != nil {
		return nil // pnpm has read it
	}
	raw, err := yamldoc.Whole("pnpm-lock.yaml", text, yamldoc.Options{MaxSize: mostLock})
	var lock object
	if err != nil || json.Unmarshal(raw, &lock) != nil {
		return nil // the same
	}
	packages, names, _ := lock.objects("packages")
	for _, name := range names {
		reason, _ := packages[name].text("deprecated")
		if at := strings.LastIndex(name, "@"); reason != "" && at > 0 && len(list) < most {
			list = append(list, printed.NewWithdrawal(name[:at], name[at+1:], reason))
		}
	}
	return list
}
