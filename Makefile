# Everything a person or a CI does with this tree. `make` alone lists it.
#
# Always --workspace: selecting single packages makes cargo unify features anew and rebuild the world.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Passed to cargo; CI says --locked.
CARGO_FLAGS ?=
# How many seeds `make sim` runs.
SEEDS ?= 1000
# What `make bench` measures: git, deploy, remedy, policy, audit, or api with its arguments.
BENCH ?= git

# `cargo run` takes no --workspace, so that simulators and benchmarks are built first and then started.
PAWL_DEV = cargo build --release --workspace --bin pawl-dev $(CARGO_FLAGS) && $${CARGO_TARGET_DIR:-target}/release/pawl-dev

NEXTEST := $(shell cargo nextest --version >/dev/null 2>&1 && echo yes)

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test
test: tools postgres kubectl ## all tests (PAWL_BLESS=1 make test also writes generated files anew)
	cargo build --workspace --examples $(CARGO_FLAGS) # containers of the runner's tests
ifeq ($(NEXTEST),yes)
	cargo nextest run --workspace --all-targets --no-fail-fast $(CARGO_FLAGS)
else
	cargo test --workspace --all-targets --no-fail-fast $(CARGO_FLAGS)
endif

.PHONY: lint
lint: tools ## formatting, clippy with warnings denied, the house rules, and cargo-deny where it is installed
	cargo fmt --all --check
	cargo clippy --workspace --all-targets $(CARGO_FLAGS) -- -D warnings
	$(MAKE) --no-print-directory tidy
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check; \
	else echo "cargo-deny is not installed: licences, advisories and bans (deny.toml) were not checked"; fi

.PHONY: tidy
tidy: ## the house rules alone (dev/tidy)
	cargo test --workspace --lib --quiet $(CARGO_FLAGS) -- house::

.PHONY: fmt
fmt: ## format everything
	cargo fmt --all

.PHONY: demo
demo: ## start a control plane on this machine with a sample to watch
	cargo run --release -- up --demo

.PHONY: sim
sim: ## run SEEDS (1000) simulated histories with faults, and one with a crash after each request
	$(PAWL_DEV) sim --seeds $(SEEDS)
	$(PAWL_DEV) sim --crashes

.PHONY: bench
bench: ## measure BENCH (git) and compare with the budgets: docs/benchmarks.md
	$(PAWL_DEV) bench $(BENCH)

# The hash of every request of every scenario, in both simulators: the same as long as nothing behaves differently. The
# tests compare the first seeds of each; this compares all of them. BLESS=1 writes them anew, and the commit says why.
.PHONY: traces
traces: ## compare the requests of all simulated worlds with what was recorded (BLESS=1 records them anew)
	$(PAWL_DEV) sim --trace > target/traces.txt
	$(if $(BLESS),cp target/traces.txt,diff target/traces.txt) dev/sim/tests/data/traces.txt

.PHONY: fuzz
fuzz: ## send the API server a million mangled requests per target
	PAWL_FUZZ_ROUNDS=1000000 cargo test --workspace --release --test it $(CARGO_FLAGS) -- fuzz::

.PHONY: build
build: ## the executable, for release: target/release/pawl
	cargo build --release $(CARGO_FLAGS)

.PHONY: image
image: ## the container image, with docker
	docker build --file deploy/Dockerfile --tag pawl .

# What building and testing need besides cargo: a C compiler and linker (ring, jemalloc), and git (the house rules read the
# tracked files). Installed where a package manager and the right to use it are at hand; said plainly where not.
.PHONY: tools
tools:
	@missing=""; \
	command -v cc >/dev/null || missing="$$missing cc"; \
	command -v git >/dev/null || missing="$$missing git"; \
	if [ -n "$$missing" ]; then \
	  echo "missing:$$missing"; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq gcc libc6-dev git; \
	  elif [ "$$(id -u)" = 0 ] && command -v dnf >/dev/null; then dnf install -y -q gcc git; \
	  elif [ "$$(id -u)" = 0 ] && command -v apk >/dev/null; then apk add --quiet gcc musl-dev git; \
	  else echo "please install:$$missing (a C compiler and git)" >&2; exit 1; fi; \
	fi
	@command -v cargo >/dev/null || { echo "please install Rust with rustup; rust-toolchain.toml pins the version" >&2; exit 1; }

# The ledger's tests start a PostgreSQL of their own (crates/ledger/tests), for which only the programs are needed: the
# package is told not to make a database, and nothing is started. Without it those tests fail and say so.
.PHONY: postgres
postgres:
	@for place in /usr/lib/postgresql/*/bin /usr/*/bin /opt/homebrew/opt/*/bin $${PATH//:/ }; do \
	  if [ -x "$$place/initdb" ] && [ -x "$$place/postgres" ]; then exit 0; fi; \
	done; \
	echo "missing: PostgreSQL (for the ledger's tests)"; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  mkdir -p /etc/postgresql-common; \
	  [ -e /etc/postgresql-common/createcluster.conf ] || \
	    echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql; \
	elif [ "$$(id -u)" = 0 ] && command -v dnf >/dev/null; then dnf install -y -q postgresql-server postgresql; \
	elif [ "$$(id -u)" = 0 ] && command -v apk >/dev/null; then apk add --quiet postgresql postgresql-client; \
	else echo "please install it, or say PAWL_WITHOUT_POSTGRES=1 to leave those tests out" >&2; fi

# Tests of the executable hold what a real kubectl prints against what it printed with a real cluster. They need one that
# is no older than those recordings' kind (1.30: it explains by OpenAPI v3); without it they are left out, and that is said
# here, since a test runner does not show what a passing test says.
.PHONY: kubectl
kubectl:
	@if command -v kubectl >/dev/null; then exit 0; fi; \
	echo "missing: kubectl"; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq; \
	  if apt-cache policy kubernetes-client | grep -Eq 'Candidate: ([0-9]+:)?1\.[3-9][0-9]'; then \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends kubernetes-client; \
	  fi; \
	elif [ "$$(id -u)" = 0 ] && command -v apk >/dev/null; then apk add --quiet kubectl; fi; \
	command -v kubectl >/dev/null || \
	  echo "SKIPPED: there is no kubectl here and none could be installed; the tests that need it (kubectl, kubectl_replay) will test nothing" >&2
