# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters of contexts: the config files that apply them, and how they are made."""
