# SPDX-License-Identifier: Apache-2.0
"""Writes the functions of QNN's tables as lines of a macro: call_table.py functions.csv TABLE call_table.inc.

A line is QNN_CALL(how, member, type, name, function): how hexforge has it, what the table calls it, the type of a
pointer to it, its name as a text, and the function that does it.
"""

import csv
import re
import sys
from pathlib import Path

source, table, target = sys.argv[1:]
lines = []
with Path(source).open(newline="", encoding="utf-8") as file:
    for row in csv.DictReader(file):
        if row["table"] != table:
            continue
        component, _, verb = row["name"].removeprefix("Qnn").partition("_")
        member = component[0].lower() + component[1:] + verb[0].upper() + verb[1:]
        function = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", f"{component}_{verb}").lower()
        type = f"Qnn{component}_{verb[0].upper()}{verb[1:]}Fn_t"
        lines.append(f'QNN_CALL({row["here"]}, {member}, {type}, "{row["name"]}", {function})\n')
Path(target).write_text("".join(lines), encoding="ascii")
