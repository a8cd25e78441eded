# Everything that one does with this tree. `make` alone lists it.
#
# CARGO_TARGET_DIR is honoured. Nothing here needs the network but crates.io and, where a package is
# missing, apt.

SHELL := /bin/bash
export PREFIX DESTDIR HELPERDIR ZSHDIR
CARGO ?= cargo

.DEFAULT_GOAL := help
.PHONY: help bootstrap build install uninstall deb wheel demo test test-guest test-media check-long compare-cost yat bench bench-quick miri fuzz fmt lint clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

bootstrap: ## Install what is missing to build and test (apt; says what it skips)
	@sh tests/bootstrap.sh

build: ## The program, optimised: target/release/pmfs; and its manual and completions
	$(CARGO) build --release --workspace --exclude pmfs-shim --exclude pmbench --exclude pmkv-peers --exclude pmkv-peers-sys --exclude pmkv-python --exclude pmmon --exclude pmmon-cli --exclude pmmon-sys --exclude yat
	$(CARGO) rustc --profile shim -p pmfs-shim --crate-type cdylib
	@target=$${CARGO_TARGET_DIR:-target}/release; crates/pmemkv-capi/link.sh $$target/libpmemkv_c.a $$target/libpmemkv.so.1
	@target=$${CARGO_TARGET_DIR:-target}; ln -f $$target/shim/libpmfs_shim.so $$target/release/
	@target=$${CARGO_TARGET_DIR:-target}/release; rm -rf $$target/man $$target/completions; \
	    $$target/xtask man $$target/man && $$target/xtask completions $$target/completions

install: ## Install what is built, under PREFIX=/usr/local, below DESTDIR; mount(8)'s helpers into /sbin
	@bash packaging/install.sh install

uninstall: ## Take that away again, and nothing else
	@bash packaging/install.sh uninstall

deb: build ## A Debian package: target/debian/pmfs_*.deb
	@bash packaging/deb.sh

wheel: ## A wheel of the Python module, by maturin of PyPI: target/wheels
	@bash packaging/wheel.sh

demo: bootstrap build ## See it work: git and SQLite on a pool, a daemon killed, nothing lost
	@bash tests/demo.sh

test: ## Everything that must hold: 40 minutes on two cores
	@bash tests/run.sh

check-long: bootstrap ## The long campaigns: ten million model operations, 300 kills, all crash states
	@bash tests/check-long.sh

yat: bootstrap ## Every crash state and every kill: the checker's campaigns in full (hours)
	@bash tests/yat.sh

compare-cost: bootstrap build ## Instructions, logged bytes and pools beside another revision: BASE=main BOUND=1.02
	@bash tests/compare-cost.sh

bench: bootstrap build ## Measure: library, directories, recovery, mount, keys; beside tmpfs and other engines
	@sh tests/bootstrap.sh bench
	$(CARGO) build --release -p pmbench -p pmkv-peers
	@bash tests/bench.sh

bench-quick: bootstrap build ## The papers' figures redone, small, as a page (as root)
	$(CARGO) build --release -p pmbench -p pmkv-peers
	@target=$${CARGO_TARGET_DIR:-target}; out=$$target/bench-quick; rm -rf "$$out"; pmbench=$$target/release/pmbench; \
	    "$$pmbench" setup && "$$pmbench" run --quick all --out "$$out" && "$$pmbench" report "$$out"

test-guest: bootstrap build ## The suites on the oldest kernel, Debian's 6.1, in a virtual machine
	@sh tests/bootstrap.sh suites guest
	@bash tests/guest.sh

test-media: bootstrap build ## Pools on emulated NVDIMMs in a virtual machine whose power is cut
	@sh tests/bootstrap.sh media
	@bash tests/media.sh
	@bash tests/heap-media.sh

miri: ## The heap's tests that touch no mapping, under Miri (nightly)
	@bash tests/miri.sh

fuzz: bootstrap ## Damaged pools by libFuzzer, for an hour or PMFS_FUZZ_SECONDS
	@bash tests/fuzz.sh

fmt: ## Format the sources
	$(CARGO) fmt --all

lint: ## What `make test` asks of the sources
	$(CARGO) fmt --all --check
	$(CARGO) clippy --all-targets -- -D warnings
	$(CARGO) clippy -p yat -p pmbench --all-targets -- -D warnings

clean: ## Delete what was built
	$(CARGO) clean
	@# Of the worktree that compare-cost leaves there.
	@git worktree prune 2>/dev/null || true
