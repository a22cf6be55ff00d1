package approvals

// MaxEnded is for tests outside of the package.
const MaxEnded = maxEnded

// Open returns how many records have a place.
func (s *Store) Open() int64 { return s.shares.Taken() }

// Writing takes the turn to write, and Writers returns how many wait for theirs.
func (s *Store) Writing(caller string) (end func()) { return s.turn(caller) }

func (s *Store) Writers() int { return s.writing.Waiting() }
