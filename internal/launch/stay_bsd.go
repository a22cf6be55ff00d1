//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package launch

import "context"

// maxStays is none: nothing here tells of an end and of streams in one wait.
const maxStays = 0

func stays() int { return maxStays }

func (l *Local) run(ctx context.Context, spec Spec, stdout, stderr func([]byte)) (Ran, error) {
	p, err := l.Start(ctx, spec)
	if err != nil {
		return Ran{}, err
	}
	return follow(ctx, p, stdout, stderr), nil
}
