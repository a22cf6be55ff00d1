package main

import "github.com/orla-project/orla/internal/telemetry"

// newTelemetry joins what is told to machines with where it is known.
func (s *server) newTelemetry() *telemetry.Telemetry {
	return telemetry.New(telemetry.Options{
		Tools: func() []string {
			listed := s.supervisor.Catalog().Tools
			names := make([]string, len(listed))
			for i, t := range listed {
				names[i] = t.Name
			}
			return names
		},
		Lives:    s.supervisor.Lives,
		Sessions: s.sessions,
		Queued:   s.slots.Waiting,
		Dropped:  s.log.out.droppedInAll,
		Log:      s.log.Logger,
	})
}

// sessions is the number of open sessions: on stdio there is the one.
func (s *server) sessions() int {
	if s.http == nil {
		return 1
	}
	return s.http.Sessions()
}
