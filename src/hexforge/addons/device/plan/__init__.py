# SPDX-License-Identifier: Apache-2.0
"""Plans: how contexts that run together are loaded, shared and driven on one device, searched for and proven."""
