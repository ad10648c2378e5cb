# SPDX-License-Identifier: Apache-2.0
"""The settings of examples/cluster: what Kubernetes and KubeRay take, one version of Ray, and a script that runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.addons.cluster.ray_clusters import LocalCluster
from tests.addons.cluster.test_sweep import write_model

yaml = pytest.importorskip("yaml")
FOLDER = ROOT / "examples" / "cluster"
KUBERNETES = "1.31"
CONTAINERS = {"resources", "image", "imagePullPolicy", "env", "envFrom", "volumeMounts", "securityContext"}
GROUP = {"rayStartParams", "template"}
KNOWN: Mapping[str, tuple[set[str], set[str]]] = {
    "": ({"apiVersion", "kind", "metadata", "spec"}, {"apiVersion", "kind", "metadata", "spec"}),
    "spec": (
        {"headGroupSpec"},
        {"headGroupSpec", "workerGroupSpecs", "rayVersion", "enableInTreeAutoscaling", "autoscalerOptions"},
    ),
    "spec.autoscalerOptions": (set(), CONTAINERS | {"idleTimeoutSeconds", "upscalingMode"}),
    "spec.headGroupSpec": (GROUP, GROUP | {"serviceType", "headService", "enableIngress"}),
    "spec.workerGroupSpecs.0": (
        GROUP | {"groupName", "minReplicas", "maxReplicas"},
        GROUP | {"groupName", "minReplicas", "maxReplicas", "replicas", "numOfHosts", "scaleStrategy"},
    ),
}
"""By place in a RayCluster (ray.io/v1) the fields that must be there, and those that there are."""


def settings(name: str) -> dict[str, Any]:
    """The content of a file."""
    return dict(yaml.safe_load((FOLDER / name).read_text()))


def at(content: Any, place: str) -> Any:
    """What is at a place of settings."""
    for step in filter(None, place.split(".")):
        content = content[int(step) if step.isdecimal() else step]
    return content


@pytest.mark.parametrize("place", KNOWN)
def test_fields_of_the_cluster_are_kuberays(place: str) -> None:
    content = settings("raycluster.yaml")
    required, known = KNOWN[place]
    assert required <= set(at(content, place)) <= known
    assert (content["apiVersion"], content["kind"]) == ("ray.io/v1", "RayCluster")
    assert content["spec"]["autoscalerOptions"]["upscalingMode"] in ("Default", "Aggressive", "Conservative")
    for group in (content["spec"]["headGroupSpec"], *content["spec"]["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values()), "they are texts"


@pytest.mark.cluster
def test_pods_and_the_nightly_job_are_what_kubernetes_takes() -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="make cluster installs it")
    cluster = settings("raycluster.yaml")["spec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": group["template"]["spec"]}
        validator.validate(pod, KUBERNETES, strict=True)
    resources = {"name": "scaler", "resources": cluster["autoscalerOptions"]["resources"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": {"containers": [resources]}}
    validator.validate(pod, KUBERNETES, strict=True)
    validator.validate(settings("nightly_sweep.yaml"), KUBERNETES, strict=True)
    pod["spec"]["containers"][0]["ressources"] = {}
    with pytest.raises(validator.ValidationError):
        validator.validate(pod, KUBERNETES, strict=True)


def test_mounts_have_volumes_and_the_job_finds_the_cluster() -> None:
    content = settings("raycluster.yaml")
    for group in (content["spec"]["headGroupSpec"], *content["spec"]["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for c in pod["containers"] for mount in c["volumeMounts"]} == volumes
    job = settings("nightly_sweep.yaml")["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    assert f"http://{content['metadata']['name']}-head-svc:8265" in job["command"]
    assert f"COPY nightly_sweep.sh {job['command'][-1]}" in (FOLDER / "Dockerfile").read_text()


def test_ray_has_one_version() -> None:
    pinned = re.search(r"^ray==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert settings("raycluster.yaml")["spec"]["rayVersion"] == pinned[1]
    assert f"rayproject/ray:{pinned[1]}-" in (FOLDER / "Dockerfile").read_text()


@pytest.mark.cluster
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_script_sweeps_night_after_night(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="make cluster installs Ray")
    models, sweeps = tmp_path / "models", tmp_path / "sweeps"
    models.mkdir()
    sweeps.mkdir()
    write_model(models / "m.onnx", 8)
    cluster = LocalCluster()
    try:
        place = {"MODELS": str(models), "SWEEPS": str(sweeps), "CHIPS": "SM8650", "RAY_ADDRESS": cluster.of(1)}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        for night in ("2026-01-01", "2026-01-02"):
            environment = os.environ | place | {"TODAY": night, "PATH": path}
            said = subprocess.run(
                ["sh", FOLDER / "nightly_sweep.sh"], env=environment, capture_output=True, text=True, timeout=400,
                check=False,
            )  # fmt: skip
            assert said.returncode == 0, said.stderr
    finally:
        cluster.close()
    assert (sweeps / "2026-01-01.csv").read_bytes() == (sweeps / "2026-01-02.csv").read_bytes()
    assert sorted(p.name for p in sweeps.iterdir()) == [
        "2026-01-01.csv", "2026-01-01.state", "2026-01-02.csv", "2026-01-02.state", "sweep.html",
    ]  # fmt: skip
