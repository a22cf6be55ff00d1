package main

import "time"

// scale says how much is measured.
type scale struct {
	quick           bool
	cell            time.Duration // spent on one program at one concurrency, all subjects together
	inFlight        []int
	tools           []int // sizes of catalogs; the first is the baseline
	catalog         time.Duration
	payloads        []payload
	capsuleInFlight []int
	capsuleCell     time.Duration // spent on one payload at one concurrency
	starts          int           // of a server with one tool
	manyStarts      int           // of one with the most tools
	calls           int           // between two looks at the memory
	settle          time.Duration
	idle            time.Duration
}

var full = scale{
	cell:            6 * time.Second,
	inFlight:        []int{1, 16},
	tools:           []int{1, 1000, 10_000},
	catalog:         5 * time.Second,
	payloads:        []payload{{64, false}, {16 << 10, false}, {1 << 20, false}, {16 << 10, true}, {1 << 20, true}},
	capsuleInFlight: []int{1, 16, 64},
	capsuleCell:     2500 * time.Millisecond,
	starts:          30,
	manyStarts:      5,
	calls:           10_000,
	settle:          time.Second,
	idle:            10 * time.Second,
}

// smoke is enough to see that everything runs.
var smoke = scale{
	quick:           true,
	cell:            50 * time.Millisecond,
	inFlight:        []int{1, 4},
	tools:           []int{1, 30},
	catalog:         50 * time.Millisecond,
	payloads:        []payload{{64, false}, {64 << 10, true}},
	capsuleInFlight: []int{1, 4},
	capsuleCell:     20 * time.Millisecond,
	starts:          1,
	manyStarts:      1,
	calls:           40,
	settle:          10 * time.Millisecond,
	idle:            50 * time.Millisecond,
}
