# SPDX-License-Identifier: Apache-2.0
"""What a session writes about its runs and its graphs: traces, profiles, dumps."""
