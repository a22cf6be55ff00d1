# Orla. "make" alone lists the targets; each is a line that could be typed.

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
FUZZTIME ?= 20s
DIST     ?= dist
# Where install puts the program, in the folder bin.
PREFIX   ?= $(HOME)/.local
CHAOS    ?= 10m
SOAK     ?= 1h
ROUNDS   ?= 10
SEED     ?=
# The revision that bench and slower compare with; empty is the last release.
BEFORE   ?=
# The race detector links with the C compiler.
RACE     ?= $(if $(shell command -v $(CC) 2>/dev/null),-race)
# What the program says of itself. The revision's date, not the build's: two builds of one revision are equal.
REVISION := $(shell git describe --always --abbrev=40 --match= --dirty 2>/dev/null)
DATE     := $(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null)
STAMP    := github.com/orla-project/orla/internal/app/version
LDFLAGS  := -s -w -X $(STAMP).version=$(VERSION) -X $(STAMP).revision=$(REVISION) -X $(STAMP).date=$(DATE)
# A program with the race detector sleeps for a second at its end, unless told
# otherwise. Orla's goroutines have all returned by then, and tests start hundreds of programs.
export GORACE ?= atexit_sleep_ms=10
# What looks at the code has it compiled as build does, so that it is compiled once.
# It holds all of the code: to collect less often saves a fifth of its time, and more often again from 4 GiB on.
LINT     := GOGC=400 GOMEMLIMIT=4GiB CGO_ENABLED=0 GOFLAGS=-trimpath $(GO) tool -modfile=tools/lint/go.mod golangci-lint

# Packages that own processes, goroutines or watches.
LIFECYCLE := ./internal/launch ./internal/launch/guard ./internal/launch/trees ./internal/launch/cgroup ./internal/launch/sandbox \
	./internal/file/watch ./internal/mcp/rpc ./internal/mcp/linerpc ./internal/call/turns ./internal/service/remote ./internal/app/listen \
	./simple ./supervisor ./mcpbridge/... ./capsule/...

# Tests wait more than they compute, and those of most packages run one after the other:
# more packages at a time than there are cores. Those that take longest begin first, so
# that the others run beside them. What is compiled with -trimpath serves other checkouts as well.
# Nobody debugs what is linked for one run: it gets no symbols for a debugger.
# lint vets the tests as well, so that go test need not.
JOBS ?= $(shell expr 2 \* $$(getconf _NPROCESSORS_ONLN) + 1)
SLOW := ./internal/testing/program ./internal/launch/kube ./deploy/package ./deploy/helm ./capsule ./mcpbridge ./internal/testing/bench \
	./internal/wasm/wasmfuel ./internal/service/remote ./internal/wasm ./internal/launch ./manifest/discover

# The race detector makes some tests many times as slow that compute much and start no goroutine, so that it has nothing
# to look for. Their files have "//go:build !race", and test runs these tests of these packages without it.
PLAIN := ./internal/call/callid ./internal/call/governance ./internal/call/pins ./internal/call/turns ./internal/deps ./internal/deps/declared ./internal/mcp/schema ./internal/observe/audit ./internal/observe/history \
	./internal/observe/logging ./internal/service/remote ./internal/service/secret ./internal/testing/scale ./manifest/discover ./simple ./supervisor
COMPUTED = -run "^($$(grep -rl --include='*_test.go' '^//go:build !race' $(PLAIN) | xargs sed -n 's/^func \([TFE][A-Za-z0-9_]*\).*/\1/p' | paste -sd '|' -))\$$"

# Packages that start no goroutine, and whose tests start none: test and long run them without the race detector. Some of these tests
# search for tools, which manifest/discover reads in several goroutines; its own tests look for races there.
PURE := . ./capsule/offers ./capsule/restarts ./internal/app/clientconf ./internal/app/config ./internal/app/discovery ./internal/app/version \
	./internal/call/approvals/passkey ./internal/call/callid ./internal/call/fault ./internal/call/rules ./internal/call/trace ./internal/cluster/crd \
	./internal/deps/printed ./internal/file/regularfile ./internal/file/wholefile ./internal/file/yamldoc ./internal/launch/environ \
	./internal/launch/slack/early ./internal/mcp/peer ./internal/mcp/rawjson ./internal/mcp/urimatch ./internal/observe/brief \
	./internal/packages/lockfile ./internal/packages/permission ./internal/service/address ./internal/testing/costtest ./internal/wasm/wasmfuel \
	./manifest ./manifest/keys ./manifest/resource ./manifest/toolfile ./mcpbridge/listing ./mcpbridge/wire

