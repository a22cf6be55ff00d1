package wiring

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/mcpbridge/sessionlog"
)

// Sessions returns the file that keeps the sessions of HTTP from one process to the next; nil without a state
// folder, for orla dev, and if the file cannot be used, which is logged. The caller closes it.
func Sessions(cfg *config.Loaded, log *slog.Logger) *sessionlog.Log {
	dir := config.StateDir(cfg, "sessions")
	if dir == "" || cfg.Only != "" || cfg.ReplicaListen != "" { // those of replicas are in their ids
		return nil
	}
	path := filepath.Join(config.Absolute(dir), folderKey(cfg)+".log")
	kept, err := sessionlog.Open(path, time.Duration(cfg.SessionTimeout), cfg.MaxSessions, log)
	if err != nil {
		log.Warn("sessions are not kept, and end with this process", "path", path, "err", err)
		return nil
	}
	return kept
}
