package approvals

// MaxEnded is for tests outside of the package.
const MaxEnded = maxEnded

// Open returns how many records have a place.
func (s *Store) Open() int64 { return s.shares.Taken() }
