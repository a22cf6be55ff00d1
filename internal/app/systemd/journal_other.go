//go:build !linux

package systemd

import "errors"

// Journal is journald's, which runs on Linux alone.
type Journal struct{}

// NewJournal returns a Journal that cannot be written to.
func NewJournal(string) *Journal { return &Journal{} }

// Ready reports false.
func (*Journal) Ready() bool { return false }

// Write returns an error.
func (*Journal) Write([]byte) (int, error) { return 0, errors.ErrUnsupported }
