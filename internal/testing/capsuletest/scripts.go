package capsuletest

// scripts are what a process can play. What a script's parameters are is said
// where the script is; all that serve have the server's parameters as well.
var scripts = map[string]Script{
	"echo": echo,
	"mcp":  mcpServer,

	// At the start.
	"silent":          silent,
	"hello-late":      echo, // after START_MS
	"hello-twice":     helloTwice,
	"hello-other":     helloOther,
	"hello-malformed": helloMalformed,
	"not-hello":       notHello,
	"exits-starting":  exitsStarting,

	// At the end, or before it.
	"exits-ready":    exitsReady,
	"exits-at-call":  exitsAtCall,
	"deaf":           deaf,
	"dies-stopping":  diesStopping,
	"closes-stdout":  closesStdout,
	"closes-stdin":   closesStdin,
	"forks-daemon":   forksDaemon,
	"forks-deaf":     forksDeaf,
	"holds-stdout":   holdsStdout,
	"sleeper":        sleeper,
	"sleeper-deaf":   deafSleeper,
	"daemon-starter": startDaemon,

	// On its streams.
	"junk":           junk,
	"junk-endless":   junkEndless,
	"decorated":      decorated,
	"batch":          batch,
	"long-line":      longLine,
	"never-reads":    neverReads,
	"floods-stdout":  floodsStdout,
	"floods-stderr":  floodsStderr,
	"answers-twice":  answersTwice,
	"unknown-ids":    unknownIDs,
	"nonsense-calls": nonsenseCalls,

	// When it is asked what it offers, or how it is.
	"stateless":           stateless,
	"no-discover":         noDiscover,
	"initialize-silent":   without("initialize"),
	"initialize-refused":  refusing("initialize"),
	"initialize-nonsense": initializeNonsense,
	"list-silent":         without("tools/list"),
	"list-late":           listLate,
	"list-refused":        refusing("tools/list"),
	"list-nonsense":       listNonsense,
	"list-bad-schemas":    listOf(badSchemas),
	"list-duplicates":     listOf(duplicates),
	"list-many":           listOf(many),
	"list-long-names":     listOf(longNames),
	"list-pages":          listPages,
	"list-endless":        listEndless,
	"no-ping":             without("ping"),
}
