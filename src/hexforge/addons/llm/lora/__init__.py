# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters of language models: read as PEFT writes them, exported beside a base, switched between turns."""
