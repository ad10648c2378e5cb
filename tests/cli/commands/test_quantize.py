# SPDX-License-Identifier: Apache-2.0
"""`hexforge quantize` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hexforge.cli import main
from tests.digits import MODEL as DIGITS
from tests.digits import held_out


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, what was printed, and what went to standard error."""
    with pytest.raises(SystemExit) as caught:
        main(["quantize", *arguments])
    printed = capsys.readouterr()
    code = caught.value.code
    return (int(code) if code is not None else 0), printed.out, printed.err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "calib"
    made.mkdir()
    for i, image in enumerate(held_out()[0][:4]):
        np.save(made / f"{i}.npy", image)
    return made


def test_a_folder(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, encodings = tmp_path / "q.onnx", tmp_path / "e.json"
    code, said, _ = run(
        capsys, str(DIGITS), "--data", str(folder), "--recipe", "w8a8_channel; Gemm=w8a16", "-o", str(out),
        "--export-encodings", str(encodings), "--method", "percentile=99.9", "--state", str(tmp_path / "s.npz"),
    )  # fmt: skip
    assert code == 0
    for part in ("4 samples (percentile=99.9)", "a scale per channel", "converted for a reader", "placed whole on htp",
                 f"wrote {out}", f"wrote {encodings}"):  # fmt: skip
        assert part in " ".join(said.split()), part  # a long path is wrapped at a space of it
    assert out.exists()
    assert json.loads(encodings.read_text())["version"] == "1.0.0"
    again = (str(DIGITS), "--data", str(folder), "--encodings", str(encodings), "-o", str(out))
    written = ("--export-encodings", str(tmp_path / "2.json"), "--encodings-version", "2.0.0")
    assert run(capsys, *again, *written)[0] == 0
    assert json.loads((tmp_path / "2.json").read_text())["version"] == "2.0.0"
    first = out.read_bytes()
    assert run(capsys, *again[:4], str(tmp_path / "2.json"), "-o", str(out))[0] == 0
    assert out.read_bytes() == first


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "q.onnx"
    code, said, _ = run(capsys, str(DIGITS), "--data", "random:2", "-o", str(out), "--json", "--soc", "SM8650")
    found = json.loads(said)
    assert code == 0
    assert found["placed_whole"] is True
    assert found["samples"] == 2
    assert found["files"] == [str(out)]
    assert found["tensors"]["uint8"] > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "needs samples of its inputs ('image')"),
        (["--data", "random:x"], "random"),
        (["--data", "/nowhere"], "/nowhere"),
        (["--data", "random:2", "--recipe", "w8a9"], "8 or 16 bits, not 9"),
        (["--data", "random:2", "--method", "entrpy"], "did you mean 'entropy'?"),
        (["--data", "random:2", "--soc", "SM99999"], "SM99999"),
        (["--data", "random:2", "--encodings-version", "3"], "0.6.1, 1.0.0, 2.0.0 can be written"),
        (["--data", "random:2", "--recipe", "w8a8; Loop=a16"], "op:Loop fits nothing"),
    ],
)
def test_faults(arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "q.onnx"
    code, _, error = run(capsys, str(DIGITS), *arguments, "-o", str(out))
    assert code == 2
    assert said in error
    assert not out.exists()


def test_the_model_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "m.onnx"
    copy.write_bytes(DIGITS.read_bytes())
    code, _, error = run(capsys, str(copy), "--data", "random:2", "-o", str(copy))
    assert code == 2
    assert "is the model itself" in error
    assert copy.read_bytes() == DIGITS.read_bytes()
    assert run(capsys, str(copy), "--data", "random:2")[0] == 0
    assert (tmp_path / "m.qdq.onnx").exists()
