#!/usr/bin/env bash
# Fairness dynamics of Pythia on WinoBias (arXiv 2506.01709): tables, charts and a page.
#
#   studies/fairness-dynamics.sh --dry-run    print the plan, its size and its time; store nothing
#   studies/fairness-dynamics.sh              run it; run it again to resume
#
# Other options go to `logitbank extract`, such as --workers auto. What else you can change, with the
# defaults:
#
#   SUITE="pythia-160m pythia-6.9b"   models: names of `logitbank suites`, or folders
#   STEPS=all                         checkpoints, such as 3000:143000:10000
#   PAIR=143000,83000                 last step and early stop; both must be in STEPS
#   OUT=fairness-dynamics             folder for the bank, tables, charts and page
#   LOGITBANK_DATA=data               folder with lambada/lambada_test_openai.jsonl
#
# LAMBADA is https://openaipublic.blob.core.windows.net/gpt-2/data/lambada_test.jsonl, saved under the
# name above. WinoBias is downloaded by the first run.
#
# Cost of the defaults, 154 checkpoints of each model:
#
#                              pythia-160m      pythia-6.9b
#   download, in float16       0.05 TB          2.1 TB
#   one H100, in float32       0.3 GPU-hours    8 GPU-hours, or 4 hours of download at 150 MB/s
#   disk                       100 GB of weights at a time, 1 GB of the bank
#
# These are estimates, from the number of parameters and dry runs. No GPU has measured them.
# STEPS=3000:143000:10000, 15 checkpoints, takes a tenth.
set -euo pipefail

suites=()
for suite in ${SUITE:-pythia-160m pythia-6.9b}; do suites+=(--suite "$suite"); done
steps=${STEPS:-all}
pair=${PAIR:-143000,83000}
out=${OUT:-fairness-dynamics}
export LOGITBANK_DATA=${LOGITBANK_DATA:-data}
bank=$out/bank.zarr

# 1. Every checkpoint answers all prompts, once. Existing results are skipped.
logitbank extract "$bank" "${suites[@]}" --steps "$steps" --prompts winobias --prompts lambada \
    --prompts stereotype-accuracy --keep options --disk-budget 100GB "$@"
if [[ " $* " == *" --dry-run "* ]]; then exit; fi

# 2. Average Rank, accuracy, JSD-P and the gender gap: Figs. 1, 2, 4(b), 5 and 6(b).
logitbank analyze fairness "$bank" --out "$out/fairness"

# 3. Stereotype accuracy: Fig. 3.
logitbank analyze stereotype "$bank" --out "$out/stereotype"

# 4. Early stopping: the gap that is won, and the accuracy on LAMBADA that is lost.
logitbank analyze tradeoff "$bank" --pair "$pair" --out "$out/tradeoff"

# 5. All of it on one page.
logitbank report "$bank" --out "$out/page.html"
