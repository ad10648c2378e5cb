# SPDX-License-Identifier: Apache-2.0
"""What running a model on the htp backend costs: the time and memory of inferences, operators and sessions."""
