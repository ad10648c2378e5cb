# SPDX-License-Identifier: Apache-2.0
"""From a model to something that runs: backends by name, one road to a model's parts, plans, contexts."""
