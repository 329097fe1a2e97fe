# For people: `make explore` opens the notebook, `make app` serves the explorer as a page, `make test` runs everything that
# CI runs. Each sets up .venv first, from pyproject.toml with the versions of constraints.txt; nothing outside this folder
# changes, except that `make test` installs a browser where there is none.

.DELETE_ON_ERROR:
.PHONY: help explore app docs test test-thorough fuzz claims attack package zoo gpu plans lint setup setup-test clean

# The browser, the linters and compiling the search do not wait for each other.
MAKEFLAGS += --jobs=2

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
NOTEBOOK := notebooks/explore.ipynb
APP := notebooks/app.ipynb
PORT ?= 8866
VISITORS ?= 4
PROGRAMS ?= 10000
GRAPHS ?= 2000
ATTACKS ?= 20000
GPU_RESULTS ?= gpu-results$(if $(SIMULATED),-simulated)
MINUTES ?= 60

# The tests and measurements for a GPU take the PyTorch that is there: GPU_PYTHON=… names another than .venv's.
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,python3)

# The first Python 3.11 or 3.12 that can make virtual environments; PYTHON=… names another.
SUITABLE := import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 13))
PYTHON ?= $(shell for python in python3 python3.12 python3.11; do \
	$$python -c '$(SUITABLE)' >/dev/null 2>&1 && echo $$python && break; done)

# A browser opens only where there is a screen; JupyterLab prints its URL anyway.
SCREEN := $(DISPLAY)$(WAYLAND_DISPLAY)$(filter Darwin,$(shell uname -s))
LAB_OPTIONS := $(if $(SCREEN),,--no-browser) $(if $(filter 0,$(shell id -u)),--allow-root)

# The browser of the tests; CHROMIUM=… names another. Looked for again wherever it is used: .ci/browser may install it.
CHROMIUM ?= $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
export CHROMIUM

# Two files of tests at a time, in the order of their names: most tests keep one core busy. The browser and the widgets,
# which run solvers of their own, come last, beside each other.
PYTEST_OPTIONS ?= --numprocesses=2 --dist=loadfile --no-loadscope-reorder

help:
	@echo 'make explore        set up .venv and open the explorer in JupyterLab'
	@echo 'make app            set up .venv and serve the explorer as a page, for this machine only (PORT=$(PORT) VISITORS=$(VISITORS))'
	@echo 'make docs           build the site in build/site: docs, notebooks, reference (DOCS_OPTIONS=--as-they-are: without outputs)'
	@echo 'make test           set up .venv and a browser, then run linters and tests'
	@echo 'make test-thorough  the same with further examples of what other tests show too'
	@echo 'make fuzz           run $(PROGRAMS) random programs against eager mode (PROGRAMS=…); goes on where it was stopped'
	@echo 'make claims         hold what solvers claim of $(GRAPHS) random graphs against a search over all schedules (GRAPHS=…)'
	@echo 'make attack         try $(ATTACKS) damaged and hostile files, names and caches, and kill processes (ATTACKS=…)'
	@echo 'make package        build wheel and source archive, and use them in clean environments'
	@echo 'make zoo            make the schedules that come with the package, where they are missing or out of date'
	@echo 'make gpu            check and measure everything on the GPU here, into $(GPU_RESULTS) (MINUTES=$(MINUTES)); goes on where it was stopped'
	@echo '                    with SIMULATED=1 on a device that is not there, to see what it does'
	@echo 'make plans          hold estimates against the plans of cuDNN, without a GPU, where it is installed (PLANS_OPTIONS=…)'
	@echo 'make clean          remove .venv'

explore: setup
	$(BIN)/jupyter lab $(LAB_OPTIONS) --LabApp.default_url=/lab/tree/$(NOTEBOOK)

# Each visitor gets a kernel of their own; without --no-browser Voila would open a page by itself.
app: setup
	@echo 'Serving the explorer at http://127.0.0.1:$(PORT)/'
	$(BIN)/python -m widgets.serving $(APP) --port=$(PORT) --Voila.ip=127.0.0.1 --Places.most=$(VISITORS) \
	  $(if $(SCREEN),,--no-browser)

# The notebooks are executed, which takes ten minutes the first time; what has not changed is kept. Opens from disk.
docs: setup .venv/docs.stamp
	$(BIN)/python docs/site/build.py $(DOCS_OPTIONS)

test: setup-test lint
	$(BIN)/python -m pytest $(PYTEST_OPTIONS)

# Half an hour on two cores: before a release, and after changes that reach far.
test-thorough: setup-test lint
	$(BIN)/python -m pytest $(PYTEST_OPTIONS) --thorough

# An hour or two on two cores. What fails is written to test-output/fuzz, as small as it gets.
fuzz: setup-test
	$(BIN)/python -m tests.fuzz --programs $(PROGRAMS)

# Ten minutes or so on one core.
claims: setup-test
	$(BIN)/python -m tests.claims --graphs $(GRAPHS)

# Half an hour or so on two cores; only what is missing or older than its profile.
zoo: setup
	$(BIN)/python -m benchmarks.schedule_zoo

# Sets nothing up: torch and NumPy are enough, and the machine with the GPU has them.
gpu:
	@$(GPU_PYTHON) -m benchmarks.gpu $(GPU_RESULTS) --minutes $(MINUTES) $(if $(SIMULATED),--simulated) $(GPU_OPTIONS)

# Without a GPU, but with cuDNN and its front end (benchmarks/gpu/described.py says which packages); minutes for each profile.
plans:
	@$(GPU_PYTHON) -m benchmarks.gpu.workspaces $(PLANS_OPTIONS)

# Minutes, for pip: builds wheel and source archive, and uses both in clean environments.
package: setup-test
	$(BIN)/python -m tests.package

# Half an hour or so on one core, most of it for the killed processes. What is found is printed.
attack: setup-test
	$(BIN)/python -m tests.attack --attacks $(ATTACKS)

lint: .venv/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

setup: .venv/explore.stamp .venv/compiled.stamp
setup-test: setup .venv/test.stamp .venv/browser.stamp

# Each stamp is the last thing its rule does, so a set-up that failed starts again.
.venv/explore.stamp: pyproject.toml constraints.txt
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	  if [ -z '$(PYTHON)' ]; then \
	    echo 'Found no Python 3.11 or 3.12 with its venv module (Debian: apt-get install python3-venv).' >&2; \
	    echo 'Name one: make explore PYTHON=/path/to/python3.12' >&2; exit 1; \
	  fi; \
	  echo 'Making .venv with $(PYTHON)'; '$(PYTHON)' -m venv --clear .venv; }
	@echo 'Installing the explorer and what it needs into .venv (minutes the first time)'
	$(PIP) install --quiet --constraint constraints.txt --editable '.[explorer]'
	@touch $@

# Not while pip puts the project in once more for the tests.
.venv/compiled.stamp: .venv/explore.stamp $(if $(filter-out setup explore app,$(MAKECMDGOALS)),.venv/test.stamp)
	$(BIN)/schedule-explorer compile
	@touch $@

.venv/test.stamp: .venv/explore.stamp
	@echo 'Installing what the tests need into .venv'
	$(PIP) install --quiet --constraint constraints.txt --editable '.[test]'
	@touch $@

.venv/docs.stamp: .venv/explore.stamp
	@echo 'Installing what the site needs into .venv'
	$(PIP) install --quiet --constraint constraints.txt --editable '.[docs]'
	@touch $@

.venv/browser.stamp: .venv/test.stamp .ci/browser
	.ci/browser
	@touch $@

clean:
	rm -rf .venv
