package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control/unixsocket"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/listen"
	"github.com/orla-project/orla/internal/app/upgrade"
	"github.com/orla-project/orla/internal/file/regularfile"
)

// mayListen says at once what would end the start only after all tools are read and started.
func (s *server) mayListen(ctx context.Context, cfg *config.Loaded, before *upgrade.Document) error {
	if before != nil || len(s.given) > 0 {
		return nil
	}
	return s.orInUse(ctx, cfg, listen.InUse(ctx, cfg.Address()))
}

// orInUse returns an error of listening, with the Orla that has the address if one does.
func (s *server) orInUse(ctx context.Context, cfg *config.Loaded, err error) error {
	if errors.Is(err, listen.ErrInUse) {
		return cmp.Or(inUseByOrla(ctx, s.from, cfg), err)
	}
	return err
}

// open listens where systemd does, or else where cfg says.
func (s *server) open(ctx context.Context, cfg *config.Loaded, before *upgrade.Document) error {
	if before != nil {
		if err := s.web.Take(before.HTTP, s.given); err != nil {
			s.log.Warn("not all sockets of the program before can be used", "err", err)
		}
		return s.web.Listen(ctx, cfg.Address()) // if it is another one
	}
	if len(s.given) == 0 {
		return s.orInUse(ctx, cfg, s.web.Listen(ctx, cfg.Address()))
	}
	if err := refuseExposed(cfg, s.given); err != nil {
		return err
	}
	s.web.Accept(cfg.Address(), s.given)
	return nil
}

// inUseByOrla returns an error that names the Orla of this user that has the configured address; nil
// if none has.
func inUseByOrla(ctx context.Context, l *config.Loader, cfg *config.Loaded) error {
	all, _ := unixsocket.All(ctx, cfg.SocketDirs(l)) // an Orla that does not answer is left out
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
