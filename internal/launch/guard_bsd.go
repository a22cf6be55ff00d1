//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package launch

import "os"

// sharedFile returns memory that can be handed to another process.
func sharedFile() (*os.File, error) {
	f, err := os.CreateTemp("", "orla-groups-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close() // nothing was written to it
		return nil, err
	}
	return f, nil
}

func nameThisProcess(string) {} // there is no call for it here
