#!/usr/bin/env bash
# `hexforge gate` in a CI job: figures, tables, SARIF, JUnit XML, annotations and a page, in the folder $RESULTS.
# It reads BUDGET, RESULTS, PAGE, ARGUMENTS and BASELINE; action.yml and the template for GitLab set them. It ends as the
# gate does: 0, 1 where something is over its budget, 2 where something could not be measured at all.
set -uo pipefail
results=${RESULTS:-hexforge-results}
baseline=${BASELINE:-}
mkdir -p "$results"
given=()
if [ -n "$baseline" ] && [ -f "$baseline" ]; then
  given=(--baseline "$baseline")
fi
# shellcheck disable=SC2086 # the options are several words
hexforge gate "${BUDGET:-budget.yaml}" ${given[@]+"${given[@]}"} --save-baseline "$results/baseline.json" --sarif "$results/gate.sarif" \
  --junit "$results/gate.xml" --markdown "$results/gate.md" --annotations --json ${ARGUMENTS:-} > "$results/gate.json"
code=$?
if [ -n "${PAGE:-}" ]; then
  hexforge estimate "$PAGE" --report "$results/page.html" > "$results/page.txt" || true
fi
if [ -f "$results/gate.md" ]; then
  cat "$results/gate.md"
  if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
    cat "$results/gate.md" >> "$GITHUB_STEP_SUMMARY"
  fi
fi
if [ "$code" -eq 0 ] && [ -n "$baseline" ]; then
  cp "$results/baseline.json" "$baseline"
fi
if [ -n "${GITHUB_OUTPUT:-}" ]; then
  echo "sarif=$results/gate.sarif" >> "$GITHUB_OUTPUT"
  echo "passes=$([ "$code" -eq 0 ] && echo true || echo false)" >> "$GITHUB_OUTPUT"
fi
exit "$code"
