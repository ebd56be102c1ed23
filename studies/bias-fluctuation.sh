#!/usr/bin/env bash
# Fluctuating gender bias in BERT and RoBERTa (arXiv 2211.14639): tables, charts and a page.
#
#   studies/bias-fluctuation.sh --dry-run    print the plan, its size and its time; store nothing
#   studies/bias-fluctuation.sh              run it; run it again to resume
#
# Other options go to `logitbank extract`, such as --workers auto. What else you can change, with the
# defaults:
#
#   SUITE=multiberts              models: names of `logitbank suites`, or folders
#   STEPS=all                     checkpoints, such as log or 0:2000000:100000
#   OUT=bias-fluctuation          folder for the bank, tables, charts and page
#   PLATEAUS="1000000 1600000"    first steps of the stable phase: of the paper and of its appendix
#   FREQUENCIES=                  table of corpus frequencies of the professions, for the third question
#
# `multiberts` is google/multiberts-seed_0-step_0k to -seed_4-step_2000k on the Hub. RoBERTa's 62
# checkpoints are no known suite. Put them into a folder as roberta-base/step0, roberta-base/step10, ...
# and run SUITE="multiberts ./roberta-base" PLATEAUS="multiberts=1000000,1600000 roberta-base=500000,760000".
# The first run downloads the professions.
#
# Cost of the defaults, 5 runs of 29 checkpoints:
#
#   download    64 GB, 145 files of 440 MB
#   time        0.2 GPU-hours on one H100, or an hour on 2 CPU cores, without the download
#   disk        20 GB of weights at a time, 0.05 GB of the bank
#
# These are estimates, from the number of parameters and dry runs. No GPU has measured them.
set -euo pipefail

suites=()
for suite in ${SUITE:-multiberts}; do suites+=(--suite "$suite"); done
steps=${STEPS:-all}
plateaus=()
for step in ${PLATEAUS:-1000000 1600000}; do plateaus+=(--plateaus "$step"); done
out=${OUT:-bias-fluctuation}
bank=$out/bank.zarr

# 1. Every checkpoint answers all prompts, once. Existing results are skipped.
logitbank extract "$bank" "${suites[@]}" --steps "$steps" --prompts professions --keep options \
    --disk-budget 20GB "$@"
if [[ " $* " == *" --dry-run "* ]]; then exit; fi

# 2. Ratios of pronouns over each stable phase.
logitbank analyze fluctuation "$bank" "${plateaus[@]}" \
    ${FREQUENCIES:+--frequencies "$FREQUENCIES"} --out "$out/fluctuation"

# 3. All of it on one page.
logitbank report "$bank" --out "$out/page.html"
