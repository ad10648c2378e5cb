# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from hexforge.addon import Addon, Command

ADDON = Addon(
    "vendor",
    "The bridge to Qualcomm's own package, which makes the contexts that devices load.",
    commands=(
        Command(
            "deploy",
            "hexforge.addons.vendor.commands.deploy:deploy",
            "Make a folder to ship: contexts by Qualcomm's package, examples, options, "
            "checksums, a page and the proof.",
            (
                "hexforge deploy model.qdq.onnx --soc SM8650,SM8750 -o shipped/",
                'hexforge deploy model.qdq.onnx --soc "Galaxy S24" --data pictures/ --limit 8 -o shipped/ --overwrite',
                "hexforge deploy model.qdq.onnx --soc SM8650 -o shipped/ --push",
                "hexforge deploy shipped/ --push -s R5CX --programs android-arm64/ --add-to measured.csv",
            ),
        ),
        Command(
            "verify",
            "hexforge.addons.vendor.commands.verify:verify",
            "Repeat the proof of a folder that hexforge deployed: checksums, placement, contexts and every tensor.",
            ("hexforge verify shipped/", "hexforge verify shipped/ --groups --json"),
        ),
        Command(
            "vendor",
            "hexforge.addons.vendor.commands.vendor:vendor",
            "Say what of Qualcomm's package is installed and can do; given models, have it make contexts of them.",
            (
                "hexforge vendor",
                "hexforge vendor --json",
                'hexforge vendor model.qdq.onnx --soc "8 Gen 3" -o contexts/',
                "hexforge vendor prefill.onnx decode.onnx --share --soc SM8750 -o contexts/",
            ),
        ),
    ),
    engines={"vendor": "hexforge.addons.vendor.engine:VendorEngine"},
    needs=("phone",),
    packages=("onnxruntime_qnn",),
    extra="vendor",
)
