# SPDX-License-Identifier: Apache-2.0
"""Finding the package: named, in this Python, or nowhere; other versions are not used."""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from hexforge.addons.vendor import package
from hexforge.addons.vendor.package import PYTHON_VARIABLE, InstalledPackage, find_package, require_package
from hexforge.errors import PackageError
from tests.addons.vendor import needs_package
from tests.cli.test_cli import run

QUESTION = "#!/bin/sh\necho {}\n"


def script(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A computer without the package."""

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)
    monkeypatch.setattr(package, "version", missing)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.chdir(tmp_path)


def test_no_package_says_how_to_get_it(nowhere: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert find_package() is None
    with pytest.raises(PackageError, match=r"is not installed; pip install 'hexforge\[vendor\]'"):
        require_package()
    assert run("vendor", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["usable"], said["compiles_contexts"], said["version"]) == (False, False, None)
    assert "is not installed" in said["reason"]
    assert run("vendor") == 0
    assert capsys.readouterr().out.startswith("not usable: onnxruntime-qnn: is not installed")


def test_this_python_has_it(nowhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "version", {"onnxruntime-qnn": "2.7.0", "onnxruntime": "1.31.1"}.__getitem__)
    assert require_package() == InstalledPackage(Path(sys.executable), "2.7.0", "1.31.1")


def test_another_version_is_not_used(nowhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "version", {"onnxruntime-qnn": "1.24.3", "onnxruntime": "1.24.3"}.__getitem__)
    with pytest.raises(PackageError, match=r"1\.24\.3 in .*: hexforge is written for 2\.7\.0"):
        require_package()


def test_the_python_that_is_named_is_asked(nowhere: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = script(tmp_path, QUESTION.format("2.7.1 1.31.1"))
    monkeypatch.setenv(PYTHON_VARIABLE, named)
    assert require_package() == InstalledPackage(Path(named), "2.7.1", "1.31.1")


def test_a_folder_above_has_it(nowhere: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".venv-vendor" / "bin").mkdir(parents=True)
    named = script(tmp_path / ".venv-vendor" / "bin", QUESTION.format("2.7.0 1.31.1"))
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "deeper")
    assert require_package().python == Path(named)


@pytest.mark.parametrize("place", [".", ".venv-vendor", ".venv-vendor/bin", ".venv-vendor/bin/python"])
def test_one_above_where_others_can_write_is_not_run(
    nowhere: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / ".venv-vendor" / "bin").mkdir(parents=True)
    script(tmp_path / ".venv-vendor" / "bin", f"#!/bin/sh\ntouch {tmp_path}/was_run\necho 2.7.0 1.31.1\n")
    (tmp_path / place).chmod(0o777)
    assert find_package() is None
    with pytest.raises(PackageError, match=r"\.venv-vendor/bin/python is not run: others can write there"):
        require_package()
    assert not (tmp_path / "was_run").exists()


def test_one_above_that_is_somebody_elses_is_not_run(
    nowhere: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".venv-vendor" / "bin").mkdir(parents=True)
    script(tmp_path / ".venv-vendor" / "bin", QUESTION.format("2.7.0 1.31.1"))
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    if (tmp_path / ".venv-vendor").stat().st_uid == 0:
        os.chown(tmp_path / ".venv-vendor", 54321, 54321)
    assert find_package() is None


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "cannot be run"), ("#!/bin/sh\nexit 0\n", "said nothing"), ("#!/bin/sh\necho no >&2; exit 1\n", ": no;")],
)
def test_a_python_without_it_is_an_error(
    text: str | None, words: str, nowhere: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = str(tmp_path / "nothing") if text is None else script(tmp_path, text)
    monkeypatch.setenv(PYTHON_VARIABLE, named)
    with pytest.raises(PackageError, match=words):
        find_package()


class TestInstalled:
    pytestmark = needs_package

    def test_what_it_can_do(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("vendor", "--json") == 0
        said = json.loads(capsys.readouterr().out)
        assert said["usable"]
        assert said["compiles_contexts"]
        assert said["emulates"]
        assert said["version"].startswith("2.7.")
        assert run("vendor") == 0
        assert "emulator" in capsys.readouterr().out
