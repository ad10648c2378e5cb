# SPDX-License-Identifier: Apache-2.0
"""The table of commands: where each one is, and the line that `hexforge --help` shows.

The line is the first paragraph of the command's docstring, which a test keeps true. It stands here too so that the help
imports no command.
"""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """A command: its name, its module below `hexforge.cli`, the function or app in it, and its help."""

    name: str
    module: str
    attribute: str
    help: str
    examples: tuple[str, ...]
    """Commands as people type them; a test parses each."""


COMMANDS = (
    Command(
        "optimize",
        "quality.optimize",
        "optimize",
        "Make a model fast on a chip: fix shapes, rewrite, find the best precisions, quantize, compile, explain.",
        (
            'hexforge optimize model.onnx --data samples/ --soc "Galaxy S24"',
            "hexforge optimize model.onnx --data samples/ --labels labels.csv --metric top1 -o fast/",
        ),
    ),
    Command(
        "check",
        "inspect.check",
        "check",
        "Say of each node of a model where it runs, how, what QNN ops it becomes, or why not and what would work.",
        (
            'hexforge check model.onnx --soc "Galaxy S24"',
            "hexforge check model.onnx --refused",
            "hexforge check model.onnx --dim height=320 --dim width=320 --strict --json",
        ),
    ),
    Command(
        "estimate",
        "time.estimate",
        "estimate",
        "Say how long a model takes on a chip, where the time goes and what bounds each op.",
        (
            'hexforge estimate model.onnx --soc "8 Gen 3" --precision w8a8 --report page.html',
            "hexforge estimate model.onnx --soc all",
            "hexforge estimate model.onnx --co-running other.onnx:high --interval-ms 33",
        ),
    ),
    Command(
        "profile",
        "time.profile",
        "profile",
        "Profile a model on a chip: report, trace, tables and a page that says why it takes its time.",
        (
            'hexforge profile model.onnx --soc "Galaxy S24" -o profile/',
            "hexforge profile after.onnx --compare before.onnx --level linting -o profile/",
            "hexforge profile model.onnx --co-running other.onnx:high --priority low",
        ),
    ),
    Command(
        "advise",
        "time.advise",
        "advise",
        "Say what would make a model faster on a chip: each idea tried by rewriting the model and simulating it again.",
        (
            'hexforge advise model.onnx --soc "8 Gen 3" --precision w8a8',
            "hexforge advise model.onnx --precision w8a8 --apply faster.onnx",
        ),
    ),
    Command(
        "quantize",
        "quality.quantize",
        "quantize",
        "Quantize a float model for the NPU by samples of its inputs.",
        (
            "hexforge quantize model.onnx --data samples/ -o model.qdq.onnx",
            "hexforge quantize model.onnx --data samples/ --recipe w8a16 --state calibration.npz",
        ),
    ),
    Command(
        "compare",
        "quality.compare",
        "compare",
        "Show how far a quantized model's tensors are from the float model's, the worst first.",
        (
            "hexforge compare model.onnx model.qdq.onnx --data samples/ --report page.html",
            "hexforge compare model.onnx model.qdq.onnx --data samples/ --sensitivity all-but-one --jobs 4",
            "hexforge compare model.qdq.onnx --dump off_the_device/ --input x=x.npy --write departure/",
        ),
    ),
    Command(
        "whatif",
        "quality.whatif",
        "whatif",
        "Switch one thing that a chip may compute otherwise, and search the input that shows it most, op by op.",
        (
            "hexforge whatif model.onnx --switch fold_relu",
            "hexforge whatif model.onnx --switch float_order --range -4:4 --tries 500 --save-input worst.npz",
        ),
    ),
    Command(
        "search",
        "quality.search",
        "search",
        "Find the mix of two precisions that meets a quality at the lowest latency on a chip.",
        (
            'hexforge search model.onnx --data samples/ --soc "8 Gen 3" -o best.qdq.onnx --state search.json',
            "hexforge search model.onnx --data samples/ --metric top1 --labels labels.csv --target 0.75",
        ),
    ),
    Command(
        "compile",
        "contexts.compile",
        "compile",
        "Compile models into one context file; nothing is run. A node the backend refuses is an error.",
        (
            'hexforge compile model.qdq.onnx -o model.bin --soc "8 Gen 3" --soc "8 Elite"',
            "hexforge compile prefill.onnx decode.onnx -o model.bin --share --wrap",
        ),
    ),
    Command(
        "info",
        "contexts.info",
        "info",
        "Say what a context is: producer, chips, options, graphs, tensors, sizes, shared weights; checksums verified.",
        ('hexforge info model.bin --soc "Galaxy S24"',),
    ),
    Command(
        "diff",
        "inspect.diff",
        "diff",
        "Say what changed from one context, model, profile or estimate to another, by layer, and why it is slower.",
        (
            "hexforge diff before.bin after.bin",
            "hexforge diff model.onnx model.qdq.onnx --soc SM8650 --report page.html",
            "hexforge diff before.json after.json --json",
        ),
    ),
    Command(
        "wrap",
        "contexts.wrap",
        "wrap",
        "Write one ONNX model around each graph of a context, which InferenceSession runs.",
        ("hexforge wrap model.bin -o models/",),
    ),
    Command(
        "prune",
        "contexts.prune",
        "prune",
        "Keep one chip of a context that was made for several.",
        ('hexforge prune model.bin --soc "8 Gen 3" -o one.bin',),
    ),
    Command(
        "gate",
        "quality.gate",
        "gate",
        "Check models against a budget of latency, placement, quality and size; exit code 1 where one is over it.",
        (
            "hexforge gate budget.yaml",
            "hexforge gate budget.yaml --baseline main.json --junit gate.xml --markdown comment.md",
        ),
    ),
    Command(
        "replay",
        "inspect.replay",
        "replay",
        "Run a recording of the Saver again and compare what comes out; find the smallest part that fails.",
        (
            "hexforge replay saver_output",
            "hexforge replay saver_output --backend htp --against cpu --minimise smallest",
        ),
    ),
    Command(
        "phone",
        "phone",
        "phone",
        "Virtual phones with an adb of their own: deployment scripts push, run and pull there as they are.",
        (
            "hexforge phone add emulated-1 --soc SM8650",
            "hexforge phone env",
            "hexforge phone list",
            "hexforge phone unplug emulated-1",
            "hexforge phone measure model.onnx --phone emulated-1 --add-to measured.csv",
        ),
    ),
    Command(
        "calibrate",
        "phone.calibrate",
        "calibrate",
        "Fit what makes a chip to times that were measured on a device; `estimate --costs` reads the file it writes.",
        ("hexforge calibrate measured.csv --soc SM8650 -o costs.json",),
    ),
    Command(
        "sdk-root",
        "phone.sdk",
        "sdk_root",
        "Print a folder for QNN_SDK_ROOT: tools, libraries and headers of hexforge where scripts look for the SDK's.",
        ("hexforge sdk-root", "hexforge sdk-root --executorch-build"),
    ),
    Command(
        "tool",
        "contexts.tool",
        "tool",
        "Run one of the vendor's tools, with its own flags: qnn-net-run and its family.",
        (
            "hexforge tool qnn-net-run --model model.onnx --backend libQnnHtp.so --input_list list.txt",
            "hexforge tool qnn-context-binary-generator --model model.onnx --backend libQnnHtp.so --binary_file ctx",
        ),
    ),
    Command(
        "op-package",
        "inspect.op_package",
        "op_package",
        "Op packages: compile one, look at one.",
        (
            "hexforge op-package build swish.cpp -o libswish.so",
            "hexforge op-package show Swish:libswish.so:swish_package",
        ),
    ),
    Command(
        "config",
        "inspect.config",
        "config",
        "Check and explain config files of QNN's tools.",
        (
            'hexforge config check htp_config.json --soc "8 Gen 3"',
            "hexforge config schema",
        ),
    ),
    Command(
        "explain",
        "inspect.explain",
        "explain",
        "Say what a code or a log of QNN means, why, what would work, and what the model or context shows of it.",
        (
            "hexforge explain 5005",
            "hexforge explain 0x3ea 'graph requires estimated allocation of 2347229 KB, limit is 2097152 KB'",
            "hexforge explain device.log --model model.onnx --soc SM8650",
            "hexforge explain - --json",
        ),
    ),
    Command(
        "executor-runner",
        "inspect.executor_runner",
        "executor_runner",
        "Run a .pte over files of inputs, with the flags of ExecuTorch's qnn_executor_runner.",
        (
            "hexforge executor-runner --model_path model.pte --input_list_path input_list.txt",
            "hexforge executor-runner --model_path model.pte --profile_level 2 --etdump_path etdump.etdp",
        ),
    ),
    Command(
        "ops",
        "inspect.ops",
        "ops",
        "Which ONNX ops become which QNN ops, what those are, and what of them is refused, why, and how that is known.",
        (
            "hexforge ops",
            "hexforge ops Conv",
            "hexforge ops --refused-by ep --json",
        ),
    ),
    Command(
        "show",
        "inspect.show",
        "show",
        "Print the QNN graphs that a model becomes, as text.",
        (
            "hexforge show model.onnx",
            "hexforge show model.onnx --no-passes --onnx-units",
        ),
    ),
    Command(
        "run",
        "inspect.run",
        "run",
        "Run a model or a context once and print what came out; inputs not given are random, from a fixed seed.",
        (
            "hexforge run model.onnx -i image=cat.npy --top 5 --classes labels.txt",
            "hexforge run model.bin -o outputs --json",
        ),
    ),
    Command(
        "bench",
        "time.bench",
        "bench",
        "Time a model or a context on this computer: warm-up, percentiles, throughput, threads; and the chip's time.",
        (
            "hexforge bench model.onnx --duration 10",
            "hexforge bench model.bin --iterations 1000 --threads 4 --json",
        ),
    ),
    Command(
        "fix-shapes",
        "inspect.fix_shapes",
        "fix_shapes",
        "Write a copy of a model with dynamic dimensions fixed, by their name or by whole input shapes.",
        (
            "hexforge fix-shapes model.onnx fixed.onnx --dim batch=1 --dim height=320",
            "hexforge fix-shapes model.onnx fixed.onnx --shape x=1,3,224,224 --pin sr=16000",
        ),
    ),
    Command(
        "convert-opset",
        "inspect.convert_opset",
        "convert_opset",
        "Write a copy of a model in another version of ONNX's operators.",
        ("hexforge convert-opset model.onnx newer.onnx --opset 17",),
    ),
    Command(
        "devices",
        "inspect.devices",
        "devices",
        "List the OpenCL devices that the gpu backend can run on: name, driver, memory, extensions.",
        ("hexforge devices", "hexforge devices --json"),
    ),
    Command(
        "options",
        "inspect.options",
        "options",
        "List provider options, session keys, run options and dynamic options.",
        ("hexforge options",),
    ),
    Command(
        "socs",
        "time.socs",
        "socs",
        "List the chips: architecture, VTCM, HVX threads, clocks, memory and abilities, each figure marked by source.",
        (
            "hexforge socs",
            'hexforge socs "Galaxy S24"',
        ),
    ),
    Command(
        "device",
        "time.device",
        "device",
        "Play a scenario on a simulated device (device SCRIPT.json), or serve one that several programs share.",
        (
            "hexforge device scenario.json --report page.html --log events.jsonl",
            "hexforge device scenario.json --json",
            "hexforge device serve --soc SM8650",
            "hexforge device status",
            "hexforge device fault ssr",
            "hexforge device stop",
        ),
    ),
    Command(
        "sweep",
        "time.sweep",
        "sweep",
        "Say how long many models take on many chips at several precisions, and what changed since the last time.",
        (
            "hexforge sweep models/ --soc all --report sweep.html --csv today.csv --state sweep.state",
            'hexforge sweep "models/*.onnx" --soc SM8650,SM8750 --precision w8a8 --since yesterday.csv',
            "hexforge sweep models.yaml --cluster-address ray://head:10001 --parquet sweep.parquet",
        ),
    ),
    Command(
        "plan",
        "time.plan",
        "plan",
        "Find how contexts that run together are best loaded, shared and driven on a chip, and prove it by playing.",
        (
            "hexforge plan detector.bin speech.bin --workload work.yaml -o plan/",
            "hexforge plan --workload work.yaml --for ram --frames 2000 --json",
        ),
    ),
    Command(
        "demo",
        "inspect.demo",
        "demo",
        "Check the built-in night-shot model, run it on new pictures, and make it fast on a chip, with a page.",
        (
            "hexforge demo",
            'hexforge demo --soc "X Elite"',
        ),
    ),
    Command(
        "eval",
        "quality.evaluate",
        "evaluate",
        "Run a model on samples and score its outputs; the score is the same for any number of jobs.",
        (
            "hexforge eval model.qdq.onnx --data samples/ --labels labels.csv --metric top5",
            "hexforge eval model.qdq.onnx --data samples/ --metric sqnr:model.onnx --jobs 4",
        ),
    ),
    Command(
        "lora",
        "contexts.lora",
        "lora",
        "LoRA adapters for a compiled context: make them, look at them.",
        (
            "hexforge lora make model.bin --base base.onnx --adapted tuned.onnx -o tuned.adapter",
            "hexforge lora info tuned.adapter",
        ),
    ),
    Command(
        "llm",
        "llm",
        "llm",
        "Language models: export a checkpoint, run it, chat with it, judge it, serve it, say how fast it is.",
        (
            "hexforge llm export checkpoint/ --soc SM8650 --context 4096 --ar 128,1 --precision w4a16 -o bundle/",
            'hexforge llm run bundle/ --prompt "The following functions"',
            "hexforge llm run bundle/ --prompt 'A class that' --draft small_bundle/ --ahead 4",
            "hexforge llm chat bundle/",
            'hexforge llm estimate llama_v3_2_3b_instruct --soc "8 Elite" --context 4096 --report page.html',
            "hexforge llm estimate bundle/ --soc all --runtime genie --json",
            "hexforge llm serve bundle/ --port 8080",
            "hexforge llm eval bundle/ --checkpoint checkpoint/ --text held_out.txt --blame",
        ),
    ),
    Command(
        "deploy",
        "deploy.deploy",
        "deploy",
        "Make a folder to ship: contexts by Qualcomm's package, examples, options, checksums, a page and the proof.",
        (
            "hexforge deploy model.qdq.onnx --soc SM8650,SM8750 -o shipped/",
            'hexforge deploy model.qdq.onnx --soc "Galaxy S24" --data pictures/ --limit 8 -o shipped/ --overwrite',
            "hexforge deploy model.qdq.onnx --soc SM8650 -o shipped/ --push",
            "hexforge deploy shipped/ --push -s R5CX --programs android-arm64/ --add-to measured.csv",
        ),
    ),
    Command(
        "verify",
        "deploy.verify",
        "verify",
        "Repeat the proof of a folder that hexforge deployed: checksums, placement, contexts and every tensor.",
        ("hexforge verify shipped/", "hexforge verify shipped/ --groups --json"),
    ),
    Command(
        "vendor",
        "deploy.vendor",
        "vendor",
        "Say what of Qualcomm's package is installed and can do; given models, have it make contexts of them.",
        (
            "hexforge vendor",
            "hexforge vendor --json",
            'hexforge vendor model.qdq.onnx --soc "8 Gen 3" -o contexts/',
            "hexforge vendor prefill.onnx decode.onnx --share --soc SM8750 -o contexts/",
        ),
    ),
    Command(
        "lib-path",
        "library",
        "lib_path",
        "Print the folder of libQnnHtp.so and its siblings: QNN's C API, for programs that load it.",
        (
            "hexforge lib-path",
            "hexforge lib-path --include",
        ),
    ),
    Command(
        "trace",
        "trace",
        "trace",
        "Run any program on hexforge's QNN libraries, and report every misuse of their API.",
        (
            "hexforge trace ./program --its-own-flag",
            "hexforge trace --json -o recording python script.py",
        ),
    ),
)
