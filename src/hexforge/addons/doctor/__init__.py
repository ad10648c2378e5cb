# SPDX-License-Identifier: Apache-2.0
"""doctor: what would stop the NPU session of a folder, an app, a device, a log or a machine, and what to do."""
