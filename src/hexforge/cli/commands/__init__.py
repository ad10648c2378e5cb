"""The table of commands: where each one is, and the line that `hexforge --help` shows.

The line is the first paragraph of the command's docstring, which a test keeps true. It stands here too so that the help
imports no command.
"""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """A command: its name, its module below `hexforge.cli.commands`, the function or typer app in it, and its line."""

    name: str
    module: str
    attribute: str
    help: str


COMMANDS = (
    Command(
        "check",
        "inspect.check",
        "check",
        "Say of each node of a model where it runs, how, what QNN ops it becomes, or why not and what would work.",
    ),
    Command(
        "estimate",
        "time.estimate",
        "estimate",
        "Say how long a model takes on a chip, where the time goes and what bounds each op.",
    ),
    Command(
        "advise",
        "time.advise",
        "advise",
        "Say what would make a model faster on a chip: each idea tried by rewriting the model and simulating it again.",
    ),
    Command(
        "quantize",
        "quality.quantize",
        "quantize",
        "Quantize a float model for the NPU by samples of its inputs.",
    ),
    Command(
        "compare",
        "quality.compare",
        "compare",
        "Show how far a quantized model's tensors are from the float model's, the worst first.",
    ),
    Command(
        "search",
        "quality.search",
        "search",
        "Find the mix of two precisions that meets a quality at the lowest latency on a chip.",
    ),
    Command(
        "compile",
        "contexts.compile",
        "compile",
        "Compile models into one context file; nothing is run. A node the backend refuses is an error.",
    ),
    Command(
        "info",
        "contexts.info",
        "info",
        "Say what a context is: producer, chips, options, graphs, tensors, sizes, shared weights; checksums verified.",
    ),
    Command(
        "wrap",
        "contexts.wrap",
        "wrap",
        "Write one ONNX model around each graph of a context, which InferenceSession runs.",
    ),
    Command(
        "prune",
        "contexts.prune",
        "prune",
        "Keep one chip of a context that was made for several.",
    ),
    Command(
        "ops",
        "tables.ops",
        "ops",
        "Which ONNX ops become which QNN ops, and what those are: work and quantization rule.",
    ),
    Command(
        "show",
        "inspect.show",
        "show",
        "Print the QNN graphs that a model becomes, as text.",
    ),
    Command(
        "run",
        "inspect.run",
        "run",
        "Run a model once and print what came out; inputs not given are random, from a fixed seed.",
    ),
    Command(
        "fix-shapes",
        "inspect.fix_shapes",
        "fix_shapes",
        "Write a copy of a model with dynamic dimensions fixed, by their name or by whole input shapes.",
    ),
    Command(
        "convert-opset",
        "inspect.convert_opset",
        "convert_opset",
        "Write a copy of a model in another version of ONNX's operators.",
    ),
    Command(
        "options",
        "tables.options",
        "options",
        "List provider options, session keys, run options and dynamic options.",
    ),
    Command(
        "socs",
        "time.socs",
        "socs",
        "List the chips: architecture, VTCM, HVX threads, clocks, memory and abilities, each figure marked by source.",
    ),
    Command(
        "demo",
        "inspect.demo",
        "demo",
        "Check the built-in digit classifier, run it on held-out digits, and write a page of its time on a chip.",
    ),
    Command(
        "eval",
        "quality.evaluate",
        "evaluate",
        "Run a model on samples and score its outputs; the score is the same for any number of jobs.",
    ),
    Command(
        "lora",
        "contexts.lora",
        "lora",
        "LoRA adapters for a compiled context: make them, look at them.",
    ),
)
