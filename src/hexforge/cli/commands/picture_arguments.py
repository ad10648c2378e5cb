# SPDX-License-Identifier: Apache-2.0
"""Arguments that say how pictures become numbers; `images.json` beside the pictures says the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexforge.cli.say import say
from hexforge.errors import CallError
from hexforge.request_fields import option

_PANEL = "Pictures"


@dataclass(frozen=True, slots=True)
class PictureArguments:
    """What the command line says of pictures."""

    mean: str = option("", "Taken from each channel, e.g. 0.485,0.456,0.406.", rich_help_panel=_PANEL)
    std: str = option("", "Each channel is divided by it, e.g. 0.229,0.224,0.225.", rich_help_panel=_PANEL)
    resize: str = option("", "stretch, crop, pad, or a number: the shorter side becomes that.", rich_help_panel=_PANEL)
    crop: int = option(0, "The middle square of so many pixels is taken.", min=0, rich_help_panel=_PANEL)
    layout: str = option("", "NCHW or NHWC.", rich_help_panel=_PANEL)
    scale: str = option("", "Pixels times this, before the mean: 1/255, 1.", rich_help_panel=_PANEL)

    def data(self, source: str) -> Any:
        """The samples with the picture options; a source without pictures stays as it is."""
        from hexforge.quant.data.data_sets import is_data_set
        from hexforge.quant.data.pictures import PictureFolder, holds_pictures

        options: dict[str, Any] = {}
        for name, text in (("mean", self.mean), ("std", self.std)):
            if text:
                numbers = [_number(part, f"--{name}") for part in text.split(",")]
                options[name] = numbers[0] if len(numbers) == 1 else tuple(numbers)
        if self.resize:
            options["resize"] = int(self.resize) if self.resize.isdecimal() else self.resize
        if self.crop:
            options["crop"] = self.crop
        if self.layout:
            options["layout"] = self.layout.upper()
        if self.scale:
            options["scale"] = _number(self.scale, "--scale")
        if source and options and is_data_set(source):
            return PictureFolder(source, options)
        if not source or source.startswith("random:") or not holds_pictures(Path(source)):
            if options:
                given = ", ".join(f"--{name}" for name in options)
                raise CallError(f"{given}: is about pictures, and {source or 'the data'} holds none")
            return source
        return PictureFolder(Path(source), options)

    def say(self, data: Any, *, quiet: bool = False) -> None:
        """Print what is done to the pictures, on standard error where the output is for programs."""
        from hexforge.quant.data.pictures import PictureFolder

        if isinstance(data, PictureFolder):
            say(f"pictures: {data.about()}", err=quiet)


def _number(text: str, flag: str) -> float:
    over, slash, under = text.partition("/")
    try:
        return float(over) / float(under) if slash else float(text)
    except (ValueError, ZeroDivisionError):
        raise CallError(f"{flag} {text!r}: a number, such as 0.5 or 1/255") from None
