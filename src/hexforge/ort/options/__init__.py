# SPDX-License-Identifier: Apache-2.0
"""What a session can be asked for: its options, config keys, providers and their options."""
