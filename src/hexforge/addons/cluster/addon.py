# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from hexforge.addon import Addon, Command, Hook

ADDON = Addon(
    "cluster",
    "Many models on many chips, on one computer or over a Ray cluster.",
    commands=(
        Command(
            "sweep",
            "hexforge.addons.cluster.sweep_command:sweep",
            "Say how long many models take on many chips at several precisions, and what changed since the last time.",
            (
                "hexforge sweep models/ --soc all --report sweep.html --csv today.csv --state sweep.state",
                'hexforge sweep "models/*.onnx" --soc SM8650,SM8750 --precision w8a8 --since yesterday.csv',
                "hexforge sweep models.yaml --cluster-address ray://head:10001 --parquet sweep.parquet",
            ),
        ),
    ),
    needs=("tuning",),
    hooks={Hook.CLUSTER_WORKERS: "hexforge.addons.cluster.ray_actors:actors"},
    packages=("ray", "pyarrow"),
    extra="cluster",
)
