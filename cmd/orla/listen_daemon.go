package main

import (
	"context"
	"fmt"
	"net/url"

	"github.com/orla-project/orla/internal/control"
)

// inUseByOrla says which Orla has the configured address, if one of this user's has; nil if
// none has.
func inUseByOrla(ctx context.Context, l *loader, cfg *loaded) error {
	all, _ := control.All(ctx, cfg.socketDirs(l)) // what cannot be asked is none
	for _, one := range all {
		at, err := url.Parse(one.URL)
		if err != nil || at.Host != cfg.address() {
			continue
		}
		if control.Resolve(one.ToolsDir) == control.Resolve(cfg.folder()) {
			return &failure{
				code: exitFailed, err: fmt.Errorf("an Orla serves %s already, at %s (pid %d)", one.ToolsDir, one.URL, one.Pid),
				hint: "orla status shows what it does, orla reload has it read its files again",
			}
		}
		return &failure{
			code: exitFailed, err: fmt.Errorf("%s is in use by the Orla that serves %s (pid %d)", at.Host, one.ToolsDir, one.Pid),
			hint: "take another port with --port, or 0 for any that is free",
		}
	}
	return nil
}
