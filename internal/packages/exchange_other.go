//go:build !linux

package packages

import "errors"

// exchange would swap two folders by one step.
func exchange(string, string) error { return errors.ErrUnsupported }
