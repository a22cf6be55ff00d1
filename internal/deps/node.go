package deps

import (
	"context"
	_ "embed" // a file of Node
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/orla-project/orla/internal/deps/declared"
)

// resolver is the file in an environment of Node that makes its packages visible to a script elsewhere.
const resolver = "resolve.mjs"

// resolverCode looks in the environment for a package that Node does not find in the folders above the
// importing file. Packages that require loads are found by NODE_PATH.
//
//go:embed resolve.mjs
var resolverCode []byte

func (i *installer) writeResolver() error {
	_, err := i.write(resolver, resolverCode)
	return err
}

// node installs the packages of a Node tool from its lock.
func (i *installer) node(ctx context.Context) error {
	name := i.need.nodeInstaller()
	program := i.find(name)
	if program == "" {
		fix := "install it with Node"
		if name == "pnpm" {
			fix = "npm install -g pnpm"
		}
		return fmt.Errorf("%s needs %s, and there is no %s in PATH; %s", i.need.Lock, name, name, fix)
	}
	copied := i.copyProject
	if i.need.source.NoScripts {
		copied = i.carefulProject
	}
	if err := copied(); err != nil {
		return err
	}
	argv := []string{program, "ci", "--omit=dev", "--no-audit", "--no-fund", "--no-update-notifier"}
	if name == "pnpm" {
		argv = []string{program, "install", "--frozen-lockfile", "--prod"}
	}
	if i.need.source.NoScripts {
		if argv = append(argv, "--ignore-scripts"); name == "pnpm" {
			argv = append(argv, "--ignore-pnpmfile", "--ignore-workspace")
		} else {
			argv = append(argv, "--git=/bin/false") // npm would run what a repository prepares
		}
	}
	if _, err := i.run(ctx, step{argv: argv, dir: i.part}); err != nil {
		return err
	}
	if name == "pnpm" {
		i.withdrawn = append(i.withdrawn, declared.DeprecatedInPNPM(filepath.Join(i.part, filepath.Base(i.need.Lock)))...)
	}
	return nil
}

// carefulProject writes the package.json and the lock of a package from elsewhere, with nothing but what is known to name
// packages of the operator's registry.
func (i *installer) carefulProject() error {
	i.store.parse.Lock()
	defer i.store.parse.Unlock()
	files, err := i.need.declared().Node()
	if err != nil {
		return err
	}
	for name, text := range files {
		if _, err := i.write(name, text); err != nil {
			return err
		}
	}
	return nil
}

// copyProject copies the files that the installer reads. The scripts of the project itself stay behind: the
// files that they are about are not here.
func (i *installer) copyProject() error {
	text, err := os.ReadFile(i.need.File)
	if err != nil {
		return err
	}
	var project map[string]json.RawMessage
	if err := json.Unmarshal(text, &project); err != nil {
		return fmt.Errorf("%s: %w", i.need.File, err)
	}
	delete(project, "scripts")
	if text, err = json.MarshalIndent(project, "", "  "); err != nil {
		return err
	}
	if _, err := i.write("package.json", text); err != nil {
		return err
	}
	for _, name := range []string{filepath.Base(i.need.Lock), ".npmrc", "pnpm-workspace.yaml"} {
		text, err := os.ReadFile(filepath.Join(i.need.dir(), name))
		if isMissing(err) {
			continue
		} else if err != nil {
			return err
		}
		if _, err := i.write(name, text); err != nil {
			return err
		}
	}
	return nil
}
