# SPDX-License-Identifier: Apache-2.0
"""The table of the core's commands: where each one is, and the line that `hexforge --help` shows.

The line is the first paragraph of the command's docstring, which a test keeps true. It stands here too so that the help
imports no command. Add-ons declare theirs.
"""

from __future__ import annotations

from hexforge.addon import Command, addons

CORE = (
    Command(
        "check",
        "hexforge.cli.commands.check:check",
        "Say of each node of a model where it runs, how, what QNN ops it becomes, or why not and what would work.",
        (
            'hexforge check model.onnx --soc "Galaxy S24"',
            "hexforge check model.onnx --refused",
            "hexforge check model.onnx --dim height=320 --dim width=320 --strict --json",
        ),
    ),
    Command(
        "estimate",
        "hexforge.cli.commands.estimate:estimate",
        "Say how long a model takes on a chip, where the time goes and what bounds each op.",
        (
            'hexforge estimate model.onnx --soc "8 Gen 3" --precision w8a8 --report page.html',
            "hexforge estimate model.onnx --soc all",
            "hexforge estimate model.onnx --co-running other.onnx:high --interval-ms 33",
        ),
        is_about_chips=True,
        gives="hexforge.analysis.estimate:Estimate",
    ),
    Command(
        "quantize",
        "hexforge.cli.commands.quantize:quantize",
        "Quantize a float model for the NPU by samples of its inputs.",
        (
            "hexforge quantize model.onnx --data samples/ -o model.qdq.onnx",
            "hexforge quantize model.onnx --data samples/ --recipe w8a16 --state calibration.npz",
        ),
        is_about_chips=True,
        gives="hexforge.analysis.quality.quantize:Quantization",
    ),
    Command(
        "compare",
        "hexforge.cli.commands.compare:compare",
        "Show how far a quantized model's tensors are from the float model's, the worst first.",
        (
            "hexforge compare model.onnx model.qdq.onnx --data samples/ --report page.html",
            "hexforge compare model.onnx model.qdq.onnx --data samples/ --sensitivity all-but-one --jobs 4",
            "hexforge compare model.qdq.onnx --dump off_the_device/ --input x=x.npy --write departure/",
        ),
        gives="hexforge.analysis.quality.compare:Comparison",
    ),
    Command(
        "compile",
        "hexforge.cli.commands.compile:compile",
        "Compile models into one context file; nothing is run. A node the backend refuses is an error.",
        (
            'hexforge compile model.qdq.onnx -o model.bin --soc "8 Gen 3" --soc "8 Elite"',
            "hexforge compile prefill.onnx decode.onnx -o model.bin --share --wrap",
        ),
    ),
    Command(
        "info",
        "hexforge.cli.commands.info:info",
        "Say what a context is: producer, chips, options, graphs, tensors, sizes, shared weights; checksums verified.",
        ('hexforge info model.bin --soc "Galaxy S24"',),
    ),
    Command(
        "wrap",
        "hexforge.cli.commands.conversions:wrap",
        "Write one ONNX model around each graph of a context, which InferenceSession runs.",
        ("hexforge wrap model.bin -o models/",),
    ),
    Command(
        "prune",
        "hexforge.cli.commands.conversions:prune",
        "Keep one chip of a context that was made for several.",
        ('hexforge prune model.bin --soc "8 Gen 3" -o one.bin',),
    ),
    Command(
        "ops",
        "hexforge.cli.commands.listings:ops",
        "Which ONNX ops become which QNN ops, what those are, and what of them is refused, why, and how that is known.",
        ("hexforge ops", "hexforge ops Conv", "hexforge ops --refused-by ep --json"),
    ),
    Command(
        "show",
        "hexforge.cli.commands.info:show",
        "Print the QNN graphs that a model becomes, as text.",
        ("hexforge show model.onnx", "hexforge show model.onnx --no-passes --onnx-units"),
    ),
    Command(
        "run",
        "hexforge.cli.commands.run:run",
        "Run a model or a context once and print what came out; inputs not given are random, from a fixed seed.",
        (
            "hexforge run model.onnx -i image=cat.npy --top 5 --classes labels.txt",
            "hexforge run model.bin -o outputs --json",
        ),
    ),
    Command(
        "bench",
        "hexforge.cli.commands.bench:bench",
        "Time a model or a context on this computer: warm-up, percentiles, throughput, threads; and the chip's time.",
        ("hexforge bench model.onnx --duration 10", "hexforge bench model.bin --iterations 1000 --threads 4 --json"),
    ),
    Command(
        "fix-shapes",
        "hexforge.cli.commands.conversions:fix_shapes",
        "Write a copy of a model with dynamic dimensions fixed, by their name or by whole input shapes.",
        (
            "hexforge fix-shapes model.onnx fixed.onnx --dim batch=1 --dim height=320",
            "hexforge fix-shapes model.onnx fixed.onnx --shape x=1,3,224,224 --pin sr=16000",
        ),
    ),
    Command(
        "convert",
        "hexforge.cli.commands.conversions:convert",
        "Write the ONNX model of a .tflite or a .pt2, checked by running both where what runs them is installed.",
        ("hexforge convert model.tflite -o model.onnx", "hexforge convert face.task#face_detector -o detector.onnx"),
    ),
    Command(
        "convert-opset",
        "hexforge.cli.commands.conversions:convert_opset",
        "Write a copy of a model in another version of ONNX's operators.",
        ("hexforge convert-opset model.onnx newer.onnx --opset 17",),
    ),
    Command(
        "options",
        "hexforge.cli.commands.listings:options",
        "List provider options, session keys, run options and dynamic options.",
        ("hexforge options",),
    ),
    Command(
        "addons",
        "hexforge.cli.commands.listings:addons",
        "List the add-ons: what each adds, and what it needs and misses.",
        ("hexforge addons", "hexforge addons --json"),
    ),
    Command(
        "socs",
        "hexforge.cli.commands.listings:socs",
        "List the chips: architecture, VTCM, HVX threads, clocks, memory and abilities, each figure marked by source.",
        ("hexforge socs", 'hexforge socs "Galaxy S24"'),
    ),
    Command(
        "eval",
        "hexforge.cli.commands.evaluate:evaluate",
        "Run a model on samples and score its outputs; the score is the same for any number of jobs.",
        (
            "hexforge eval model.qdq.onnx --data samples/ --labels labels.csv --metric top5",
            "hexforge eval model.qdq.onnx --data samples/ --metric sqnr:model.onnx --jobs 4",
        ),
    ),
)


def commands() -> dict[str, Command]:
    """Every command by its name: the core's, then those of the add-ons."""
    rows = (*CORE, *(command for addon in addons() for command in addon.commands))
    return {row.name: row for row in rows}