# Compiled as build does, the packages are compiled once for both.
PLAINLY := CGO_ENABLED=0 $(GO) test -trimpath -vet=off -ldflags='-s -w'

# These tests start the program and look at it from outside. They are compiled without the race detector, which makes them
# slower and looks at nothing but the tests; the program that they start has it, as ORLA_TEST_RACE says. "make long" compiles both with it.
WHOLE := ./internal/testing/program
# What test does not run with the race detector.
APART := $(WHOLE) $(if $(RACE),$(PURE))
MODULE := github.com/orla-project/orla

# The other processor and the other system of a release. What compiles for both
# compiles for darwin/amd64. What only tests and measurements use is vetted for darwin, and not compiled for linux/arm64.
TARGETS := linux/arm64 darwin/arm64
# What the compiler can make faster of it is seen on darwin/arm64; without that, the other takes two thirds of the time.
QUICKLY_linux/arm64 := -gcflags='$(MODULE)/...=-N -l'
# What packages are built for.
ARCHS   ?= amd64 arm64

# What a change has to pass, in this order. CI asks for the same list.
CHECKS := tidy build cross vet lint test browser fuzz

.DEFAULT_GOAL := help
.PHONY: help build install cross docs deb rpm image release test short long script browser lint fmt fuzz fuzzers bench slower cover flake chaos soak cluster tidy vet check clean clients checks

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/orla
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/orla ./cmd/orla

