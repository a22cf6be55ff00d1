package daemon

import (
	"context"
	"fmt"
	"net/url"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/file/regularfile"
)

// inUseByOrla returns an error that names the Orla of this user that has the configured address; nil
// if none has.
func inUseByOrla(ctx context.Context, l *config.Loader, cfg *config.Loaded) error {
	all, _ := control.All(ctx, cfg.SocketDirs(l)) // an Orla that does not answer is left out
	for _, one := range all {
		at, err := url.Parse(one.URL)
		if err != nil || at.Host != cfg.Address() {
			continue
		}
		if regularfile.Real(one.ToolsDir) == regularfile.Real(cfg.Folder()) {
			return &exit.Error{
				Code: exit.Failed, Err: fmt.Errorf("an Orla serves %s already, at %s (pid %d)", one.ToolsDir, one.URL, one.Pid),
				Hint: "orla status shows its state; orla reload makes it read its files again",
			}
		}
		return &exit.Error{
			Code: exit.Failed, Err: fmt.Errorf("%s is in use by the Orla that serves %s (pid %d)", at.Host, one.ToolsDir, one.Pid),
			Hint: "take another port with --port, or 0 for any that is free",
		}
	}
	return nil
}
