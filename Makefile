# Every target creates .venv on first use, or completes the one of `uv sync`. It needs Python 3.11.5 or newer, and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TORCH  := $(shell sed -n 's/^\(torch==[^+;]*\).*/\1/p' constraints.txt)
RUN    := $(BIN)/python -m experiments.run
LM_EVAL := .venv-lm-eval/bin/python

name   ?= llama_critic
over   ?=
sweep  ?=
suite  ?= countdown_laptop
harness ?=
tasks  ?=
repo   ?=
model  ?=
kind   ?=
prompt ?=
scale  ?=
gpus   ?=

TARGETS := help setup exp sweep test test-whole test-all test-real lint types check study list model new dashboard compare report sync eval publish sample plan bench gpu-check docs clean

# The variables that each target takes. Make ignores unknown ones, so another lower-case variable is an error here. Upper-case
# ones are environment variables, which every recipe sees: CUDA_VISIBLE_DEVICES=1. So are https_proxy and similar names.
exp_takes := name over
sweep_takes := name sweep over
study_takes := name over
model_takes := name over
new_takes := kind name over
compare_takes := name over
report_takes := name over
sync_takes := name over
dashboard_takes := name over
eval_takes := name model suite harness tasks over
publish_takes := model repo over
sample_takes := model prompt over
plan_takes := name scale gpus over
bench_takes := over
gpu-check_takes := name over

SMALL   := a b c d e f g h i j k l m n o p q r s t u v w x y z
small    = $(strip $(foreach letter,$(SMALL),$(findstring $(letter),$(1))))
OURS    := NAME OVER SWEEP SUITE HARNESS TASKS MODEL REPO KIND PROMPT SCALE GPUS SEED
GOALS   := $(or $(MAKECMDGOALS),help)
TAKEN   := $(foreach goal,$(GOALS),$($(goal)_takes))
GIVEN   := $(foreach variable,$(filter-out %_proxy,$(.VARIABLES)),$(if $(filter command,$(origin $(variable))),$(if $(call small,$(variable))$(filter $(OURS),$(variable)),$(variable))))
NOWHERE := $(firstword $(filter-out $(TARGETS) $(STAMP) .DEFAULT,$(GOALS)))
STRAY   := $(firstword $(filter-out $(TAKEN),$(GIVEN)))
ifneq ($(NOWHERE),)
$(error there is no target $(NOWHERE), so nothing was done; a name is given as name=$(NOWHERE). The targets are $(TARGETS))
endif
ifneq ($(STRAY),)
$(error make $(GOALS) takes $(or $(addsuffix =…,$(TAKEN)),no variable), not $(STRAY)=$(value $(STRAY)), so nothing was done; \
settings are given in over, as in make exp over='seed=1')
endif

# Quotes a value for the shell.
quoted = '$(subst ','\'',$(1))'
# The name that was given: some targets do without the default.
named = $(if $(filter file,$(origin name)),,$(name))

.DEFAULT_GOAL := help
.PHONY: $(TARGETS)

help:  ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-10s %s\n", $$1, $$2}'
	@echo "  Example: make exp name=llama_critic over='seed=1 objective=grpo'"

$(STAMP): pyproject.toml constraints.txt uv.lock
	@python=$$(test -x $(BIN)/python && echo $(BIN)/python || echo $(or $(PYTHON),python3)); \
	$$python -c 'import sys; sys.version_info >= (3, 11, 5) or sys.exit("Python 3.11.5 or newer is needed, " + sys.argv[1] + " is " + sys.version.split()[0] + "; to use another one remove $(VENV) and set PYTHON=…")' $$python
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV): a few minutes, once"
	@if grep -qs '^uv = ' $(VENV)/pyvenv.cfg; then uv sync --quiet --frozen --extra dev; \
	else $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(TORCH) -e '.[dev]'; fi
	@touch $@

setup: $(STAMP)  ## install everything into .venv

exp: $(STAMP)  ## run one experiment:  name=llama_critic over='seed=1'
	@$(RUN) experiment=$(name) $(over)

sweep: $(STAMP)  ## run what is left of a sweep, show its table:  name=clipo_laptop sweep=tau over='seed=0,1,2'
	@$(RUN) -m experiment=$(name) $(if $(sweep),sweep=$(sweep)) $(over)

study: $(STAMP)  ## run the arms and seeds of a study that are left:  name=countdown_credit over='parallel=1'
	@$(BIN)/python -m experiments.study $(name) $(over)

test: $(STAMP)  ## run the tests
	@$(BIN)/python -m pytest -c pyproject.toml -n 2 --dist loadfile tests

