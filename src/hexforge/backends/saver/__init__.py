# SPDX-License-Identifier: Apache-2.0
"""The saver backend: records what another backend is asked to do."""
