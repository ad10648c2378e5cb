# SPDX-License-Identifier: Apache-2.0
"""Writes QNN's error codes with their sentences as C initialisers: error_texts.py error_codes.csv error_texts.inc."""

import csv
import json
import sys
from pathlib import Path

source, target = map(Path, sys.argv[1:])
lines, seen = [], set()
with source.open(newline="", encoding="utf-8") as file:
    for row in csv.DictReader(file):
        if not row["name"].startswith("QNN_") or row["number"] in seen:
            continue  # an alias of a shared code has the text of the shared one
        seen.add(row["number"])
        text = json.dumps(f"{row['happened']} {row['would_work']}", ensure_ascii=True)
        lines.append(f'    {{{int(row["number"], 0)}, "{row["name"]}", {text}}},\n')
target.write_text("".join(lines), encoding="ascii")
