// Package top is `orla top`: the table of orla status, live, on a terminal (SPEC O5).
package top

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/running"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
)

// New returns the command. readable returns a line of the log for people, and for a terminal.
func New(flags *config.Flags, readable func(line []byte) string, std terminal.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "top",
		Short: "Watch the tools of a running Orla on a terminal, and operate them",
		Long: "Show the table of orla status, live, until q. Keys select a tool, show its log, and\n" +
			"start, stop or restart it; the last line names them.",
		Example: "  orla top",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, isIn := std.In.(*os.File)
			out, isOut := std.Out.(*os.File)
			if !isIn || !isOut || !terminal.IsTerminal(in) || !terminal.IsTerminal(out) {
				return errNoTerminal
			}
			client, err := running.Any(flags, cmd)
			if err != nil {
				return err
			}
			p := &program{
				readable: readable, client: client, change: func() (*control.Client, error) { return running.Here(flags, cmd) }, in: in, out: out,
				news: make(chan func(), 64),
			}
			p.screen.colours = terminal.Colourful(out)
			return p.run(cmd.Context())
		},
	}
}

var errNoTerminal = &exit.Error{
	Code: exit.Usage, Err: errors.New("orla top needs a terminal for its input and its output"),
	Hint: "orla status --watch writes the same to a pipe or a file",
}

// program is a running orla top. Only run uses the screen.
type program struct {
	readable func(line []byte) string
	client   *control.Client
	change   func() (*control.Client, error)
	in       *os.File
	out      *os.File
	screen   screen
	news     chan func() // changes of the screen, from other goroutines
	stop     func()      // ends the reading of a log; nil for none
}

const (
	// every is how often the status is read when nothing happens.
	every = time.Second
	// soon is how long an event waits for others before the status is read.
	soon = 100 * time.Millisecond
	// patience bounds a request for the status.
	patience = 10 * time.Second
)

// run shows the screen until the user ends it.
func (p *program) run(ctx context.Context) (err error) {
	restore, ok := terminal.Raw(p.in)
	if !ok {
		return errNoTerminal
	}
	// The other screen, without a cursor and without a second line for what is too long for one.
	const enter, leave = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
	defer func() {
		_, left := p.out.WriteString(leave)
		err = errors.Join(err, left, restore())
	}()
	if _, err := p.out.WriteString(enter); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keys := make(chan []string)
	go p.readKeys(ctx, keys) // a read of a terminal cannot be ended; it ends with the program
	events := make(chan struct{}, 1)
	go p.followEvents(ctx, events)
	return p.loop(ctx, keys, events)
}

// loop is the life of the screen.
func (p *program) loop(ctx context.Context, keys <-chan []string, events <-chan struct{}) error {
	again := time.NewTimer(0)
	defer again.Stop()
	asking := false // the status is being read
	for {
		select {
		case pressed, ok := <-keys:
			if !ok {
				return nil
			}
			for _, k := range pressed {
				if p.obey(ctx, p.screen.key(k)) {
					return nil
				}
			}
		case <-events:
			again.Reset(soon)
		case <-again.C:
			again.Reset(every)
			if !asking {
				asking = true
				go p.readStatus(ctx, func() { asking = false })
			}
		case change := <-p.news:
			change()
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := p.draw(); err != nil {
			return err
		}
	}
}

// draw shows the screen.
func (p *program) draw() error {
	width, height, ok := terminal.Size(p.out)
	if !ok {
		width, height = terminal.TableWidth, 24
	}
	p.screen.width, p.screen.height = width, height
	_, err := p.out.WriteString(p.screen.text())
	return err
}

// obey does what a key asked for. It reports whether that was to quit.
func (p *program) obey(ctx context.Context, c command) (quit bool) {
	switch c.do {
	case "":
	case "quit":
		return true
	case "logs":
		p.endLogs()
		reading, stop := context.WithCancel(ctx)
		p.stop = stop
		go p.readLogs(reading, c.tool)
	case "table":
		p.endLogs()
		p.screen.said = ""
	default:
		p.screen.said = c.do + " " + terminal.Printable(c.tool) + " …"
		go p.operate(ctx, control.Action(c.do), c.tool)
	}
	return false
}

func (p *program) endLogs() {
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
}

// tell has the screen changed by the goroutine that owns it.
func (p *program) tell(ctx context.Context, change func()) {
	select {
	case p.news <- change:
	case <-ctx.Done():
	}
}

func (p *program) readKeys(ctx context.Context, keys chan<- []string) {
	defer close(keys)
	buf := make([]byte, 256)
	for {
		n, err := p.in.Read(buf)
		if err != nil {
			return
		}
		select {
		case keys <- keysIn(buf[:n]):
		case <-ctx.Done():
			return
		}
	}
}

// followEvents passes on that something happened, until ctx ends.
func (p *program) followEvents(ctx context.Context, events chan<- struct{}) {
	for ctx.Err() == nil {
		for _, err := range p.client.Logs(ctx, control.Query{Follow: true, Last: -1, Events: control.Events()}) {
			if err != nil {
				break
			}
			select {
			case events <- struct{}{}:
			default: // there is one already
			}
		}
		select {
		case <-time.After(every): // Orla may be starting again
		case <-ctx.Done():
		}
	}
}

func (p *program) readStatus(ctx context.Context, done func()) {
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	status, err := p.client.Status(asking)
	p.tell(ctx, func() {
		done()
		switch {
		case err != nil:
			p.screen.status, p.screen.tools = nil, nil
			p.screen.said = oneLine(running.Explain(err).Error())
		default:
			if p.screen.status == nil {
				p.screen.said = ""
			}
			p.screen.show(status)
		}
	})
}

// readLogs shows the lines of a tool until ctx ends.
func (p *program) readLogs(ctx context.Context, tool string) {
	var wrong error
	for line, err := range p.client.Logs(ctx, control.Query{Tools: []string{tool}, Last: maxLines, Follow: true}) {
		if err != nil {
			wrong = err
			break
		}
		text := p.readable(line)
		p.tell(ctx, func() { p.screen.line(tool, text) })
	}
	if ctx.Err() == nil {
		p.tell(ctx, func() {
			p.screen.said = "its log has ended; q goes back"
			if wrong != nil {
				p.screen.said = oneLine(running.Explain(wrong).Error())
			}
		})
	}
}

func (p *program) operate(ctx context.Context, action control.Action, tool string) {
	client, err := p.change()
	var now *control.ToolStatus
	if err == nil {
		now, err = client.Operate(ctx, tool, action)
	}
	p.tell(ctx, func() {
		if err != nil {
			p.screen.said = oneLine(running.Explain(err).Error())
		} else {
			p.screen.said = oneLine(tool + ": " + now.State)
		}
	})
}

func oneLine(text string) string { return terminal.Printable(terminal.OneLine(text)) }
