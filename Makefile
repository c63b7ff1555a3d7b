# Everything a developer runs. `make` alone lists the targets.
MODULES  := $(shell sed -n 's/^\t\(\..*\)/\1/p' go.work)
BIN      := $(CURDIR)/.cache/bin
STATICCHECK := $(BIN)/staticcheck-0.8.2
GOFLAGS  ?=
SEEDS    ?= 1000

.PHONY: help build servers test check race lint cross sim bench demo fuzz clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

build: ## build the command into bin/tenure
	cd cmd/tenure && go build -trimpath -o $(CURDIR)/bin/tenure .

servers: ## fetch the servers that tests talk to into .cache, as far as this machine lets us
	@scripts/servers.sh

# All modules in one run, one package more at once than there are processors:
# packages that wait for other processes overlap with those that compute. Those
# that take longest begin first.
EVERY    := $(addsuffix /...,$(MODULES))
LONG     := ./chaos ./cmd/tenure ./sim ./internal/proc ./store/etcdstore ./store/natsstore ./store/sqlstore/pgstore ./store/azurestore ./store/gcsstore
ATONCE   ?= $(shell expr $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) + 1)
GOTEST   := go test -count=1 -p $(ATONCE)

test: servers ## run every test of every module (needs only Go, git and make; more servers, more is tested)
	$(GOTEST) $(LONG) $(EVERY)

check: lint cross race ## linters, other platforms, tests under the race detector (needs a C compiler)

# chaos starts the command as it is shipped, so the detector would see nothing.
# Of the simulation two tests are left to `make test`: that a world repeats, which
# the detector's scheduling forbids, and that the oracle finds mutations, which is
# about the oracle; both play the worlds of TestSeeds. `make lint` has vetted.
race: servers
	$(GOTEST) -vet=off -race $(filter-out ./chaos ./sim,$(LONG)) $(filter-out ./chaos/... ./sim/...,$(EVERY))
	$(GOTEST) -vet=off -race -skip '^(TestReplay|TestMutationsAreFound)$$' ./sim/...

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

sim: ## replay SEEDS simulated worlds (default 1000), and 2/5 as many with sessions
	cd sim && go test -count=1 -run 'TestSeeds' . -args -seeds $(SEEDS)

bench: ## benchmarks against floors measured in the same run
	go test -run '^$$' -bench . ./internal/deadline
	cd bench && go test -count=1 -run '^$$' -bench . -timeout 20m ./...

fuzz: ## a minute of each fuzzer
	go test -run '^$$' -fuzz FuzzDecode -fuzztime 60s ./internal/core/lease

demo: build ## three contenders, a kill, a pause, a hand-over, as text and SVG
	bin/tenure demo

clean:
	rm -rf bin .cache tenure-demo.svg
