package config

import "github.com/orla-project/orla/internal/observe/audit"

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
}
