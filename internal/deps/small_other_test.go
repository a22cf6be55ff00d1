//go:build !linux

package deps

import "errors"

// mountSmall makes a folder a small file system.
func mountSmall(string) error { return errors.ErrUnsupported }
