# SPDX-License-Identifier: Apache-2.0
"""Real .tflite files of packages: whether they open, where they run, and what they compute beside LiteRT."""
