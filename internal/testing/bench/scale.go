package main

import "time"

// scale says how much is measured.
type scale struct {
	quick           bool
	cell            time.Duration // spent on one program at one concurrency, all subjects together
	inFlight        []int
	sessions        int   // that call at a time while memory is looked at
	tools           []int // sizes of catalogs; the first is the baseline
	rules           int   // each of them is for one of toolsOfRule tools
	catalog         time.Duration
	payloads        []payload
	capsuleInFlight []int
	capsuleCell     time.Duration // spent on one payload at one concurrency
	pairs           int           // of servers of which one is compared with the other
	peerCell        time.Duration // spent on one payload at one concurrency
	peerWarmUp      int           // calls of a peer before it is measured
	kindInFlight    []int
	kindCell        time.Duration // spent on one type of tool at one concurrency
	isolationCell   time.Duration // spent on one table of places
	waiting         int           // calls that wait for a callback at once
	waits           time.Duration // until they are looked at
	starts          int           // of a server with one tool
	manyStarts      int           // of one with the most tools
	growth          int           // tools; see measureGrowth
	aging           time.Duration // until files are old enough for Orla to remember them, and its watches are set
	calls           int           // between two looks at the memory
	lives           int           // saves and crashes of each interpreter's capsule
	health          time.Duration // that a capsule has between two crashes
	capsules        int
	loading         time.Duration // that each of them takes before it is ready
	crowds          int           // starts of all of them
	settle          time.Duration
	idle            time.Duration
	idleCapsules    time.Duration
	active          int           // clients that never pause
	activeTime      time.Duration // for which they call
	flooders        int           // connections of one client that floods
	floodTurn       time.Duration // with it or without
	tenantSessions  int           // of the tenant that takes all it can
	floodTurns      int
	idlers          int           // clients that do nothing
	quiet           time.Duration // until what they hold is looked at
	giveBack        time.Duration // that an Orla has to give memory back
}

var full = scale{
	cell:            6 * time.Second,
	inFlight:        []int{1, 16, 64},
	sessions:        16,
	tools:           []int{1, 1000, 10_000},
	catalog:         5 * time.Second,
	payloads:        []payload{{64, false}, {16 << 10, false}, {1 << 20, false}, {16 << 10, true}, {1 << 20, true}},
	capsuleInFlight: []int{1, 16, 64},
	capsuleCell:     1500 * time.Millisecond,
	pairs:           5,
	rules:           1000,
	peerCell:        3 * time.Second,
	peerWarmUp:      2000,
	kindInFlight:    []int{1, 64},
	kindCell:        5 * time.Second,
	isolationCell:   12 * time.Second,
	waiting:         1000,
	waits:           10 * time.Second,
	starts:          30,
	manyStarts:      5,
	growth:          10_000,
	aging:           3 * time.Second,
	calls:           10_000,
	settle:          12 * time.Second, // Orla gives back what it took within ten
	idle:            10 * time.Second,
	idleCapsules:    20 * time.Second,
	lives:           8,
	health:          1100 * time.Millisecond,
	capsules:        100,
	loading:         200 * time.Millisecond,
	crowds:          5,
	active:          1000,
	activeTime:      4 * time.Second,
	flooders:        256,
	tenantSessions:  1000,
	floodTurn:       time.Second,
	floodTurns:      3,
	idlers:          10_000,
	quiet:           35 * time.Second,
	giveBack:        giveBack,
}

// brief is enough to find a call that has become slower, in five minutes.
var brief = func() scale {
	s := full
	s.cell = 4 * time.Second
	s.inFlight, s.capsuleInFlight = []int{1, 16}, []int{1, 16}
	s.payloads = full.payloads[:2]
	s.pairs = 3
	return s
}()

// smoke is enough to see that everything runs.
var smoke = scale{
	quick:           true,
	cell:            50 * time.Millisecond,
	inFlight:        []int{1, 4},
	sessions:        4,
	tools:           []int{1, 30},
	catalog:         50 * time.Millisecond,
	payloads:        []payload{{64, false}, {64 << 10, true}},
	capsuleInFlight: []int{1, 4},
	capsuleCell:     20 * time.Millisecond,
	pairs:           2,
	rules:           30,
	peerCell:        20 * time.Millisecond,
	peerWarmUp:      4,
	kindInFlight:    []int{1, 4},
	kindCell:        20 * time.Millisecond,
	isolationCell:   50 * time.Millisecond,
	waiting:         8,
	waits:           100 * time.Millisecond,
	starts:          1,
	manyStarts:      1,
	growth:          40,
	aging:           50 * time.Millisecond,
	calls:           40,
	settle:          10 * time.Millisecond,
	idle:            50 * time.Millisecond,
	idleCapsules:    50 * time.Millisecond,
	lives:           1,
	health:          1100 * time.Millisecond,
	capsules:        5,
	loading:         20 * time.Millisecond,
	crowds:          1,
	active:          20,
	activeTime:      50 * time.Millisecond,
	flooders:        8,
	tenantSessions:  20,
	floodTurn:       30 * time.Millisecond,
	floodTurns:      1,
	idlers:          50,
}
