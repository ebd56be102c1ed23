#!/usr/bin/env bash
# StereoSet of SwissBERT in English and German, before and after a Refine-LM filter that is trained on
# UnQover: tables, charts and a page.
#
#   studies/stereoset-debias.sh --dry-run    print the plan, its size and its time; store nothing
#   studies/stereoset-debias.sh              run it; run it again to resume
#
# Other options go to `logitbank extract`, such as --workers auto. What else you can change, with the
# defaults:
#
#   SUITE=ZurichNLP/swissbert-xlm-vocab                  model with language modules
#   STEPS=release                                        its checkpoint
#   ENGLISH=facebook/xmod-base                           model with the same vocabulary and en_XX
#   BASELINE=google-bert/bert-base-multilingual-cased    model with a next-sentence head
#   OUT=stereoset-debias                                 folder for the bank, tables, charts and page
#   LOGITBANK_DATA=data                                  folder with stereoset/dev-english.json and
#                                                        stereoset/dev-german.json
#
# dev-english.json is https://raw.githubusercontent.com/moinnadeem/StereoSet/master/data/dev.json.
# dev-german.json is a file of the same format, made of the tables in
# https://github.com/slds-lmu/stereotypes-multi (create_dataset/data). Both have the English ids.
# The first run downloads UnQover's lists.
#
# Cost of the defaults, one checkpoint of each model:
#
#   download    5.3 GB: SwissBERT 1.2, X-MOD with 81 languages 3.4, BERT 0.7
#   time        0.1 GPU-hours on one H100, or two hours on 2 CPU cores, without the download
#   disk        5.3 GB of weights, 0.3 GB of the bank
#
# These are estimates, from the number of parameters and dry runs. No GPU has measured them.
set -euo pipefail

suite=${SUITE:-ZurichNLP/swissbert-xlm-vocab}
steps=${STEPS:-release}
english=${ENGLISH:-facebook/xmod-base}
baseline=${BASELINE:-google-bert/bert-base-multilingual-cased}
out=${OUT:-stereoset-debias}
export LOGITBANK_DATA=${LOGITBANK_DATA:-data}
bank=$out/bank.zarr

# 1. UnQover and StereoSet in English, StereoSet in German, and the baseline in both. Each is run with
#    and without the text that asks for no bias. Existing results are skipped.
logitbank extract "$bank" --suite "$suite" --steps "$steps" --language en_XX \
    --adapter-from "$english" --prompts unqover-gender --prompts stereoset-intra \
    --prompts stereoset-intra-prefix --keep topk:64 "$@"
logitbank extract "$bank" --suite "$suite" --steps "$steps" --language de_CH \
    --prompts stereoset-intra-de --prompts stereoset-intra-de-prefix --keep topk:64 "$@"
logitbank extract "$bank" --suite "$baseline" --steps release --prompts stereoset-intra \
    --prompts stereoset-inter --prompts stereoset-intra-de --prompts stereoset-inter-de \
    --keep topk:64 "$@"
if [[ " $* " == *" --dry-run "* ]]; then exit; fi

# 2. lms, ss and iCAT, and the preferences in underspecified questions.
logitbank analyze stereoset "$bank" --out "$out/stereoset"
logitbank analyze unqover "$bank" --out "$out/unqover"

# 3. The published filter, which gives tokens below the k highest probability 0, and the same training
#    with a filter that keeps their probability.
for mode in truncate keep_tail; do
    logitbank debias train "$bank" --model "$(basename "$suite")" --prompts unqover-gender@en_XX \
        --preset bert --mode "$mode" --out "$out/$mode.safetensors"
done

# 4. No filter, both filters, trained and untrained, the text before, the baseline, and an ideal and
#    a random model.
logitbank debias compare "$bank" --filter "$out/truncate.safetensors" \
    --filter "$out/keep_tail.safetensors" --out "$out/comparison"

# 5. All of it on one page.
logitbank report "$bank" --out "$out/page.html"