test-whole: $(STAMP)  ## run the tests of whole runs, real ranks and pairs of options, which make test leaves out
	@$(BIN)/python -m pytest -c pyproject.toml -n 2 --dist loadfile -m "whole and not slow and not real" tests

test-all: $(STAMP)  ## run all tests, those of minutes too
	@$(BIN)/python -m pytest -c pyproject.toml -n 2 --dist loadfile -m "not real" tests

test-real: $(STAMP)  ## run the tests on a real model of 135M parameters, which it fetches into outputs/models
	@$(BIN)/python -m pytest -c pyproject.toml -n 0 -rs -o tmp_path_retention_policy=failed -m real tests/real tests/contract

lint: $(STAMP)  ## check style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .

types: $(STAMP)  ## check types
	@$(BIN)/pyright

check: lint types test test-whole  ## run what a change must pass: lint, types and both kinds of tests

list:  ## list experiments with their questions, studies and sweeps
	@$(PYTHON) -m experiments.cli.catalogue

model: $(STAMP)  ## fetch a pretrained model into outputs/models:  name=smollm2-135m-q4, or name=OWNER/NAME of the hub
	@$(BIN)/python -m experiments.model $(named) $(over)

new: $(STAMP)  ## write a task, reward, objective or critic of your own, with its test:  kind=reward name=short_lines
	@$(BIN)/python -m experiments.new $(kind) $(named) $(over)

dashboard: $(STAMP)  ## open MLflow on the local results, for this machine alone:  name='llama_baseline llama_critic', else the newest
	@$(BIN)/python -m experiments.dashboard $(named) $(over)

compare: $(STAMP)  ## show table and curves of finished runs:  name=llama_critic over='…'
	@$(BIN)/python -m experiments.compare $(name) $(over)

report: $(STAMP)  ## write one HTML page of finished runs:  name=llama_critic over='…'
	@$(BIN)/python -m experiments.report $(name) $(over)

sync: $(STAMP)  ## send to MLflow what it missed while it was unreachable:  name=llama_critic, else all
	@$(BIN)/python -m experiments.track $(if $(filter file,$(origin name)),outputs,$(addprefix outputs/runs/,$(name))) $(over)

eval: $(STAMP) $(if $(filter lm_eval,$(harness)),$(LM_EVAL))  ## evaluate a model:  model=<hub name or folder> suite=countdown_laptop, harness=lm_eval tasks=gsm8k
	@$(RUN) experiment=$(name) 'stages=[evaluate]' suite=$(suite) $(if $(filter file,$(origin name)),name=eval) $(if $(model),policy.pretrained=$(model) policy.chat_template=null) \
	    $(if $(harness),harness=$(harness)) $(if $(filter lm_eval,$(harness)),harness.python=$(LM_EVAL)) $(if $(tasks),'harness.tasks=[$(tasks)]') $(over)

# lm-evaluation-harness has an environment of its own, with the versions of ours but that of antlr4, which its math needs.
$(LM_EVAL):
	@$(PYTHON) -m venv .venv-lm-eval
	@grep -v antlr4 constraints.txt > .venv-lm-eval/constraints.txt
	@$@ -m pip install --quiet --disable-pip-version-check -c .venv-lm-eval/constraints.txt $(TORCH) 'lm_eval[hf,math]==0.4.13' || { rm -rf .venv-lm-eval; exit 1; }

publish: $(STAMP)  ## publish what a run has trained on the Hugging Face hub:  model=outputs/runs/NAME/DATE repo=OWNER/NAME
	@$(BIN)/python -m experiments.publish $(if $(model),model=$(model)) $(if $(repo),repo=$(repo)) $(over)

sample: $(STAMP)  ## draw completions of one problem, judged step by step:  model=… prompt='numbers=3,5,8 target=23' over='n=3 critic=…'
	@$(BIN)/python -m experiments.sample $(if $(model),model=$(model)) $(if $(prompt),$(call quoted,prompt=$(value prompt))) $(over)

plan: $(STAMP)  ## show what an experiment costs, without loading anything:  name=grpo_gsm8k scale=paper gpus=8
	@$(BIN)/python -m experiments.plan experiment=$(name) $(if $(scale),scale=$(scale)) $(if $(gpus),gpus=$(gpus)) $(over)

bench: $(STAMP)  ## measure a GRPO step side by side with its peers, as ratios on this machine
	@$(BIN)/python -m benchmarks $(over)

gpu-check: $(STAMP)  ## check what works on this machine's GPU, into docs/gpu.md:  name=smollm2-135m-q4, else the hub's model
	@$(BIN)/python -m benchmarks.gpu_check $(named) $(over)

docs: $(STAMP)  ## build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:  ## remove caches and build leftovers; results and .venv stay
	@rm -rf build dist site mutants *.egg-info .pytest_cache .ruff_cache
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
