# SPDX-License-Identifier: Apache-2.0
"""An HTTP endpoint that speaks as OpenAI's does, with a bundle behind it."""