install: build ## build orla and copy it to PREFIX/bin (~/.local/bin)
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 bin/orla $(DESTDIR)$(PREFIX)/bin/orla
	@case "$(DESTDIR):$$PATH:" in /*:/*|*":$(PREFIX)/bin:"*) ;; *) printf '%s\n' 'Your shell does not search $(PREFIX)/bin yet. Put this into ~/.profile:' '  export PATH="$(PREFIX)/bin:$$PATH"' ;; esac

cross: ## compile for the other systems that have a release
	$(foreach t,$(TARGETS),CGO_ENABLED=0 GOOS=$(word 1,$(subst /, ,$t)) GOARCH=$(word 2,$(subst /, ,$t)) $(GO) build -trimpath $(QUICKLY_$t) -ldflags='-s -w' -o /dev/null ./cmd/orla &&) :

docs: ## write the man page, the completions and a sample orla.yaml to dist/docs
	$(or $(ORLA),CGO_ENABLED=0 $(GO) run -trimpath -ldflags '$(LDFLAGS)' ./cmd/orla) __docs $(DIST)/docs
	GO=$(GO) scripts/licenses > $(DIST)/docs/THIRD_PARTY_LICENSES

deb: ## build dist/*.deb for amd64 and arm64
	for arch in $(ARCHS); do DIST=$(DIST) GO=$(GO) VERSION=$(VERSION) scripts/package deb $$arch || exit; done

rpm: ## build dist/*.rpm for amd64 and arm64
	for arch in $(ARCHS); do DIST=$(DIST) GO=$(GO) VERSION=$(VERSION) scripts/package rpm $$arch || exit; done

# The program as a package has it.
$(DIST)/package/%/orla: FORCE
	CGO_ENABLED=0 GOOS=linux GOARCH=$* $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $@ ./cmd/orla

FORCE:

image: ## build a container image of Orla alone with podman, or CONTAINER=docker
	GO=$(GO) DIST=$(DIST) VERSION=$(VERSION) scripts/image orla:$(VERSION)

release: ## build archives, packages, SBOMs and checksums into dist/release, and publish nothing
	rm -rf dist/packages
	ORLA_VERSION=$(VERSION) ORLA_LDFLAGS='$(LDFLAGS)' $(GO) tool -modfile=tools/release/go.mod goreleaser release --snapshot --clean
	cp dist/packages/*.deb dist/packages/*.rpm dist/release

# What has the race detector is compiled before two of them want it at once.
test: clients ## run all tests with the race detector, those with foreign clients included
	status=0; said=$$(mktemp); computed=$$(mktemp); \
	$(if $(RACE),$(GO) list -export $(RACE) -trimpath ./... >/dev/null || status=1;) \
	ORLA_TEST_RACE=$(RACE) $(PLAINLY) -shuffle=on -timeout=20m $(TESTFLAGS) $(WHOLE) >$$said 2>&1 & whole=$$!; \
	$(if $(RACE),{ s=0; $(PLAINLY) -p 1 -shuffle=on -timeout=20m $(TESTFLAGS) $(COMPUTED) $(PLAIN) || s=1; \
		$(PLAINLY) -p 1 -shuffle=on -timeout=20m $(TESTFLAGS) $(PURE) || s=1; exit $$s; } >$$computed 2>&1,:) & plain=$$!; \
	$(GO) test $(RACE) -trimpath -vet=off -ldflags='-s -w' -p $$(($(JOBS) - 1)) -shuffle=on -timeout=20m $(TESTFLAGS) \
		$(filter-out $(APART),$(SLOW)) $$($(GO) list ./... | grep -vxF $(APART:.%=-e $(MODULE)%)) || status=1; \
	wait $$whole || status=1; \
	wait $$plain || status=1; \
	cat $$said $$computed; rm -f $$said $$computed; \
	exit $$status

# Tests that need a Kubernetes use it, and are skipped without it.
cluster: ## build a real Kubernetes for the tests, once (6 minutes, 2 GB of memory)
	nice -n 19 testdata/kube/build $${XDG_CACHE_HOME:-$$HOME/.cache}/orla-test/hyperkube-1.34.4

# More of what the usual run has little of: random tests ten times as long, and what hardly ever
# fails alone. For the night.
long: clients ## run all tests with ten times as many random rounds; ROUNDS=100 for more
	status=0; export ORLA_TEST_ROUNDS=$(ROUNDS); \
	$(if $(RACE),$(PLAINLY) -p $(JOBS) -shuffle=on -timeout=1h $(COMPUTED) $(PLAIN) || status=1;) \
	$(if $(RACE),$(PLAINLY) -p $(JOBS) -shuffle=on -timeout=1h $(PURE) || status=1;) \
	$(GO) test $(RACE) -trimpath -vet=off -p $(JOBS) -shuffle=on -timeout=10h \
		$(filter-out $(if $(RACE),$(PURE)),$(SLOW)) $$($(GO) list ./... | grep -vxF -e '' $(if $(RACE),$(PURE:.%=-e $(MODULE)%))) || status=1; \
	exit $$status

short: ## run the quick tests only
	$(PLAINLY) -short -p $(JOBS) $(SLOW) ./...

script: ## run the whole-program scripts only
	$(GO) test ./internal/testing/program -run Script

browser: ## test the console in Chromium; PICTURES=DIR for pictures of it
	CGO_ENABLED=0 $(GO) -C testdata/browser test -trimpath -ldflags='-s -w' -count=1 -timeout=20m .

lint: ## check style and habits
	$(LINT) run ./...

fmt: ## format the code as lint wants it
	$(LINT) fmt ./...

fuzz: ## fuzz every fuzz target for FUZZTIME each
	GO=$(GO) DIST=$(DIST) scripts/fuzz $(FUZZTIME)

fuzzers: ## build what fuzz runs, and fuzz nothing
	GO=$(GO) DIST=$(DIST) scripts/fuzz build

bench: ## measure speed and memory, and compare with BEFORE, the last release
	GO=$(GO) scripts/older $(DIST)/older $(BEFORE)
	$(GO) run ./internal/testing/bench $$(test ! -e $(DIST)/older || echo -before $(DIST)/older)

slower: ## fail if a call takes 10 % more CPU than in BEFORE, the last release: five minutes
	GO=$(GO) scripts/older $(DIST)/older $(BEFORE)
	test ! -e $(DIST)/older || $(GO) run ./internal/testing/bench -only before -brief -before $(DIST)/older -fail-above 1.10

cover: ## write coverage.out and print what is covered
	$(GO) test -coverpkg=./... -coverprofile=coverage.out ./... && $(GO) tool cover -func=coverage.out

flake: ## run the lifecycle packages fifty times over
	$(GO) test -race -shuffle=on -count=50 -timeout=3h $(LIFECYCLE)

soak: ## an hour with a week's worth of events: memory, descriptors, goroutines, disk and latency must stay flat; SOAK=10m for less, CHART=soak.svg for a chart
	$(GO) build -o bin/soak ./internal/testing/soak
	bin/soak -for $(SOAK) $(CHART:%=-chart %)

chaos: ## ten minutes of faults at random while an oracle looks on; CHAOS=1h for longer, SEED=7 for the same again, CLOCK=1 for a clock that jumps
	CGO_ENABLED=0 $(GO) build -o bin/chaos ./internal/testing/chaos
	bin/chaos -for $(CHAOS) $(SEED:%=-seed %) $(CLOCK:%=-clock)

tidy: ## fail if go.mod or go.sum are not tidy
	$(GO) mod tidy -diff

# lint has the same checks for this system.
vet: ## let the compiler's own checks look at what is for macOS
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) vet -trimpath ./...

check: $(CHECKS) ## all that CI runs

clean: ## remove what was built
	rm -rf bin dist coverage.out

clients:
	scripts/clients

checks:
	@echo $(CHECKS)
