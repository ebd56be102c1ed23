#!/usr/bin/env bash
# Natural ungrokking of Pythia (arXiv 2606.26050): a rule that is learned, and lost again.
#
#   studies/natural-ungrokking.sh --dry-run    print the plan, its size and its time; store nothing
#   studies/natural-ungrokking.sh              run it; run it again to resume
#
# Other options go to `logitbank extract`, such as --workers auto. What else you can change, with the
# defaults:
#
#   SUITE="pythia-70m pythia-160m pythia-410m pythia-1b pythia-1.4b"    models, or folders
#   STEPS=all                          checkpoints, such as 0,512,1000:143000:1000
#   OUT=natural-ungrokking             folder for the bank, tables, charts and page
#
# The prompts are those of `natural_ungrokking.py`: 20 names in two sentences, such as "Sue cried
# because", with the options " she" and " he".
#
# Cost of the defaults: a download of 1.0 TB in float16, and about 2 GPU-hours on one H100 in float32,
# most of it for loading; the bank takes 30 MB. These are estimates. No GPU has measured them.
set -euo pipefail

suites=()
for suite in ${SUITE:-pythia-70m pythia-160m pythia-410m pythia-1b pythia-1.4b}; do
    suites+=(--suite "$suite")
done
steps=${STEPS:-all}
out=${OUT:-natural-ungrokking}
bank=$out/bank.zarr
study=$(dirname "$0")/natural_ungrokking.py
prompts=$(mktemp -d)/names.jsonl

# 1. Every checkpoint answers all prompts, once. Existing results are skipped.
python "$study" prompts "$prompts"
logitbank extract "$bank" "${suites[@]}" --steps "$steps" --prompts "$prompts" \
    --keep options --disk-budget 100GB "$@"
if [[ " $* " == *" --dry-run "* ]]; then exit; fi

# 2. Rise, peak, fall and crossing of each model, and its curves.
python "$study" analyze "$bank" "$out/rule"

# 3. Probabilities and accuracy of all prompts on one page.
logitbank report "$bank" --out "$out/page.html"
