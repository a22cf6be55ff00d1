package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/observe/audit"
)

// NoAudit is the value of audit_log for no audit log.
const NoAudit = "none"

// The values of audit_arguments.
const (
	AuditHash = "hash"
	AuditFull = "full"
)

func (c *Config) auditsToFile() bool {
	return c.AuditLog != "" && c.AuditLog != NoAudit && c.AuditLog != audit.Journal
}

// AuditPath returns the absolute path of the audit log, or audit.Journal; "" for none.
func (c *Loaded) AuditPath() string {
	switch {
	case c.auditsToFile():
		return Absolute(c.AuditLog)
	case c.AuditLog == audit.Journal:
		return audit.Journal
	}
	return ""
}

// audit checks the keys of the audit log.
func (v *verdict) audit() {
	if v.AuditArguments != AuditHash && v.AuditArguments != AuditFull {
		v.wrong("audit_arguments", "must be hash or full, got %q", v.AuditArguments)
	}
	if v.StateDir == "" && v.AuditPath() != "" {
		v.wrong("audit_log", "needs a state_dir, for the key that signs it")
	}
	if v.auditsToFile() && !hasTilde(v.AuditLog) {
		if err := appendable(v.AuditPath()); err != nil {
			v.wrong("audit_log", "%v", err)
		}
	}
}

// appendable returns why no user can append to a file at a path: something else is there, or in place of its folder. A folder that is
// missing is made at the start.
func appendable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s is %s, not a file", path, regularfile.KindOf(info.Mode()))
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist), err == nil:
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s cannot be made: something on the way to it is not a folder", path)
	}
	return err
}
