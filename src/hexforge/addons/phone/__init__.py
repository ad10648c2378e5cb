# SPDX-License-Identifier: Apache-2.0
"""The virtual phone: an adb by name, a folder as its storage, a small shell, and runners on a simulated device."""
