package artifact

// Free returns how many bytes are left for modules that are being fetched.
func (s *Store) Free() int64 { return s.room.Free() }
