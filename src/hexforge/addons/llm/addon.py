# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from hexforge.addon import Addon, Command, FileKind

_EXPORT = "`hexforge llm export {} -o bundle/` makes a bundle of it, where it is a language model"

ADDON = Addon(
    "llm",
    "Language models from a checkpoint to a bundle and to answers, and how fast they answer on a chip.",
    commands=(
        Command(
            "llm",
            "hexforge.addons.llm.commands:llm",
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
    ),
    files=(
        FileKind("weights in a GGUF file", _EXPORT.format("FILE"), start=b"GGUF"),
        FileKind(
            "weights without a graph (safetensors)",
            _EXPORT.format("FOLDER") + " and FOLDER has its config.json",
            start=rb".{6}\x00\x00\{\s*\"",
        ),
        FileKind(
            "a bundle of a language model",
            "`hexforge llm run FOLDER` runs it, `hexforge llm estimate FOLDER` says how fast it answers",
            members=("bundle.json",),
            is_folder=True,
        ),
        FileKind(
            "a checkpoint of Hugging Face's",
            _EXPORT.format("FOLDER"),
            members=("config.json", "*.safetensors"),
            is_folder=True,
        ),
    ),
    needs=("adapters", "executorch", "latency"),
    packages=("gguf", "jinja2", "starlette", "tokenizers", "uvicorn"),
    extra="llm",
)
