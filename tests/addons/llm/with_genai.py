# SPDX-License-Identifier: Apache-2.0
"""Run by the environment of onnxruntime-genai: what it generates with a bundle's ONNX model, as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import onnxruntime_genai as genai


def main(folder: str, reference: str) -> None:
    model = genai.Model(folder)
    tokenizer = genai.Tokenizer(model)
    results = []
    for case in json.loads(Path(reference).read_text())["generated"]:
        generator = genai.Generator(model, genai.GeneratorParams(model))
        ids = [int(token) for token in tokenizer.encode(case["prompt"])]
        generator.append_tokens(ids)
        given: list[int] = []
        while len(given) < len(case["next"]) and not generator.is_done():
            generator.generate_next_token()
            given.append(int(generator.get_next_tokens()[0]))
        results.append({"ids": ids, "next": given})
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
