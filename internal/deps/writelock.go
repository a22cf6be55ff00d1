package deps

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/orla-project/orla/internal/deps/declared"
	"github.com/orla-project/orla/internal/deps/printed"
)

// Locker writes the locks of packages that strangers chose. Its installers run as those of an installed package do (SPEC R6): in
// a sandbox, without the variables that they need not know, and without a file of the package.
type Locker struct {
	Options        // Confine is required, and Dir is where folders are made; "" for that of temporary files
	Python  string // the interpreter whose packages are chosen
}

// Has reports whether an installer is there.
func (l Locker) Has(program string) bool { return findIn(l.Environ, program) != "" }

// Write runs an installer in a new folder with one file, and returns the lock that it writes there. A lock that an
// installed package may not have is an error. withdrawn are the versions that the
// installer said were withdrawn.
func (l Locker) Write(ctx context.Context, argv []string, name, text, lock string) (made []byte, withdrawn []printed.Withdrawal, err error) {
	at, err := os.MkdirTemp(l.Dir, "orla-lock-")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = os.RemoveAll(at) }() // what is needed of it has been read
	if at, err = filepath.EvalSymlinks(at); err != nil {
		return nil, nil, err
	}
	part := filepath.Join(at, "part")
	i := &installer{store: &Store{opts: l.Options}, part: part, at: part, say: func(string) {}, log: l.Log}
	i.need = Need{File: filepath.Join(part, name), Lock: filepath.Join(part, lock), source: Source{NoScripts: true, Interpreter: l.Python}}
	program := i.find(argv[0])
	if program == "" {
		return nil, nil, fmt.Errorf("the program %s is not installed, which the package needs to be installed", argv[0])
	}
	if err := os.Mkdir(part, 0o700); err != nil {
		return nil, nil, err
	}
	if _, err := i.write(name, []byte(text)); err != nil {
		return nil, nil, err
	}
	if err := i.confined(); err != nil {
		return nil, nil, err
	}
	if _, err := i.run(ctx, step{argv: append([]string{program}, argv[1:]...), dir: part}); err != nil {
		return nil, nil, err
	}
	if err := i.give(0); err != nil { // nothing of it runs any more
		return nil, nil, err
	}
	if made, err = declared.ReadBelow(part, i.need.Lock); err != nil {
		return nil, nil, err
	}
	if lock == "package-lock.json" {
		_, err = i.need.declared().Node()
	} else {
		_, err = declared.Exported(lock, string(made))
	}
	return made, i.withdrawn, err
}
