# SPDX-License-Identifier: Apache-2.0
"""What a graph keeps on a device: buffers and launches, by OpenCL or by CUDA graphs."""
