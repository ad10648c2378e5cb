# SPDX-License-Identifier: Apache-2.0
"""QNN's Saver: records the calls of a backend, runs a recording again and finds its smallest part that fails."""
