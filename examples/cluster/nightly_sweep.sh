#!/bin/sh
# A sweep of all models on a Ray cluster: one that was stopped goes on, and each says what changed since the last.
# MODELS and SWEEPS are folders of the machine that asks; RAY_ADDRESS names the cluster, as it does in a job of Ray's.
set -eu
cd "${SWEEPS:-/sweeps}"
today=${TODAY:-$(date +%F)}
last=$(ls -1 ????-??-??.csv 2>/dev/null | grep -v "^$today" | tail -n 1 || true)
exec hexforge sweep "${MODELS:-/models}" --soc "${CHIPS:-all}" --precision float,w8a8,w8a16 --cluster \
  --state "$today.state" ${last:+--since "$last"} --csv "$today.csv" --report sweep.html
