package deps

import "path/filepath"

// Installer returns the program that installs what is needed: the first of those that can and that
// environ, an environment of a process, has in its PATH. If there is none, it is the one to install.
func (n Need) Installer(environ []string) (program string, there bool) {
	switch {
	case len(n.source.Command) > 0:
		return n.source.Command[0], true
	case n.source.Language == Node:
		program = "npm"
		for _, lock := range locks {
			if filepath.Base(n.Lock) == lock.file {
				program = lock.program
			}
		}
	case n.Lock != "" || findIn(environ, "uv") != "":
		program = "uv"
	default:
		return filepath.Base(n.source.Interpreter), true // with venv and pip
	}
	return program, findIn(environ, program) != ""
}
