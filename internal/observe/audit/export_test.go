package audit

// What tests outside of the package use.
const (
	MaxPending = maxPending
	Stuck      = stuck
	RetryAfter = retryAfter
	MaxArgs    = maxArgs
	MaxLine    = maxLine
)

// OpenOver is Open with a write of the file that goes through another function.
func OpenOver(opts Options, write func(lines []byte, next func([]byte) (int, error)) (int, error)) (*Log, error) {
	l := newLog(opts)
	if err := l.open(); err != nil {
		return nil, err
	}
	l.to = over{l.to, write}
	go l.serve()
	return l, nil
}

type over struct {
	sink
	through func(lines []byte, next func([]byte) (int, error)) (int, error)
}

func (o over) write(lines []byte) (int, error) { return o.through(lines, o.sink.write) }
