# SPDX-License-Identifier: Apache-2.0
"""adb's wire protocol, as its server and as the phone's daemon speak it, on loopback ports of this computer."""
