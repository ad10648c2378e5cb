# SPDX-License-Identifier: Apache-2.0
"""One inference of every benchmark model beside onnxruntime, with default options."""
