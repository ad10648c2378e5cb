# SPDX-License-Identifier: Apache-2.0
"""Run by an environment that has the openai package: plain and streamed answers, a cancelled one, a wrong token."""

from __future__ import annotations

import json
import sys
from typing import Any

import openai  # type: ignore[import-not-found, unused-ignore]


def main(url: str, token: str) -> None:
    client = openai.OpenAI(base_url=url, api_key=token)
    asked = {
        "model": "small",
        "messages": [{"role": "user", "content": "If the file does not exist,"}],
        "temperature": 0,
        "max_tokens": 30,
    }
    said: dict[str, Any] = {"models": [model.id for model in client.models.list()]}
    said["plain"] = client.chat.completions.create(**asked).choices[0].message.content
    chunks = client.chat.completions.create(**asked, stream=True)
    said["streamed"] = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    cancelled = client.chat.completions.create(**asked, stream=True)
    next(iter(cancelled))
    cancelled.close()
    client.close()
    client = openai.OpenAI(base_url=url, api_key=token)
    said["after_cancel"] = client.chat.completions.create(**asked).choices[0].message.content
    try:
        openai.OpenAI(base_url=url, api_key="wrong-token").models.list()
    except openai.AuthenticationError as error:
        said["refused"] = error.status_code
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
