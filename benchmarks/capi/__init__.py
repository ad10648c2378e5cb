# SPDX-License-Identifier: Apache-2.0
"""What programs get from QNN's C API: what a call costs, and what the vendor's provider does over our library."""
