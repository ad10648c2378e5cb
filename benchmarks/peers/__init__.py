# SPDX-License-Identifier: Apache-2.0
"""The engines that hexforge is compared with, and the timing of engines in turns."""
