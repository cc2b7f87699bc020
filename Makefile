# Everything runs in .venv, made by the standard library; each target does its own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
EMPTY := out/wheel/env
TOOLS := out/wheel/tools
PROSE := out/prose
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: setup demo test test-all wheel lock sbom site bench acceptance fidelity rehearse-rollout golden catalog docs prose format clean
setup: $(READY)

# torch comes first and by itself: any other order may pull its CUDA build.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt torch
	$(BIN)/pip install -q -c constraints.txt -e '.[lstm,models,infra,dev]'
	touch $@

demo: setup
	$(BIN)/mark demo --out out/demo

# Whole services wait much of the time: the other tests run in what they leave of two cores, and types are checked in
# what both leave. What the services say is shown when they are over.
test: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	@if command -v npm > /dev/null; then $(MAKE) -s prose; else echo "npm is missing: the docs' language is not checked"; fi
	mkdir -p out
	nice -n 19 $(BIN)/mypy & types=$$!; \
	( $(BIN)/pytest -n 2 --dist loadfile -m "not slow" tests/end_to_end > out/end_to_end.txt 2>&1; \
	services=$$?; cat out/end_to_end.txt; exit $$services ) & services=$$!; \
	nice -n 15 $(BIN)/pytest -n 3 --dist loadfile -m "not slow" --ignore tests/end_to_end; tests=$$?; \
	wait $$services && wait $$types && exit $$tests

test-all: setup
	$(BIN)/pytest tests/end_to_end
	$(BIN)/pytest -n 2 --hypothesis-profile=new --ignore tests/end_to_end

# What goes to the index: the wheel of this folder, and byte for byte the same of the source archive, with the commit's
# time; metadata (twine) and contents are checked. Then the wheel, installed with all that it asks of the index into an
# empty environment, and tried from an empty folder: alone, with the extra local, then along docs/first-report.md, whose
# model needs scikit-learn, then with the extra infra.
wheel: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct)
wheel:
	rm -rf out/wheel build
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/pip install -q build twine check-wheel-contents
	$(TOOLS)/bin/python -m build -o out/wheel/dist . > out/wheel/build.log 2>&1
	$(TOOLS)/bin/twine check --strict out/wheel/dist/*
	$(TOOLS)/bin/check-wheel-contents out/wheel/dist/*.whl
	$(PYTHON) -m venv $(EMPTY)
	$(EMPTY)/bin/pip wheel -q --no-deps -w out/wheel .
	cmp out/wheel/*.whl out/wheel/dist/*.whl
	$(EMPTY)/bin/pip install -q --no-compile out/wheel/*.whl
	$(EMPTY)/bin/python -m scripts.try_wheel base
	$(EMPTY)/bin/pip install -q --no-compile "$$(ls out/wheel/*.whl)[local]"
	$(EMPTY)/bin/python -m scripts.try_wheel alone
	$(EMPTY)/bin/pip install -q --no-compile scikit-learn
	$(EMPTY)/bin/python -m scripts.try_wheel first-report
	$(EMPTY)/bin/pip install -q --no-compile "$$(ls out/wheel/*.whl)[infra]"
	$(EMPTY)/bin/python -m scripts.try_wheel rollout

# What the nodes' image installs, by version and hash.
lock: setup
	$(BIN)/python -m scripts.lock_image

# What is in the nodes' image beside Python and Debian: a bill of materials (CycloneDX), and the licences as a table.
sbom:
	rm -rf out/sbom
	$(PYTHON) -m venv out/sbom/env
	out/sbom/env/bin/pip install -q --no-compile --no-deps --require-hashes -r infra/image/requirements.txt
	out/sbom/env/bin/pip install -q --no-compile --no-deps .
	$(PYTHON) -m venv out/sbom/tools
	out/sbom/tools/bin/pip install -q cyclonedx-bom pip-licenses
	out/sbom/tools/bin/cyclonedx-py environment --output-reproducible -o out/sbom/mark.cdx.json out/sbom/env
	out/sbom/tools/bin/pip-licenses --python out/sbom/env/bin/python --output-file out/sbom/licences.txt

bench: setup
	$(BIN)/python -m scripts.bench.processes
	$(BIN)/python -m scripts.bench.engine
	$(BIN)/python -m scripts.bench.central
	$(BIN)/python -m scripts.bench.variants
	$(BIN)/python -m scripts.bench.packing
	$(BIN)/python -m scripts.bench.replicas
	$(BIN)/python -m scripts.bench.serving

# The figures on real traces, forecasts included, and the papers' figures (docs/studies.md): some hours on two cores;
# MARK_DATA names the folder that holds the traces. It measures a committed tree only, keeps what is done, and writes
# what is whole at one commit to docs/figures/*.csv and docs/figures.md.
acceptance: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m scripts.acceptance.studies
	OMP_NUM_THREADS=1 $(BIN)/python -m scripts.acceptance.run

# An hour of traffic at 20x, live and replayed, five seeds: a quarter of an hour.
fidelity: setup
	$(BIN)/python -m scripts.acceptance.fidelity

# From mark init to the first report, failures, and CDK's command line, on ministack: a quarter of an hour; needs node and npm.
rehearse-rollout: setup
	$(BIN)/python -m scripts.rehearsal.run

golden: setup
	$(BIN)/python -m scripts.golden

# Generated pages, and the output that README shows: its commands run for a minute or two.
docs: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m scripts.docs --printed

# The words and the sentence length of hand-written pages (scripts/prose); needs node and npm, and the network once.
prose: $(PROSE)/.ready
	$(PROSE)/node_modules/.bin/textlint --config scripts/prose/textlintrc.json --ignore-path scripts/prose/ignore \
		--rules-base-directory $(CURDIR)/$(PROSE)/node_modules --format unix README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md "docs/**/*.md"

$(PROSE)/.ready: scripts/prose/package.json
	mkdir -p $(PROSE)
	cp $< $(PROSE)
	npm install --prefix $(PROSE) --silent --no-audit --no-fund --no-package-lock
	touch $@

# The docs as a site, in out/site; a page in no navigation and a link to nothing end it.
site: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -f scripts/site/mkdocs.yml

# Rewrites the shipped prices and profiles from their sources (MARK_DATA names the folder that holds them).
catalog: setup
	$(BIN)/python -m scripts.build_catalog

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) out
