# SPDX-License-Identifier: Apache-2.0
"""Tokenizers that join pairs, in the files that phones get: llama2.c's, Tiktoken's and SentencePiece's."""
