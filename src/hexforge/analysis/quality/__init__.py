# SPDX-License-Identifier: Apache-2.0
"""Quality: models quantized, compared, scored and searched for the mix of precisions that is worth it."""
