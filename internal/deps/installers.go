package deps

import "path/filepath"

// nodeInstaller returns the program that reads the lock.
func (n Need) nodeInstaller() string {
	for _, lock := range locks {
		if filepath.Base(n.Lock) == lock.file {
			return lock.program
		}
	}
	return "npm"
}

// Installer returns the program that installs what is needed: the first of those that can and that
// environ, an environment of a process, has in its PATH. If there is none, it is the one to install.
func (n Need) Installer(environ []string) (program string, there bool) {
	switch {
	case len(n.source.Command) > 0:
		return n.source.Command[0], true
	case n.source.Language == Node:
		program = n.nodeInstaller()
	case n.Lock != "" || findIn(environ, "uv") != "":
		program = "uv"
	default:
		return filepath.Base(n.source.Interpreter), true // with venv and pip
	}
	return program, findIn(environ, program) != ""
}
