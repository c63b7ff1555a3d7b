# Everything a developer runs. `make` alone lists the targets.
MODULES  := $(shell sed -n 's/^\t\(\..*\)/\1/p' go.work)
BIN      := $(CURDIR)/.cache/bin
STATICCHECK := $(BIN)/staticcheck-0.8.2
GOFLAGS  ?=
SEEDS    ?= 1000
FUZZTIME ?= 20s

.PHONY: help build servers test check race lint cross sim bench demo fuzz clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

build: ## build the command into bin/tenure
	cd cmd/tenure && go build -trimpath -o $(CURDIR)/bin/tenure .

servers: ## fetch the servers that tests talk to into .cache, as far as this machine lets us
	@scripts/servers.sh

# Packages that time real processes against real TTLs run one after the other, and
# alone: they use every processor themselves, and beside others they would measure
# the machine. All the rest, of all modules, runs in one go, the longest first.
EVERY  := $(addsuffix /...,$(MODULES))
ALONE  := ./chaos ./cmd/tenure ./cmd/tenure/internal/agent ./internal/proc ./examples/stream ./examples/shardedkv
LONG   := ./sim ./store/sqlstore/pgstore ./store/etcdstore ./store/natsstore ./store/s3store ./store/azurestore ./store/gcsstore
REST    = $(shell go list $(LONG) $(EVERY) | grep -vxF "$$(go list $(ALONE))")
ATONCE ?= 2
GOTEST := go test -count=1

test: servers ## run every test of every module (needs only Go, git and make; more servers, more is tested)
	$(GOTEST) -p $(ATONCE) $(REST)
	$(GOTEST) -p 1 $(ALONE)

check: lint cross race ## linters, other platforms, tests under the race detector (needs a C compiler)

# chaos starts the command as it is shipped, so the detector would see nothing. The
# storms of examples/stream and the transcripts of the command are left to `make test`,
# too: what they run at the same time is other processes.
# Of the simulation some tests are left to `make test`: that a world repeats, which
# the detector's scheduling forbids; that the oracle finds mutations, which is about
# the oracle; and one process's steps with every trouble in turn, in which hardly
# anything happens at once. The worlds of the seeds are played. `make lint` has vetted.
race: servers
	$(GOTEST) -vet=off -race -p $(ATONCE) $(filter-out %/sim,$(REST))
	$(GOTEST) -vet=off -race -skip '^(TestReplay.*|TestMutationsAreFound|TestEveryTrouble.*|TestTwoTroubles)$$' ./sim/...
	$(GOTEST) -vet=off -race -skip '^(TestScripts|TestRunScripts|TestOnceOnFiveHosts|TestStorm.*|TestEverybodyDies)$$' -p 1 $(filter-out ./chaos,$(ALONE))

lint: $(STATICCHECK)
	@test -z "$$(gofmt -l .)" || { echo "gofmt would change:"; gofmt -l .; exit 1; }
	go vet $(EVERY)
	$(STATICCHECK) $(EVERY)
	go mod verify
	@for m in $(MODULES); do (cd $$m && GOWORK=off go build ./...) || { echo "$$m does not build alone"; exit 1; }; done

$(STATICCHECK):
	GOBIN=$(BIN) go install honnef.co/go/tools/cmd/staticcheck@v0.8.2
	mv $(BIN)/staticcheck $(STATICCHECK)

cross:
	@for os in linux/arm64 darwin/arm64 windows/amd64; do export CGO_ENABLED=0 GOOS=$${os%/*} GOARCH=$${os#*/}; \
		echo "== core, tests too ($$os)"; go vet ./... || exit 1; \
		echo "== the command ($$os)"; (cd cmd/tenure && go build -o /dev/null ./...) || exit 1; done

sim: ## replay SEEDS simulated worlds (default 1000), 2/5 as many with sessions, 3/10 with ledgers, 1/4 with authorities, 1/5 with slots
	cd sim && go test -count=1 -run 'TestSeeds' . -args -seeds $(SEEDS)

bench: ## benchmarks against floors measured in the same run
	go test -run '^$$' -bench . ./internal/deadline
	go test -run '^$$' -bench . ./internal/core/ledger ./internal/core/slots ./internal/core/slots/balance ./slots
	cd bench && go test -count=1 -run '^$$' -bench . -timeout 20m ./...
	cd store/etcdstore && go test -count=1 -run '^$$' -bench 'Append|Audit' .

fuzz: ## FUZZTIME (default 20s) of every fuzzer
	@for p in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
		for f in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' $$p/*_test.go); do \
			echo "== $$p $$f"; (cd $$p && go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) .) || exit 1; done; done

demo: build ## three contenders, a kill, a pause, a hand-over, as text and SVG
	bin/tenure demo

clean:
	rm -rf bin .cache tenure-demo.svg
