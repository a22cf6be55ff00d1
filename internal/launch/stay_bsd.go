//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package launch

import "context"

// maxStays is 0: here one wait cannot cover the end of a process and its streams.
const maxStays = 0

func stays() int { return maxStays }

func (l *Local) run(ctx context.Context, spec Spec, stdout, stderr func([]byte)) (Ran, error) {
	p, err := l.Start(ctx, spec)
	if err != nil {
		return Ran{}, err
	}
	return follow(ctx, p, stdout, stderr), nil
}
