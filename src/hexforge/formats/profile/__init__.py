# SPDX-License-Identifier: Apache-2.0
"""Profiles: what runs of a graph did, as a record, as files and as QNN's texts (docs/profile_format.md)."""
