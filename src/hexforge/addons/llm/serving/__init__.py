# SPDX-License-Identifier: Apache-2.0
"""Serving: answers of a language model for OpenAI's clients, on this machine."""
